"""A prior from aiconfigurator: step times interpolated from measured operators, for the models and systems it knows.

It needs the extra `aiconfigurator`. Whatever it has no data for is answered by a fallback, so that every configuration
has a prediction; its own times to first token are known to be optimistic.
"""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import TunerError
from frontier_tuner.facts import GPUFacts
from frontier_tuner.predict import Floats, Prediction, PriorModel
from frontier_tuner.predict.deployment import Deployment, Pool
from frontier_tuner.predict.precision import CHECKPOINT
from frontier_tuner.predict.roofline import Traffic

__all__ = ["SYSTEMS", "AIConfigurator", "available"]

SYSTEMS: Mapping[str, str] = {
    "NVIDIA-H100-80GB-HBM3": "h100_sxm",
    "NVIDIA-H200": "h200_sxm",
    "NVIDIA-B200": "b200_sxm",
    "NVIDIA-B300": "b300_sxm",
    "NVIDIA-GB200": "gb200",
    "NVIDIA-GB300": "gb300",
    "NVIDIA-A100-SXM4-80GB": "a100_sxm",
    "NVIDIA-L40S": "l40s",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "rtx_pro_6000_server",
}
"""Its names of the accelerators that it has measured operators of."""
LEVELS = 8
"""Levels of load that are asked for each configuration; those between are interpolated in log space."""
STEP_TOKENS = 8192
PREFILL_SHARE, DECODE_SHARE, DECODE_SLOWER, PREFILL_WAIT = 0.9, 0.92, 1.08, 1.8
"""Its own constants for matching a prefill pool with a decode pool: shares of their rates, slower steps, and the wait
at prefill."""
GIB = 1024**3

_DENSE = {
    "bf16": "bfloat16", "fp8": "fp8", "fp8_static": "fp8_static", "fp8_block": "fp8_block", "int8": "sq",
    "int8_weights": "int8_wo", "nvfp4": "nvfp4", "nvfp4_weights": "nvfp4_wo", "int4_weights": "int4_wo",
}  # fmt: skip
_EXPERTS = {
    "bf16": "bfloat16", "fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
    "nvfp4_weights": "nvfp4_wo", "mxfp4_weights": "w4a16_mxfp4", "mxfp4_fp8": "w4a8_mxfp4_mxfp8",
    "int4_weights": "int4_wo", "int4_fp8": "w4afp8",
}  # fmt: skip
_CACHE = {"bf16": "bfloat16", "fp8": "fp8"}


def available() -> bool:
    """Tell whether the extra is installed."""
    try:
        import_module("aiconfigurator_core.sdk.config")
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class _Curve:
    """Load curve of one deployment: arrays over rising load, and bytes."""

    load: Floats
    ttft: Floats
    itl: Floats
    throughput: Floats
    memory: Floats
    start: float


