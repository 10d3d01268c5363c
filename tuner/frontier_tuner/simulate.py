"""A simulated plant: engines whose curves follow from arithmetic, so that whole studies run in seconds.

It is physical enough to be jagged (memory that runs out, batches that stop growing, speculation that competes with the
batch) and it is not a prediction of any real engine. Every random number comes from the plant's seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm_rules import DP, PP, TP, weight_bytes_per_gpu
from frontier_tuner.engines.vllm_rules import gpus as gpus_of
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.ladder import LadderDone, next_rung
from frontier_tuner.measurement import (
    COST,
    ITL,
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    TTFT,
    USER_SPEED,
    Estimate,
    Load,
    Measurement,
    Window,
    cost_per_million,
    key,
)
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.predict import PriorModel
from frontier_tuner.samplers import FRONTIER
from frontier_tuner.space import SearchSpace
from frontier_tuner.stopping import Budget, Stability, Stop
from frontier_tuner.trial import Failure, Outcome, Purpose, TrialRecord
from frontier_tuner.tuner import propose

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
RUNG_SECONDS = 60.0
START_SECONDS = 300.0
PERCENTILES = {5: -1.64, 50: 0.0, 90: 1.28, 95: 1.64, 99: 2.33}
EFFICIENCY = 0.6
"""Share of the data sheet's bandwidth and operations that an engine gets."""


