"""From what a person wrote to what the tuner works with: space, ladder, budget, fingerprint, the engine's command line.

The operator and the `frontier` command go through here: the same spec is the same study in a cluster and on a desk.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from frontier_tuner.configuration import Configuration, digest
from frontier_tuner.engines import vllm
from frontier_tuner.errors import FactsError, TunerError
from frontier_tuner.facts import GPUFacts, ModelFacts, gpu_facts, model_facts
from frontier_tuner.finishing import Finish
from frontier_tuner.ladder import levels
from frontier_tuner.measurement import Load
from frontier_tuner.predict import PriorModel
from frontier_tuner.predict.choice import prior_model
from frontier_tuner.predict.roofline import Traffic
from frontier_tuner.space import Restriction, SearchSpace
from frontier_tuner.spec import ParameterSpec, StudySpec
from frontier_tuner.stopping import Budget, Use
from frontier_tuner.versions import image_version

DEFAULT_RUNGS = 6
DEFAULT_HIGHEST_CONCURRENCY = 256
DEFAULT_CONTEXT_TOKENS = 2048
"""What a sequence is taken to hold where the workload is a trace."""
MODELS_PATH = "/models"


def space_of(spec: StudySpec, supports: Collection[str] = ()) -> SearchSpace:
    """Return the valid configurations of a study.

    Args:
        spec: The study.
        supports: Parameters of `engines.vllm.FEATURES` that the plant can do; the others are refused.

    Raises:
        InvalidSpaceError: The parameters contradict each other, the model or the hardware; carries every problem.
        TunerError: The model's facts or the GPU's are wrong.
    """
    return vllm.space_of_request(space_request(spec, supports))


def space_request(spec: StudySpec, supports: Collection[str] = ()) -> vllm.SpaceRequest:
    """Return what the space of a study is made from; the arguments are those of `space_of`.

    Raises:
        TunerError: The model's facts or the GPU's are wrong.
    """
    names = [variant.name for variant in spec.model.variants]
    return vllm.SpaceRequest(
        models=_models(spec),
        gpu=_gpu(spec),
        gpus_per_node=spec.hardware.gpus_per_node,
        variants=names if spec.objectives.quality is None else names[:1],
        max_gpus=spec.search.max_trial_gpus,
        restrictions=[_restriction(entry) for entry in spec.search.parameters],
        fixed_args=spec.engine.args,
        engine_version=image_version(spec.engine.image),
        supports=supports,
    )


def _models(spec: StudySpec) -> Mapping[str, ModelFacts] | None:
    """Return the facts of every variant, or None where one is unknown: then no rule reads a shape."""
    overrides = spec.model.facts.overrides()
    found: dict[str, ModelFacts] = {}
    for variant in spec.model.variants:
        try:
            found[variant.name] = model_facts(variant.source, overrides)
        except FactsError:
            if overrides:
                raise
            return None
    return found


def _gpu(spec: StudySpec) -> GPUFacts | None:
    product, memory = spec.hardware.gpu.product, spec.hardware.gpu.memory
    if not product:
        return None
    facts = gpu_facts(product)
    # A figure above the product's is the round one of its name: an H200 of 141Gi has 140.4.
    return facts if memory is None else replace(facts, memory_bytes=min(memory, facts.memory_bytes))


def _restriction(entry: ParameterSpec) -> Restriction:
    if entry.step is not None and entry.min is not None and entry.max is not None:
        return Restriction(entry.name, values=tuple(range(entry.min, entry.max + 1, entry.step)))
    return Restriction(entry.name, values=entry.values, minimum=entry.min, maximum=entry.max, value=entry.value)


def ladder_of(spec: StudySpec) -> tuple[Load, ...]:
    """Return the loads that every trial climbs, ascending: the spec's, or six concurrencies from 1 to 256."""
    if spec.search.ladder is not None:
        return spec.search.ladder.loads()
    return tuple(
        Load("Concurrency", level) for level in levels("Concurrency", 1, DEFAULT_HIGHEST_CONCURRENCY, DEFAULT_RUNGS)
    )


def prior_of(spec: StudySpec) -> PriorModel | None:
    """Return what predicts configurations before they start, or None: the spec wants none, or facts are missing."""
    models, gpu = _models(spec), _gpu(spec)
    source = spec.model.variants[0].source.partition("://")[2]
    return prior_model(spec.search.prior, models, gpu, traffic_of(spec), engine="vllm", source=source)


