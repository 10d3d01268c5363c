"""From a manifest to a spec, and from a spec to a plant of local processes."""

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import FactsError, TunerError
from frontier_tuner.facts import model_facts
from frontier_tuner.load.workload import parse_workload
from frontier_tuner.plants.process import ProcessSettings
from frontier_tuner.prometheus import Limits
from frontier_tuner.spec import StudySpec
from frontier_tuner.study import MODELS_PATH, engine_arguments, model_path, source_of

_KIND = "InferenceDeployment"
_ONLY_IN_A_CLUSTER = ("suspend", "rollout", "retune")
"""Parts of a spec that say how to serve, not what to measure."""
_FALLBACK_VOCABULARY = 2000


def read_spec(path: Path, *, finalists: int | None = None, ablations: int | None = None) -> StudySpec:
    """Return the study of the one InferenceDeployment in a YAML file; other objects in it are skipped.

    What only the operator uses (`suspend`, `rollout`, `retune`, `engine.podTemplate`) is left out.

    Args:
        path: The file.
        finalists: Overrides `search.confirmation.finalists`.
        ablations: Overrides `search.budget.ablations`.

    Raises:
        TunerError: There is not exactly one, or its spec is wrong; the message lists every problem.
    """
    try:
        documents: list[Any] = list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TunerError(f"{path} cannot be read: {error}") from error
    found = [document for document in documents if isinstance(document, dict) and document.get("kind") == _KIND]
    if len(found) != 1:
        raise TunerError(f"{path} must hold one {_KIND}, not {len(found)}")
    spec = found[0].get("spec") or {}
    if not isinstance(spec, dict):
        return StudySpec.parse(spec)
    spec = _measured_part(spec)
    for section, name, value in (("confirmation", "finalists", finalists), ("budget", "ablations", ablations)):
        if value is not None:
            search = spec.get("search") or {}
            spec = {**spec, "search": {**search, section: {**(search.get(section) or {}), name: value}}}
    return StudySpec.parse(spec)


def _measured_part(spec: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if name not in _ONLY_IN_A_CLUSTER}
    if isinstance(kept.get("engine"), dict):
        kept["engine"] = {name: value for name, value in kept["engine"].items() if name != "podTemplate"}
    return kept


def process_settings(
    spec: StudySpec, directory: Path, engine_command: str | None, models: Path | None = None
) -> ProcessSettings:
    """Return how a study's engines are started and measured on this machine.

    Args:
        spec: The study.
        directory: For logs and Prometheus's data.
        engine_command: What the engine's arguments are appended to; None runs the installed vLLM.
        models: Where the files of `pvc://CLAIM/PATH` are, without the claim's name; None for `/models`, as in a pod.

    Raises:
        TunerError: The workload has no lengths of its own, or they cannot be read on this machine, or the directory
            takes no files.
    """
    _check_writable(directory)
    prefix = (
        shlex.split(engine_command) if engine_command else [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    )
    if spec.workload.trace is not None and spec.workload.trace.path is None:
        raise TunerError(
            "spec.workload.trace: there are no ConfigMaps on this machine; give path instead of configMapRef"
        )
    try:
        workload = spec.workload.resolve()
        parse_workload(workload)
    except ValueError as error:
        raise TunerError(str(error)) from error

    claims = str(models.absolute()) if models else MODELS_PATH

    def command_line(configuration: Configuration, host: str, port: int) -> Sequence[str]:
        model = model_path(source_of(spec, configuration), claims)
        return [*prefix, *engine_arguments(spec, configuration, model=model, host=host, port=port)]

    return ProcessSettings(
        directory=directory,
        command_line=command_line,
        environment={variable.name: variable.value for variable in spec.engine.env if variable.value is not None},
        model=spec.model.served_name,
        workload=workload,
        objectives=spec.to_objectives(),
        gpus=gpus,
        price_per_gpu_hour=float(spec.hardware.price_per_gpu_hour),
        cached_input_percent=float(spec.hardware.cached_input_percent),
        limits=Limits(min_requests=spec.measurement.min_requests),
        start_timeout_seconds=spec.measurement.engine_start_timeout.total_seconds(),
        warm_up_seconds=spec.measurement.warm_up.total_seconds(),
        duration_seconds=spec.measurement.max_rung_duration.total_seconds(),
        precision_percent=spec.measurement.precision_percent,
        vocabulary=_vocabulary(spec),
    )


def _check_writable(directory: Path) -> None:
    """Raise before an engine is started where its logs could not be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise TunerError(
            f"{directory} cannot hold the logs: {error.strerror}; name a directory that takes files"
        ) from error


def _vocabulary(spec: StudySpec) -> int:
    """Return the smallest vocabulary of the variants; a small number that any model has where one is unknown."""
    sizes = []
    for variant in spec.model.variants:
        try:
            sizes.append(model_facts(variant.source, spec.model.facts.overrides()).vocabulary)
        except FactsError:
            return _FALLBACK_VOCABULARY
    return min(sizes)
