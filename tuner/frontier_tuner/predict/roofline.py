"""The roofline prior: load curves and memory of a configuration from data sheets and a few generic efficiencies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import FactsError
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.predict.deployment import Deployment, Pool
from frontier_tuner.predict.efficiency import EFFICIENCIES, Efficiencies
from frontier_tuner.predict.loops import SHARED_PREFILL_TOKENS, Demand, State, divided, mixed, settle
from frontier_tuner.predict.memory import (
    activation_bytes,
    cache_bytes_per_sequence,
    capacity_bytes,
    runtime_bytes,
    weight_bytes,
)
from frontier_tuner.predict.shapes import column, formats, shape, split
from frontier_tuner.predict.steps import StepTimes

__all__ = ["Roofline", "Traffic"]

Facts = TypeVar("Facts", ModelFacts, GPUFacts)


@dataclass(frozen=True)
class Traffic:
    """What a request looks like, on average.

    Attributes:
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        cached_tokens: Tokens of the prompt that are in the prefix cache, where there is one.
    """

    input_tokens: float
    output_tokens: float
    cached_tokens: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            if not 1 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.cached_tokens <= self.input_tokens:
            raise ValueError(f"cached_tokens must be from 0 to input_tokens, not {self.cached_tokens}")


@dataclass(frozen=True)
class Roofline:
    """Predicts load curves from the model's shape and the accelerator's data sheet; a `PriorModel`.

    Attributes:
        model: Facts of the model, or by the value of the parameter `variant`; the key "" answers for all others.
        gpu: The accelerator, or by the value of the parameter `gpuProduct`; the key "" answers for all others.
        traffic: What a request looks like.
        deployment_of: What a configuration deploys.
        efficiencies: How far hardware stays behind its data sheet.
    """

    model: ModelFacts | Mapping[str, ModelFacts]
    gpu: GPUFacts | Mapping[str, GPUFacts]
    traffic: Traffic
    deployment_of: Callable[[Configuration], Deployment]
    efficiencies: Efficiencies = EFFICIENCIES

    def predict(self, configurations: Sequence[Configuration], concurrency: Floats) -> Prediction:
        """Return the predicted curves; see `PriorModel`.

        Raises:
            FactsError: A configuration's variant has no facts.
        """
        load = np.asarray(concurrency, dtype=float)
        deployments = [self.deployment_of(each) for each in configurations]
        models = [_of(self.model, each, "variant", "model") for each in configurations]
        gpus = [_of(self.gpu, each, "gpuProduct", "GPU") for each in configurations]
        parts = _alike(deployments, gpus)
        answers = [
            self._predict([models[row] for row in rows], [deployments[row] for row in rows], gpus[rows[0]], load[rows])
            for rows in parts
        ]
        order = np.argsort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
        empty = {"start_memory": np.zeros(0), "capacity": np.zeros(0)}
        joined = {
            field.name: np.concatenate([getattr(answer, field.name) for answer in answers])[order]
            if answers
            else empty.get(field.name, np.zeros(load.shape))
            for field in fields(Prediction)
        }
        return Prediction(**joined)

    def _predict(
        self, models: Sequence[ModelFacts], deployments: Sequence[Deployment], gpu: GPUFacts, load: Floats
    ) -> Prediction:
        """Predict deployments on one product that all have a prefill pool of their own, or all have none."""
        kinds, precisions = shape(models), formats(models, deployments, gpu, self.efficiencies)
        graphs, demand = column([d.graphs for d in deployments]), self._demand(deployments)

        def times(pools: Sequence[Pool]) -> StepTimes:
            return StepTimes(gpu, kinds, split(pools), precisions, self.efficiencies, graphs)

        decode = times([d.decode for d in deployments])
        prefill = times([d.prefill for d in deployments if d.prefill]) if deployments[0].prefill else None
        start, cache = self._memory(decode, demand, prefills=prefill is None)
        capacity = capacity_bytes(gpu, column([d.gpu_memory_fraction for d in deployments]))
        limits = column([d.max_seqs or np.inf for d in deployments])
        room = np.maximum(1.0, (capacity - start) / (cache * demand.held / (demand.kept + demand.new + demand.outputs)))
        ranks = np.clip(load, 1.0, decode.split.ranks)
        most = np.minimum(limits / decode.split.pipeline, room / decode.split.pipeline)
        if prefill is not None:
            start = np.maximum(start, self._memory(prefill, demand, prefills=True)[0])
            transfer = self._transfer(prefill)
            state = settle(divided(decode, prefill, demand, load, ranks, transfer), load, most, ranks)
        else:
            state = settle(mixed(decode, demand, load, ranks), load, most, ranks)
        held = cache * np.ceil(load / decode.split.ranks) * decode.split.pipeline
        return self._answer(state, column([d.gpus for d in deployments]), start, held, capacity)

    def _demand(self, deployments: Sequence[Deployment]) -> Demand:
        cached = self.traffic.cached_tokens
        kept = column([min(cached, self.traffic.input_tokens - 1) if d.prefix_caching else 0.0 for d in deployments])
        outputs = max(1.0, self.traffic.output_tokens - 1)
        return Demand(
            new=self.traffic.input_tokens - kept,
            kept=kept,
            outputs=np.full_like(kept, outputs),
            held=np.full_like(kept, self.traffic.input_tokens + self.traffic.output_tokens / 2),
            verified=column([1 + d.draft_tokens for d in deployments]),
            yielded=column([d.tokens_per_step for d in deployments]),
            draft_layers=column([d.draft_layers if d.draft_tokens else 0 for d in deployments]),
            step_tokens=column([d.step_tokens for d in deployments]),
        )

    def _memory(self, times: StepTimes, demand: Demand, *, prefills: bool) -> tuple[Floats, Floats]:
        """Return (n, 1) bytes that must fit before the engine starts, and of the cache of one finished sequence."""
        longest = np.where(demand.step_tokens > 0, demand.step_tokens, np.maximum(demand.new, SHARED_PREFILL_TOKENS))
        tokens = longest if prefills else 256 * demand.verified
        start = (
            weight_bytes(times.shape, times.split, times.formats, demand.draft_layers)
            + activation_bytes(times.shape, times.split, tokens)
            + runtime_bytes(times.split)
        )
        whole = self.traffic.input_tokens + self.traffic.output_tokens
        return start, cache_bytes_per_sequence(times.shape, times.split, times.formats, whole)

    def _transfer(self, prefill: StepTimes) -> Floats:
        """Return (n, 1) seconds to hand over the cache of a prompt, each GPU its share."""
        prompt = cache_bytes_per_sequence(prefill.shape, prefill.split, prefill.formats, self.traffic.input_tokens)
        network = prefill.gpu.network_bytes_per_s * self.efficiencies.link
        return self.efficiencies.transfer_seconds + prompt / network

    def _answer(self, state: State, gpus: Floats, start: Floats, held: Floats, capacity: Floats) -> Prediction:
        return Prediction(
            ttft=state.ttft,
            itl=state.itl,
            user_speed=1 / state.itl,
            throughput=state.rate * self.traffic.output_tokens / gpus,
            memory=start + held,
            start_memory=start[:, 0],
            capacity=capacity[:, 0],
        )


def _of(facts: Facts | Mapping[str, Facts], configuration: Configuration, parameter: str, what: str) -> Facts:
    if not isinstance(facts, Mapping):
        return facts
    wanted = configuration.text(parameter)
    found = facts.get(wanted, facts.get(""))
    if found is None:
        raise FactsError(f"{parameter} {wanted!r} has no {what} facts; known are {', '.join(facts)}")
    return found


def _alike(deployments: Sequence[Deployment], gpus: Sequence[GPUFacts]) -> list[NDArray[np.int64]]:
    """Return the rows of each combination of product and of having a prefill pool."""
    rows: dict[tuple[GPUFacts, bool], list[int]] = {}
    for row, (deployment, gpu) in enumerate(zip(deployments, gpus, strict=True)):
        rows.setdefault((gpu, deployment.prefill is not None), []).append(row)
    return [np.array(each, dtype=np.int64) for each in rows.values()]