@dataclass(frozen=True)
class AIConfigurator:
    """Predicts load curves from aiconfigurator's operator data; a `PriorModel`.

    Attributes:
        model: A model's name that aiconfigurator knows, or a directory with a `config.json`.
        gpu: The accelerator, one of `SYSTEMS`.
        engine: `vllm`, `sglang` or `trtllm`.
        traffic: What a request looks like, on average.
        deployment_of: What a configuration deploys.
        fallback: Answers for configurations without data.
    """

    model: str
    gpu: GPUFacts
    engine: str
    traffic: Traffic
    deployment_of: Callable[[Configuration], Deployment]
    fallback: PriorModel

    def predict(self, configurations: Sequence[Configuration], concurrency: Floats) -> Prediction:
        """Return the predicted curves; see `PriorModel`.

        Raises:
            TunerError: The extra is not installed, or the accelerator is not one of `SYSTEMS`.
        """
        load = np.asarray(concurrency, dtype=float)
        answer = self.fallback.predict(configurations, load)
        copies = {field.name: np.array(getattr(answer, field.name)) for field in fields(Prediction)}
        known: dict[tuple[Deployment, bytes], _Curve | None] = {}
        for row, configuration in enumerate(configurations):
            deployment = self.deployment_of(configuration)
            place = (deployment, load[row].tobytes())
            if place not in known:
                known[place] = self._curve(deployment, load[row])
            curve = known[place]
            if curve is not None:
                _write(copies, row, load[row], curve)
        return Prediction(**copies)

    @cached_property
    def _sdk(self) -> "_SDK":
        if not available():
            raise TunerError(
                "the prior AIConfigurator needs the extra: pip install 'frontier-operator[aiconfigurator]'"
            )
        if self.gpu.product not in SYSTEMS:
            raise TunerError(f"aiconfigurator has no data of {self.gpu.product}; it has of {', '.join(SYSTEMS)}")
        return _SDK(SYSTEMS[self.gpu.product], self.engine)

    def _curve(self, deployment: Deployment, load: Floats) -> _Curve | None:
        """Return a deployment's curve, or None where there is no data for it."""
        levels = np.unique(load[np.isfinite(load)])
        if not len(levels):
            return None
        asked = levels[np.unique(np.linspace(0, len(levels) - 1, LEVELS).round().astype(int))]
        sdk = self._sdk
        if not sdk.knows(self.model):
            return None
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                one = _Divided if deployment.prefill else _Mixed
                worker = one(sdk, self.model, deployment, self.traffic)
                points = [worker.at(level) for level in asked]
            except Exception:  # noqa: BLE001 - no kernel, a layout that does not divide: missing data has many names there
                return None
        ttft, itl, throughput, memory = (np.array(each, dtype=float) for each in zip(*points, strict=True))
        usable = np.all([np.all(np.isfinite(each) & (each > 0)) for each in (ttft, itl, throughput, memory)])
        return _Curve(asked, ttft, itl, throughput, memory, worker.start) if usable else None


def _write(into: Mapping[str, Floats], row: int, load: Floats, curve: _Curve) -> None:
    exists = np.isfinite(load)
    at = np.log(load[exists])

    def between(values: Floats) -> Floats:
        return np.exp(np.interp(at, np.log(curve.load), np.log(values)))

    into["ttft"][row, exists] = between(curve.ttft)
    into["itl"][row, exists] = between(curve.itl)
    into["user_speed"][row, exists] = 1 / into["itl"][row, exists]
    into["throughput"][row, exists] = between(curve.throughput)
    into["memory"][row, exists] = between(curve.memory)
    into["start_memory"][row] = curve.start


class _SDK:
    """The parts of aiconfigurator that are needed, with one database open."""

    def __init__(self, system: str, engine: str) -> None:
        self.engine = engine
        self.config, self.models, self.builders, self.factory = (
            _module(name) for name in ("config", "models", "config_builders", "backends.factory")
        )
        data = _module("perf_database")
        version = data.get_latest_database_version(system=system, backend=engine)
        if version is None:
            raise TunerError(f"aiconfigurator has no data of engine {engine!r} on {system}")
        self.database = data.get_database_view(system, engine, version)

    def knows(self, name: str) -> bool:
        """Tell whether a model needs no download: its configuration is here, or ships with aiconfigurator."""
        shipped = files("aiconfigurator_core") / "model_configs" / f"{name.replace('/', '--')}_config.json"
        return (Path(name) / "config.json").is_file() or shipped.is_file()

    def backend(self) -> Any:  # an object of theirs
        """Return a new backend: it remembers step times by load alone, so each model needs its own."""
        return self.factory.get_backend(self.engine)

    def model(self, name: str, pool: Pool, deployment: Deployment, *, prefills: bool) -> Any:  # an object of theirs
        """Return a model; built once, asking about it takes a fraction of a millisecond."""
        dense, experts = deployment.dense, deployment.experts
        config = self.builders.build_model_config(
            pool.tensor,
            pool.pipeline,
            pool.attention_data,
            pool.moe_tensor,
            pool.expert,
            None if dense == CHECKPOINT else _DENSE[dense],
            None if deployment.cache == CHECKPOINT else _CACHE[deployment.cache],
            None,
            None if experts == CHECKPOINT else _EXPERTS[experts],
            None,
        )
        self.builders.apply_nextn(config, deployment.draft_tokens if deployment.draft_layers else 0)
        self.models.resolve_context_fmha_by_data(config, name, self.database, self.engine, is_context_role=prefills)
        return self.models.get_model(name, config, self.engine)


def _module(name: str) -> ModuleType:
    return import_module(f"aiconfigurator_core.sdk.{name}")


