"""Sessions of several turns: what each turn's prompt shares with what the engine has seen, and whose turn is next.

The prompts of one session grow: its lengths are drawn like those of any request and sorted, so that over all requests
they keep the distribution that was asked for. A turn's prompt begins like the session's prompt before it, as a
conversation does. How far, and how much all sessions have in common, is solved for the share of prompt tokens that a
prefix cache is to serve; the answers are not fed back.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from frontier_tuner.load.lengths import Lengths

BLOCK_TOKENS = 16
"""Tokens of one block of a prefix cache where nothing else is said: a common size, and a divisor of the others."""
_SAMPLE_REQUESTS = 4000
_SAMPLE_SEED = "sharing"
_BISECTIONS = 40


@dataclass(frozen=True)
class Sharing:
    """What prompts share, so that a cache that forgets nothing serves the share that was asked for.

    Attributes:
        history: Part of the session's previous prompt with which a prompt begins, 0 to 1.
        common: Part of a prompt that is the same in all sessions, 0 to 1; used where it is the longer one.
        block_tokens: Shares are multiples of this, because caches work in whole blocks.
    """

    history: float = 0.0
    common: float = 0.0
    block_tokens: int = BLOCK_TOKENS

    def tokens(self, length: int, previous: int, chance: float) -> tuple[int, bool]:
        """Return how many tokens a prompt shares, and whether with all sessions rather than with its own.

        Args:
            length: Of the prompt.
            previous: Length of the session's previous prompt, 0 in its first turn.
            chance: Uniform in [0, 1): a wanted fraction of a block is the chance of a whole one, so that the share is
                met on average.
        """
        own, common = self.history * previous, self.common * length
        # The last token is always computed: its logits are needed.
        most = length - 1 if common > own else min(length - 1, previous)
        wanted = max(own, common) + chance * self.block_tokens
        return min(self._whole_blocks(wanted), self._whole_blocks(most)), common > own

    def _whole_blocks(self, tokens: float) -> int:
        return int(tokens // self.block_tokens) * self.block_tokens


def solve_sharing(turns: int, inputs: Lengths, percent: int, block_tokens: int = BLOCK_TOKENS) -> Sharing:
    """Return the sharing at which this percentage of prompt tokens has been seen before, first turns included.

    The session's own history is used first. Only where even all of it is too little, prompts also have a beginning in
    common with other sessions. Solved on a fixed sample of sessions.
    """
    if percent == 0:
        return Sharing(block_tokens=block_tokens)
    wanted = percent / 100
    generator = random.Random(_SAMPLE_SEED)  # noqa: S311 - reproducible on purpose
    sample = [
        [(length, generator.random()) for length in draw_rising(inputs, turns, generator)]
        for _ in range(max(50, _SAMPLE_REQUESTS // turns))
    ]
    low, high = Sharing(block_tokens=block_tokens), Sharing(history=1.0, block_tokens=block_tokens)
    if _share(high, sample) < wanted:
        low, high = high, replace(high, common=1.0)
    for _ in range(_BISECTIONS):
        history, common = (low.history + high.history) / 2, (low.common + high.common) / 2
        middle = Sharing(history, common, block_tokens)
        low, high = (middle, high) if _share(middle, sample) < wanted else (low, middle)
    return high


def _share(sharing: Sharing, sample: Sequence[Sequence[tuple[int, float]]]) -> float:
    shared = total = 0
    for session in sample:
        previous = 0
        for length, chance in session:
            shared += sharing.tokens(length, previous, chance)[0]
            total += length
            previous = length
    return shared / total


def draw_rising(lengths: Lengths, turns: int, generator: random.Random) -> list[int]:
    """Return the prompt lengths of one session, ascending."""
    return sorted(lengths.draw(generator) for _ in range(turns))


@dataclass(frozen=True)
class Position:
    """Which request of a workload.

    Attributes:
        session: Number of the session, from 0.
        turn: Number of the turn in it, from 0.
        unseen: The engine has not seen the turn before this one, although there is one.
    """

    session: int
    turn: int = 0
    unseen: bool = False


class SessionQueue:
    """Hands out turns: of the session that has waited longest after its think time, or of a new one where none waits.

    So a level of load is held exactly, whatever the answers take, and there are as many sessions as that needs. Before
    the first session comes back, sessions begin at a random turn: a load that starts with first turns only would need
    whole sessions to settle.

    Args:
        turns: Turns of each session.
        think_seconds: From a turn's answer until the session is ready for its next.
        seed: Of the turns at which the first sessions begin.
    """

    def __init__(self, turns: int, think_seconds: float, seed: str) -> None:
        self._turns = turns
        self._think_seconds = think_seconds
        self._random = random.Random(f"sessions:{seed}")  # noqa: S311 - reproducible on purpose
        self._ready: list[tuple[float, int, Position]] = []
        self._order = count()
        self._next_session = count()
        self._settled = turns == 1

    def take(self, now: float) -> Position:
        """Return the request to send at a time, in seconds of the same clock as `answered`."""
        if self._ready and self._ready[0][0] <= now:
            self._settled = True
            return heapq.heappop(self._ready)[2]
        turn = 0 if self._settled else self._random.randrange(self._turns)
        return Position(next(self._next_session), turn, unseen=turn > 0)

    def answered(self, position: Position, now: float) -> None:
        """Take note that a turn was answered completely; a session whose turn is never answered has ended."""
        if position.turn + 1 < self._turns:
            ready = now + self._think_seconds
            heapq.heappush(self._ready, (ready, next(self._order), Position(position.session, position.turn + 1)))
