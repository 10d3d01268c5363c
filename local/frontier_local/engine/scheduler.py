"""Token-level continuous batching: which sequences compute how many tokens in the next step.

Pure and deterministic. Each step first serves running sequences in the order of arrival, then admits waiting ones while
sequences, tokens and blocks last. When blocks run out, the latest running sequence loses its cache and waits in front,
to be computed anew. A sequence is always in exactly one of waiting, running or gone.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from frontier_local.engine.blocks import BlockPool
from frontier_local.engine.roofline import StepWork


@dataclass(frozen=True)
class Limits:
    """What bounds one replica.

    Attributes:
        max_num_seqs: Sequences that run at once.
        max_num_batched_tokens: Tokens computed in one step.
        blocks: KV-cache blocks.
        block_size: Tokens in one block.
        chunked_prefill: Whether a prompt may be computed in several steps.
        prefix_caching: Whether blocks of equal prefixes are shared.
        speculative_tokens: Drafted tokens per sequence and step.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    blocks: int
    block_size: int = 16
    chunked_prefill: bool = True
    prefix_caching: bool = True
    speculative_tokens: int = 0


@dataclass(eq=False, slots=True)
class RunningSequence:
    """One request on its way through a replica.

    Attributes:
        tokens: Prompt and generated tokens.
        prompt_tokens: How many of them are the prompt.
        max_tokens: Tokens after which it ends for its length.
        stop_after: Tokens after which the model would end by itself, or None for never.
        next_token: Yields the token at a position of the output.
        computed: Tokens whose keys and values are in the cache.
        cached_tokens: Prompt tokens found in the cache at the first admission, or None before it.
    """

    tokens: list[int]
    prompt_tokens: int
    max_tokens: int
    stop_after: int | None = None
    next_token: Callable[[int], int] = int
    computed: int = 0
    cached_tokens: int | None = None
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    remembered: int = 0
    preemptions: int = 0

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Share:
    """What one sequence computes in a step: `new` tokens, of which the last `drafts` are guesses."""

    sequence: RunningSequence
    new: int
    drafts: int


@dataclass(slots=True)
class Step:
    """One step.

    Attributes:
        shares: What each sequence computes.
        admitted: Sequences that start to run for the first time.
        preempted: Sequences that lost their cache to others.
    """

    shares: list[Share] = field(default_factory=list)
    admitted: list[RunningSequence] = field(default_factory=list)
    preempted: list[RunningSequence] = field(default_factory=list)

    def work(self) -> StepWork:
        """Return what has to be computed."""
        tokens = logits = context = pairs = 0
        for share in self.shares:
            done, new = share.sequence.computed, share.new
            tokens += new
            context += done + new
            pairs += new * (2 * done + new) // 2
            if done + new >= len(share.sequence.tokens):
                logits += 1 + share.drafts
        return StepWork(tokens, len(self.shares), logits, context, pairs)


@dataclass(frozen=True, slots=True)
class Output:
    """What one sequence got from a step.

    Attributes:
        tokens: The new tokens, at least one.
        drafts: Tokens that were guessed for it.
        accepted: Guesses that held.
        finish_reason: `stop` or `length` where the sequence has ended, else None.
    """

    sequence: RunningSequence
    tokens: list[int]
    drafts: int
    accepted: int
    finish_reason: str | None