def _bytes(memory: Mapping[str, float]) -> tuple[float, float]:
    """Return all bytes, and those besides the cache."""
    return memory["total"] * GIB, (memory["total"] - memory["kvcache"]) * GIB


class _Mixed:
    """Workers that prefill and decode in the same steps."""

    def __init__(self, sdk: _SDK, name: str, deployment: Deployment, traffic: Traffic) -> None:
        self.sdk, self.deployment, self.traffic = sdk, deployment, traffic
        self.model, self.backend = sdk.model(name, deployment.decode, deployment, prefills=True), sdk.backend()
        self.start = 0.0

    def at(self, load: float) -> tuple[float, float, float, float]:
        """Return seconds to the first token and between tokens, tokens per second and GPU, and bytes at a load."""
        deployment, traffic, pool = self.deployment, self.traffic, self.deployment.decode
        ranks = pool.attention_data * pool.pipeline * pool.workers
        wanted = max(1, round(load / ranks))
        batch = min(wanted, deployment.max_seqs or wanted)
        kept = round(traffic.cached_tokens) if deployment.prefix_caching else 0
        more = {"decode_tokens_per_iteration": deployment.tokens_per_step} if deployment.draft_layers else {}
        summary = self.backend.run_agg(
            self.model,
            self.sdk.database,
            self.sdk.config.RuntimeConfig(
                isl=round(traffic.input_tokens),
                osl=max(2, round(traffic.output_tokens)),
                batch_size=batch,
                prefix=min(kept, round(traffic.input_tokens) - 1),
            ),
            ctx_tokens=deployment.step_tokens or max(STEP_TOKENS, round(traffic.input_tokens)),
            **(more if deployment.draft_tokens else {}),
        )
        found = summary.get_result_dict()
        memory, self.start = _bytes(summary.get_memory())
        itl, throughput = found["tpot"] / 1e3, found["tokens/s/gpu"]
        waiting = (wanted - batch) * ranks * traffic.output_tokens / (throughput * pool.gpus)
        return found["ttft"] / 1e3 + waiting, itl, throughput, memory


class _Divided:
    """A prefill pool that feeds a decode pool, matched by rate."""

    def __init__(self, sdk: _SDK, name: str, deployment: Deployment, traffic: Traffic) -> None:
        prefill = deployment.prefill or deployment.decode
        self.sdk, self.deployment, self.traffic = sdk, deployment, traffic
        self.model, self.backend = sdk.model(name, deployment.decode, deployment, prefills=False), sdk.backend()
        kept = min(round(traffic.cached_tokens), round(traffic.input_tokens) - 1) if deployment.prefix_caching else 0
        self.runtime = sdk.config.RuntimeConfig(
            isl=round(traffic.input_tokens), osl=max(2, round(traffic.output_tokens)), batch_size=1, prefix=kept
        )
        model = sdk.model(name, prefill, replace(deployment, draft_tokens=0), prefills=True)
        alone = sdk.backend().run_static(model, sdk.database, self.runtime, "static_ctx")
        self.prompt_seconds = alone.get_result_dict()["context_latency"] / 1e3
        ranks = prefill.attention_data * prefill.pipeline * prefill.workers
        self.prompts_per_s = PREFILL_SHARE * ranks / self.prompt_seconds
        self.start = _bytes(alone.get_memory())[1]

    def at(self, load: float) -> tuple[float, float, float, float]:
        """Return the same as `_Mixed.at`."""
        pool, traffic = self.deployment.decode, self.traffic
        ranks = pool.attention_data * pool.pipeline * pool.workers
        batch = max(1, round(load / ranks))
        runtime = replace(self.runtime, batch_size=batch)
        summary = self.backend.run_static(self.model, self.sdk.database, runtime, "static_gen")
        memory, start = _bytes(summary.get_memory())
        self.start = max(self.start, start)
        itl = summary.get_result_dict()["tpot"] / 1e3 * DECODE_SLOWER / self.deployment.tokens_per_step
        rate = min(DECODE_SHARE * min(batch * ranks, load) / (itl * traffic.output_tokens), self.prompts_per_s)
        ttft = PREFILL_WAIT * self.prompt_seconds
        waiting = max(0.0, load / rate - ttft - itl * traffic.output_tokens / DECODE_SHARE)
        return ttft + waiting, itl, rate * traffic.output_tokens / self.deployment.gpus, max(memory, self.start)