def traffic_of(spec: StudySpec) -> Traffic:
    """Return what a request of the spec's workload looks like on average."""
    profile = spec.workload.profile
    if profile is None:
        return Traffic(DEFAULT_CONTEXT_TOKENS * 3 / 4, DEFAULT_CONTEXT_TOKENS / 4)
    inputs = max(1.0, float(profile.input_tokens.mean))
    shared = profile.session.shared_prefix_percent / 100 if profile.session else 0.0
    return Traffic(inputs, max(1.0, float(profile.output_tokens.mean)), inputs * shared)


def budget_of(spec: StudySpec) -> Budget:
    """Return when the study must stop."""
    budget = spec.search.budget
    return Budget(
        max_trials=budget.max_trials,
        max_gpu_hours=None if budget.max_gpu_hours is None else float(budget.max_gpu_hours),
        max_seconds=budget.max_duration.total_seconds(),
        ablations=budget.ablations,
    )


def use_of(spec: StudySpec, serving_gpus: int) -> Use | None:
    """Return what the choice will be used for until the study must have paid for itself; None without a bound on that.

    Args:
        spec: The study.
        serving_gpus: GPUs that serve the present choice.
    """
    horizon = spec.search.budget.pay_back
    if horizon is None:
        return None
    hours = max(1, serving_gpus) * horizon.total_seconds() / 3600
    return Use(hours, float(spec.hardware.price_per_gpu_hour))


def finish_of(spec: StudySpec) -> Finish:
    """Return what is measured once the search has stopped."""
    wanted = spec.search.confirmation
    return Finish(wanted.finalists, wanted.neighbours, wanted.rounds)


def source_of(spec: StudySpec, configuration: Configuration) -> str:
    """Return the source of the checkpoint that a configuration serves."""
    wanted = configuration.text("variant", spec.model.variants[0].name)
    for variant in spec.model.variants:
        if variant.name == wanted:
            return variant.source
    raise TunerError(f"variant {wanted!r} is not one of {', '.join(v.name for v in spec.model.variants)}")


def model_path(source: str, claims: str = MODELS_PATH) -> str:
    """Return what the engine is told to load: a hub name, or a path below where the claim's files are.

    Args:
        source: As a variant names it.
        claims: Where they are.
    """
    scheme, _, rest = source.partition("://")
    if scheme == "pvc":
        return str(PurePosixPath(claims, rest.partition("/")[2]))
    return rest


def engine_arguments(spec: StudySpec, configuration: Configuration, *, model: str, host: str, port: int) -> list[str]:
    """Return the engine's whole command line after its entry point.

    Args:
        spec: The study.
        configuration: The searched parameters' values.
        model: What the engine loads, as `model_path` or a local directory.
        host: The address to listen on.
        port: The port to listen on.
    """
    version = image_version(spec.engine.image)
    flags = vllm.command_line(configuration, fixed_args=spec.engine.args, engine_version=version)
    fixed = ["--model", model, "--served-model-name", spec.model.served_name, "--host", host, "--port", str(port)]
    return [*fixed, *flags]


def fingerprint(spec: StudySpec, occasion: str = "") -> str:
    """Return what names a study: trials of one fingerprint may be compared, others may not.

    Model, engine, hardware, workload, search space and the way of measuring are part of it; objectives, target, budget,
    price and rollout are not, so that editing those selects again from what is known.

    Args:
        spec: The study.
        occasion: Anything that asks for a new study of the same spec, such as the time of the request.
    """
    content = spec.model_dump(mode="json", by_alias=True)
    return digest(
        {
            "model": content["model"],
            "engine": {k: v for k, v in content["engine"].items() if k != "podTemplate"},
            "hardware": {k: v for k, v in content["hardware"].items() if k not in {"pricePerGPUHour", "currency"}},
            "workload": {k: v for k, v in content["workload"].items() if k != "requestRate"},
            "parameters": content["search"]["parameters"],
            "maxTrialGPUs": content["search"]["maxTrialGPUs"],
            "ladder": content["search"]["ladder"],
            "seed": content["search"]["seed"],
            "warmUp": content["measurement"]["warmUp"],
            # A rung of real traffic and one of the tuner's own load must never meet on one frontier.
            **({"mode": content["measurement"]["mode"]} if content["measurement"]["mode"] == "Live" else {}),
            **({"occasion": occasion} if occasion else {}),
        }
    )