@dataclass(frozen=True)
class Plant:
    """A model on some GPU under one workload.

    Attributes:
        model: The model served.
        gpu: The accelerator.
        input_tokens: Prompt length of every request.
        output_tokens: Answer length of every request.
        shared_prefix: Share of the prompt that the prefix cache can serve.
        acceptance: Probability that a speculated token is accepted.
        price: Money per GPU-hour.
        noise: Standard deviation of the logarithm of one measurement; twice as much for one engine start.
        quirk: Standard deviation of the logarithm of what arithmetic cannot explain of one configuration.
        seed: Of quirks and noise.
    """

    model: ModelFacts
    gpu: GPUFacts
    input_tokens: int = 1000
    output_tokens: int = 250
    shared_prefix: float = 0.5
    acceptance: float = 0.5
    price: float = 3.0
    noise: float = 0.015
    quirk: float = 0.05
    seed: int = 0

    def cache_tokens(self, configuration: Configuration) -> int:
        """Return how many tokens the KV caches of all ranks hold together; 0 or less means out of memory."""
        percent = configuration.integer("gpuMemoryUtilizationPercent", 90)
        left = self.gpu.memory_bytes * percent // 100 - weight_bytes_per_gpu(self.model, configuration) - 2**30
        bits = 8 if configuration.text("kvCacheDtype") == "fp8" else 16
        each = self.model.kv_bytes_per_token_per_gpu(configuration.integer(TP, 1), configuration.integer(PP, 1), bits)
        return left // each * configuration.integer(DP, 1)

    def curve(self, configuration: Configuration, load: float) -> tuple[float, float, float, float]:
        """Return TTFT and ITL in seconds, a user's tokens per second, and tokens per second of the replica.

        Exact: without noise, but with the configuration's quirk.
        """
        tokens = self.input_tokens + self.output_tokens
        rooms = self.cache_tokens(configuration) / tokens
        batch = max(1.0, min(load, configuration.integer("maxNumSeqs", 256) * configuration.integer(DP, 1), rooms))
        quirk = math.exp(self.quirk * self._random(configuration.hash).standard_normal())
        step, accepted = self._step(configuration, batch)
        step *= quirk
        prefill, chunk = self._prefill(configuration)
        life = self.output_tokens / accepted * step + batch * prefill
        waiting = max(0.0, load - batch) / batch * life
        first = prefill + step + waiting + 0.5 * prefill * min(batch, 8)
        return (
            first,
            life / self.output_tokens + 0.2 * chunk,
            self.output_tokens / life,
            batch * self.output_tokens / life,
        )

    def measure(self, configuration: Configuration, load: Load, objectives: Objectives, number: int = 0) -> Measurement:
        """Return the rung of trial `number` at a load, with noise; objectives say which percentiles are wanted."""
        start_noise = 2 * self.noise * self._random(configuration.hash, number).standard_normal()
        draws = (
            self._random(configuration.hash, number, f"{load.value:g}").standard_normal(4) * self.noise + start_noise
        )
        first, each, speed, total = self.curve(configuration, load.value)
        first, each = first * math.exp(draws[0]), each * math.exp(draws[1])
        speed, total = speed * math.exp(-draws[2]), total * math.exp(-draws[3])
        count = gpus_of(configuration)
        values = {
            THROUGHPUT: total,
            THROUGHPUT_PER_GPU: total / count,
            COST: cost_per_million(self.price, total / count),
        }
        wanted = {slo.percentile for slo in objectives.slos}
        for percentile in PERCENTILES.keys() | wanted:
            spread = PERCENTILES.get(percentile, (percentile - 50) / 30)
            values[key(TTFT, percentile)] = first * math.exp(0.2 * spread)
            values[key(ITL, percentile)] = each * math.exp(0.1 * spread)
            values[key(USER_SPEED, percentile)] = speed * math.exp(0.1 * spread)
        begin = EPOCH + timedelta(hours=number, seconds=load.value)
        n = max(1, int(total * RUNG_SECONDS / self.output_tokens))
        metrics = {name: Estimate(value, value * 0.97, value * 1.03, n) for name, value in values.items()}
        return Measurement(load, Window(begin, begin + timedelta(seconds=RUNG_SECONDS)), n, n, 0, metrics)

    def run(
        self,
        configuration: Configuration,
        levels: Sequence[float],
        objectives: Objectives,
        number: int,
        reason: str = "",
    ) -> TrialRecord:
        """Return the trial of one engine start and its ladder of concurrencies."""
        count = gpus_of(configuration)
        purpose: Purpose = "Baseline" if number == 0 else "Search"
        if self.cache_tokens(configuration) < self.input_tokens + self.output_tokens:
            failure = Failure("EngineOutOfMemory", "no memory is left for one request")
            spent = START_SECONDS * count / 2
            return TrialRecord(
                number, configuration, purpose, "Infeasible", count, failure=failure, gpu_seconds=spent, reason=reason
            )
        rungs: list[Measurement] = []
        while True:
            step = next_rung(levels, rungs, objectives)
            if isinstance(step, LadderDone):
                break
            rungs.append(self.measure(configuration, step.load, objectives, number))
        spent = count * (START_SECONDS + RUNG_SECONDS * len(rungs))
        outcome: Outcome = "Complete" if len(rungs) == len(levels) else "Pruned"
        return TrialRecord(
            number, configuration, purpose, outcome, count, tuple(rungs), None, spent, START_SECONDS, reason
        )

    def _step(self, configuration: Configuration, batch: float) -> tuple[float, float]:
        """Return the seconds of one decoding step and the tokens that it yields for each sequence."""
        shards = configuration.integer(TP, 1) * configuration.integer(PP, 1)
        ranks = configuration.integer(DP, 1)
        guesses = configuration.integer("numSpeculativeTokens")
        accepted = sum(self.acceptance**position for position in range(guesses + 1))
        bits = 8 if configuration.text("kvCacheDtype") == "fp8" else 16
        each = self.model.kv_bytes_per_token_per_gpu(configuration.integer(TP, 1), configuration.integer(PP, 1), bits)
        context = self.input_tokens + self.output_tokens / 2
        moved = weight_bytes_per_gpu(self.model, configuration) + batch / ranks * context * each
        memory = moved / (self.gpu.bandwidth_bytes_per_s * EFFICIENCY)
        work = 2 * self.model.active_parameters() * batch / ranks * (1 + guesses)
        flops = self.gpu.flops_8bit if self.model.weight_bits == 8 else self.gpu.flops_16bit  # noqa: PLR2004 - bits
        compute = work / (flops * EFFICIENCY * shards)
        talk = 0.0
        if configuration.integer(TP, 1) > 1:
            talk = 2 * self.model.layers * (8e-6 + batch * self.model.hidden * 2 / self.gpu.link_bytes_per_s)
        return max(memory, compute) + talk + 0.002 + 0.0003 * guesses, accepted

    def _prefill(self, configuration: Configuration) -> tuple[float, float]:
        """Return the seconds that one prompt takes and those of its largest chunk."""
        shards = gpus_of(configuration)
        cached = self.shared_prefix if configuration.flag("enablePrefixCaching", default=True) else 0.0
        tokens = self.input_tokens * (1 - cached)
        speed = self.gpu.flops_16bit * EFFICIENCY * shards**0.9 / (2 * self.model.active_parameters())
        budget = configuration.integer("maxNumBatchedTokens", 2048)
        chunks = math.ceil(tokens / budget)
        return tokens / speed + 0.001 * chunks, min(tokens, budget) / speed

    def _random(self, *names: object) -> np.random.Generator:
        words = [self.seed, *(int.from_bytes(str(name).encode()[:8], "big") for name in names)]
        return np.random.default_rng(np.random.SeedSequence(words))


def run_study(
    plant: Plant,
    space: SearchSpace,
    levels: Sequence[float],
    *,
    objectives: Objectives,
    target: Target,
    budget: Budget,
    seed: int,
    journal: Sequence[TrialRecord] = (),
    sampler: str = FRONTIER,
    stability: Stability | None = None,
    prior: PriorModel | None = None,
) -> tuple[tuple[TrialRecord, ...], Stop]:
    """Return the journal of a whole study on a plant, continued from `journal`, and why it ended."""
    records = list(journal)
    while True:
        answer = propose(
            space,
            records,
            objectives=objectives,
            target=target,
            budget=budget,
            spent_seconds=0.0,
            seed=seed,
            sampler=sampler,
            stability=stability,
            prior=prior,
            loads=[Load("Concurrency", level) for level in levels],
        )
        if isinstance(answer, Stop):
            return tuple(records), answer
        records.append(plant.run(answer.configuration, levels, objectives, len(records), answer.reason))
