"""One replica at work: the scheduler, the roofline and the clock, token by token.

A step is scheduled, its simulated time is awaited, and only then its tokens appear. Steps end at absolute deadlines:
the next starts where the last should have ended, so rounding of timers never adds up.
"""

import asyncio
import random
from dataclasses import dataclass, field
from time import monotonic

from frontier_local.engine.metrics import ReplicaMetrics
from frontier_local.engine.plan import EnginePlan
from frontier_local.engine.roofline import step_seconds
from frontier_local.engine.scheduler import Output, RunningSequence, Scheduler, Step
from frontier_local.engine.text import Utterance

FORGIVEN_LAG_SECONDS = 0.05
"""Lag beyond this is not caught up by faster steps: those would be shorter than the hardware allows."""


@dataclass(eq=False, slots=True)
class Answer:
    """A request's way through a replica, and the tokens that its reader has not taken yet.

    Attributes:
        sequence: What the scheduler sees.
        utterance: What is said.
        arrived: When the server received it, on the monotonic clock, like all times here.
        generated: Tokens produced so far.
        finish_reason: Why it ended, or None while it goes on.
    """

    sequence: RunningSequence
    utterance: Utterance
    arrived: float
    queued: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    generated: int = 0
    finish_reason: str | None = None
    taken: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self, tokens: int, finish_reason: str | None) -> None:
        """Add produced tokens and wake the reader."""
        self.generated += tokens
        self.finish_reason = finish_reason
        self._changed.set()

    async def take(self) -> int:
        """Wait for tokens and return how many there are that were not taken before, at least one."""
        while self.taken == self.generated:
            self._changed.clear()
            await self._changed.wait()
        new = self.generated - self.taken
        self.taken = self.generated
        return new


class Replica:
    """A scheduler with a clock.

    Args:
        plan: What was started.
        time_scale: Simulated seconds per wall-clock second.
        noise_percent: Standard deviation of the multiplicative noise per start and per step.
        acceptance: Chance that a drafted token is accepted, given that those before it were.
        seed: Seed of noise and acceptance.

    Attributes:
        idle: Set while no request is waiting or running.
        hung: Whether no step is taken any more.
        slowness: How many times as long as it should a step takes.
    """

    def __init__(
        self, plan: EnginePlan, *, time_scale: float, noise_percent: float, acceptance: float, seed: str
    ) -> None:
        self.scheduler = Scheduler(plan.limits)
        self.metrics = ReplicaMetrics(plan.max_model_len, plan.limits.speculative_tokens)
        self.hung = False
        self.slowness = 1.0
        self._plan = plan
        self._random = random.Random(seed)  # noqa: S311 - noise is no secret
        self._noise = noise_percent / 100
        self._pace = self._random.lognormvariate(0, self._noise) / time_scale
        self._acceptance = acceptance
        self._answers: dict[int, Answer] = {}
        self._work = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def submit(self, answer: Answer) -> None:
        """Queue a request."""
        answer.queued = monotonic()
        self._answers[id(answer.sequence)] = answer
        self.scheduler.add(answer.sequence)
        self._work.set()
        self.idle.clear()

    def abort(self, answer: Answer) -> None:
        """Drop a request whose client has gone; one that has finished is left alone."""
        if id(answer.sequence) in self._answers:
            self.scheduler.abort(answer.sequence)
            self.metrics.finished["abort"] += 1
            self._forget(answer)

    async def run(self) -> None:
        """Step for ever, while there is work."""
        deadline = 0.0
        while True:
            if self.hung or not self.scheduler.busy:
                self._work.clear()
                await self._work.wait()
                continue
            started = monotonic()
            lag = started - deadline
            if lag > FORGIVEN_LAG_SECONDS:
                deadline = started
            step = self.scheduler.schedule()
            self._note_admissions(step, started)
            seconds = step_seconds(self._plan.shape, step.work()) * self.slowness
            deadline += seconds * self._pace * self._random.lognormvariate(0, self._noise)
            # Also where the deadline has passed, the readers must get their turn.
            await asyncio.sleep(max(0.0, deadline - monotonic()))
            self._finish_step(step)
            if not self.scheduler.busy:
                deadline = 0.0
            elif (late := monotonic() - deadline) > FORGIVEN_LAG_SECONDS:
                self.metrics.counters["frontier_sim:lag_seconds"] += late

    def _note_admissions(self, step: Step, now: float) -> None:
        self.metrics.count("num_preemptions", len(step.preempted))
        for sequence in step.admitted:
            self._answers[id(sequence)].scheduled = now
            if self._plan.limits.prefix_caching:
                self.metrics.count("prefix_cache_queries", sequence.prompt_tokens)
                self.metrics.count("prefix_cache_hits", sequence.cached_tokens or 0)

    def _finish_step(self, step: Step) -> None:
        outputs = self.scheduler.complete(step, self._accepted)
        now = monotonic()
        prompt_tokens = generated = 0
        gaps = self.metrics.histograms["vllm:inter_token_latency_seconds"]
        for output in outputs:
            answer = self._answers[id(output.sequence)]
            generated += len(output.tokens)
            if answer.generated:
                gaps.observe(now - answer.last_token)
            else:
                prompt_tokens += output.sequence.prompt_tokens
                answer.first_token = now
                self.metrics.observe("time_to_first_token_seconds", now - answer.arrived)
            answer.last_token = now
            if output.drafts:
                self.metrics.count_drafts(output.drafts, output.accepted)
            answer.advance(len(output.tokens), output.finish_reason)
            if output.finish_reason:
                self._note_finish(answer, output, now)
        self.metrics.count("prompt_tokens", prompt_tokens)
        self.metrics.count("generation_tokens", generated)
        self.metrics.observe("iteration_tokens_total", sum(share.new for share in step.shares))

    def _forget(self, answer: Answer) -> None:
        del self._answers[id(answer.sequence)]
        if not self._answers:
            self.idle.set()

    def _note_finish(self, answer: Answer, output: Output, now: float) -> None:
        self._forget(answer)
        metrics, generated = self.metrics, answer.generated
        metrics.finished[str(output.finish_reason)] += 1
        decode = answer.last_token - answer.first_token
        metrics.observe("e2e_request_latency_seconds", now - answer.arrived)
        metrics.observe("request_queue_time_seconds", answer.scheduled - answer.queued)
        metrics.observe("request_prefill_time_seconds", answer.first_token - answer.scheduled)
        metrics.observe("request_decode_time_seconds", decode)
        metrics.observe("request_inference_time_seconds", answer.last_token - answer.scheduled)
        metrics.observe("request_time_per_output_token_seconds", decode / (generated - 1) if generated > 1 else 0.0)
        metrics.observe("request_prompt_tokens", output.sequence.prompt_tokens)
        metrics.observe("request_generation_tokens", generated)
        metrics.observe("request_params_max_tokens", output.sequence.max_tokens)

    def _accepted(self, drafts: int) -> int:
        accepted = 0
        while accepted < drafts and self._random.random() < self._acceptance:
            accepted += 1
        return accepted