class Scheduler:
    """The batch of one replica.

    Args:
        limits: What bounds it; the blocks must hold the longest sequence that is ever added.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.blocks)
        self.waiting: deque[RunningSequence] = deque()
        self.running: list[RunningSequence] = []

    @property
    def busy(self) -> bool:
        """Whether any sequence is waiting or running."""
        return bool(self.waiting or self.running)

    def add(self, sequence: RunningSequence) -> None:
        """Queue a sequence behind all others."""
        self.waiting.append(sequence)

    def abort(self, sequence: RunningSequence) -> None:
        """Remove a sequence wherever it is and free its blocks; one that is gone already is left alone."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._free(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def schedule(self) -> Step:
        """Choose and return the next step; blocks for it are taken. The step is empty only when nothing is queued."""
        step = Step()
        budget = self._continue_running(step, self.limits.max_num_batched_tokens)
        if not step.preempted:
            self._admit(step, budget)
        return step

    def complete(self, step: Step, accept: Callable[[int], int]) -> list[Output]:
        """Apply a computed step and return what came out, in the order of the shares.

        Args:
            step: What `schedule` returned. Sequences aborted since are skipped.
            accept: Yields how many of so many drafted tokens hold.
        """
        outputs = []
        alive = set(map(id, self.running))
        for share in step.shares:
            sequence = share.sequence
            if id(sequence) not in alive:
                continue
            whole = sequence.computed + share.new - share.drafts >= len(sequence.tokens)
            sequence.computed += share.new - share.drafts
            if whole:
                outputs.append(self._extend(sequence, share.drafts, accept))
            if self.limits.prefix_caching:
                self._remember(sequence)
        gone = {id(output.sequence) for output in outputs if output.finish_reason}
        if gone:
            for output in outputs:
                if output.finish_reason:
                    self._free(output.sequence)
            self.running = [sequence for sequence in self.running if id(sequence) not in gone]
        return outputs

    def _continue_running(self, step: Step, budget: int) -> int:
        position = 0
        while position < len(self.running) and budget > 0:
            sequence = self.running[position]
            share = self._share(sequence, budget)
            while not self._grow(sequence, sequence.computed + share.new):
                victim = self.running.pop()
                self._preempt(victim)
                step.preempted.append(victim)
                if victim is sequence:
                    return budget
            step.shares.append(share)
            budget -= share.new
            position += 1
        return budget

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            shared = self._cached_prefix(sequence)
            sequence.computed = len(shared) * self.limits.block_size
            share = self._share(sequence, budget)
            if not self.limits.chunked_prefill and share.new < len(sequence.tokens) - sequence.computed:
                break
            wanted = self._blocks_for(sequence.computed + share.new) - len(shared)
            if not self.pool.can_hold(shared, wanted):
                break
            self.pool.hold(shared)
            sequence.blocks = shared + self.pool.allocate(wanted)
            sequence.remembered = len(shared)
            self.waiting.popleft()
            self.running.append(sequence)
            if sequence.cached_tokens is None:
                sequence.cached_tokens = sequence.computed
                step.admitted.append(sequence)
            step.shares.append(share)
            budget -= share.new

    def _share(self, sequence: RunningSequence, budget: int) -> Share:
        missing = len(sequence.tokens) - sequence.computed
        if missing > 1 or not self.limits.speculative_tokens or not sequence.generated:
            return Share(sequence, min(missing, budget), 0)
        drafts = min(self.limits.speculative_tokens, sequence.max_tokens - sequence.generated - 1, budget - 1)
        return Share(sequence, 1 + drafts, drafts)

    def _extend(self, sequence: RunningSequence, drafts: int, accept: Callable[[int], int]) -> Output:
        accepted = accept(drafts) if drafts else 0
        end = sequence.max_tokens if sequence.stop_after is None else min(sequence.max_tokens, sequence.stop_after)
        number = min(1 + accepted, max(1, end - sequence.generated))
        first = sequence.generated
        tokens = [sequence.next_token(first + index) for index in range(number)]
        sequence.tokens += tokens
        # All but the newest token have gone through the layers; rejected guesses are overwritten by the next step.
        sequence.computed = len(sequence.tokens) - 1
        reason = None
        if sequence.generated >= sequence.max_tokens:
            reason = "length"
        elif sequence.stop_after is not None and sequence.generated >= sequence.stop_after:
            reason = "stop"
        return Output(sequence, tokens, drafts, accepted, reason)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _grow(self, sequence: RunningSequence, tokens: int) -> bool:
        wanted = self._blocks_for(tokens) - len(sequence.blocks)
        if wanted > self.pool.free:
            return False
        if wanted > 0:
            sequence.blocks += self.pool.allocate(wanted)
        return True

    def _preempt(self, victim: RunningSequence) -> None:
        self._free(victim)
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.appendleft(victim)

    def _free(self, sequence: RunningSequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.remembered = 0

    def _cached_prefix(self, sequence: RunningSequence) -> list[int]:
        """Return the blocks to share; the last token is always computed, for its logits are needed."""
        if not self.limits.prefix_caching:
            return []
        return self.pool.match(self._hashes(sequence, (len(sequence.tokens) - 1) // self.limits.block_size))

    def _remember(self, sequence: RunningSequence) -> None:
        full = min(sequence.computed // self.limits.block_size, len(sequence.blocks))
        if full > sequence.remembered:
            hashes = self._hashes(sequence, full)
            for index in range(sequence.remembered, full):
                self.pool.remember(sequence.blocks[index], hashes[index])
            sequence.remembered = full

    def _hashes(self, sequence: RunningSequence, number: int) -> Sequence[int]:
        """Return the hashes of the first so many blocks; each covers all tokens before it."""
        size, hashes = self.limits.block_size, sequence.hashes
        while len(hashes) < number:
            start = len(hashes) * size
            before = hashes[-1] if hashes else 0
            hashes.append(hash((before, *sequence.tokens[start : start + size])))
        return hashes[:number]
