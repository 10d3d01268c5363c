"""What the requests look like: lengths, shared prefixes, sessions; every draw is a function of seed and position.

Lengths depend on the seed and the request's position only, so that every level of load sees the same sequence.
Prompts depend on the level as well, so that a rung never finds its prompts in the prefix cache that an earlier rung
on the same engine has filled.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from frontier_tuner.durations import parse_duration
from frontier_tuner.load.lengths import Fitted, Lengths, parse_lengths
from frontier_tuner.load.schedule import Arrivals, parse_arrivals
from frontier_tuner.load.sessions import BLOCK_TOKENS, Position, Sharing, draw_rising, solve_sharing
from frontier_tuner.load.tokens import Vocabulary
from frontier_tuner.load.traces import MOONCAKE_BLOCK_TOKENS, Trace, read_trace

_SESSIONS_REMEMBERED = 8192
"""Whose lengths are kept; those of others are drawn again."""
_NO_SHARING, _POISSON = Sharing(), Arrivals()
_CHAT_INPUTS, _CHAT_OUTPUTS = Fitted(256, 256), Fitted(64, 64)


@dataclass(frozen=True)
class Request:
    """One request to send.

    Attributes:
        prompt: A JSON list of token ids.
        input_tokens: Its length.
        output_tokens: The exact length of the answer.
        shared_tokens: Prompt tokens that earlier requests of the same run had in common with it: what a prefix cache
            that forgets nothing serves.
    """

    prompt: bytes
    input_tokens: int
    output_tokens: int
    shared_tokens: int = 0


@dataclass(frozen=True)
class Workload:
    """A reproducible, endless sequence of sessions of requests.

    Attributes:
        turns: Requests per session, at least 1.
        think_seconds: Pause between the answer to one turn and the next turn.
        sharing: What prompts have in common with earlier ones.
        inputs: Prompt lengths of a profile.
        outputs: Output lengths of a profile.
        arrivals: How the requests of an open loop are spread.
        trace: What to replay in order, over and over; used instead of the profile where there is one.
    """

    turns: int = 1
    think_seconds: float = 0.0
    sharing: Sharing = _NO_SHARING
    inputs: Lengths = _CHAT_INPUTS
    outputs: Lengths = _CHAT_OUTPUTS
    arrivals: Arrivals = _POISSON
    trace: Trace | None = None


@dataclass(frozen=True)
class _Turn:
    """One turn of a session.

    Attributes:
        inputs: Length of its prompt.
        outputs: Length of its answer.
        shared: Tokens with which its prompt begins like an earlier one.
        common: Whether that is what all sessions have in common, and not the session's own history.
    """

    inputs: int
    outputs: int
    shared: int
    common: bool


class Prompts:
    """Makes the requests of a workload for one seed and one level of load.

    Raises:
        ValueError: The vocabulary is below 2.
    """

    def __init__(self, workload: Workload, seed: int, level: str, vocabulary: int) -> None:
        self._workload = workload
        self._seed = seed
        self._name = f"{seed}:{level}"
        self._vocabulary = Vocabulary(vocabulary)
        self._session = lru_cache(_SESSIONS_REMEMBERED)(self._draw_session)

    def request(self, position: Position) -> Request:
        """Return the request at this position; the same for the same seed and level in any process."""
        if self._workload.trace is not None:
            return self._recorded(self._workload.trace, position.session)
        turns = self._session(position.session)
        turn = turns[position.turn]
        shared = turn.shared if turn.common or not position.unseen else self._common_tokens(turns, position.turn)
        pieces = reversed(list(self._pieces(position.session, turns, position.turn)))
        return Request(_json(pieces), turn.inputs, turn.outputs, shared)

    def _draw_session(self, session: int) -> tuple[_Turn, ...]:
        workload = self._workload
        generator = random.Random(f"lengths:{self._seed}:{session}")  # noqa: S311 - reproducible on purpose
        inputs = draw_rising(workload.inputs, workload.turns, generator)
        turns, previous = [], 0
        for length in inputs:
            shared, common = workload.sharing.tokens(length, previous, generator.random())
            turns.append(_Turn(length, workload.outputs.draw(generator), shared, common))
            previous = length
        return tuple(turns)

    def _pieces(self, session: int, turns: tuple[_Turn, ...], turn: int) -> Iterator[bytes]:
        """Yield the pieces of a prompt from its end: each was new in the turn that the session first said it in."""
        end = turns[turn].inputs
        for index in range(turn, -1, -1):
            shared, common = turns[index].shared, turns[index].common
            if shared < end:
                yield self._vocabulary.text(f"{self._name}:{session}:{index}", shared, end)
                end = shared
            if common:
                yield self._vocabulary.text(f"{self._name}:common", 0, end)
                return

    def _common_tokens(self, turns: tuple[_Turn, ...], turn: int) -> int:
        """Return with how many tokens that all sessions have in common a prompt begins."""
        end = turns[turn].inputs
        for index in range(turn, -1, -1):
            end = min(end, turns[index].shared)
            if turns[index].common:
                return end
        return 0

    def _recorded(self, trace: Trace, number: int) -> Request:
        passes, index = divmod(number, len(trace.requests))
        recorded = trace.requests[index]
        name, size, end = f"{self._name}:{passes}", trace.block_tokens, recorded.input_tokens
        pieces = [
            self._vocabulary.text(f"{name}:block:{block}", 0, min(size, end - place * size))
            for place, block in enumerate(recorded.blocks)
            if place * size < end
        ]
        named = min(end, len(recorded.blocks) * size)
        pieces.append(self._vocabulary.text(f"{name}:fresh:{index}", 0, end - named))
        return Request(_json(pieces), end, recorded.output_tokens, recorded.shared_tokens)


def _json(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    return b"[" + b"".join(pieces)[:-1] + b"]"


def parse_workload(body: Mapping[str, Any]) -> Workload:
    """Return the workload that a resolved `workload` object describes; a trace file is read.

    Raises:
        ValueError: A field is missing or has a value that cannot be; the message names it.
    """
    if not isinstance(body, Mapping) or ("profile" in body) == ("trace" in body):
        raise ValueError("workload: give exactly one of profile and trace")
    if "trace" in body:
        trace = _parse_trace(_mapping(body["trace"], "workload.trace"))
        return Workload(
            arrivals=parse_arrivals(body.get("arrivals"), default="Recorded", recorded=True),
            trace=trace,
        )
    profile = _mapping(body["profile"], "workload.profile")
    session = _mapping(profile.get("session") or {}, "workload.profile.session")
    turns, percent = int(session.get("turns", 1)), int(session.get("sharedPrefixPercent", 0))
    if turns < 1:
        raise ValueError(f"workload.profile.session.turns: {turns} must be at least 1")
    if not 0 <= percent <= 100:  # noqa: PLR2004 - a percentage
        raise ValueError(f"workload.profile.session.sharedPrefixPercent: {percent} must lie between 0 and 100")
    block_tokens = int(session.get("blockTokens") or BLOCK_TOKENS)
    if block_tokens < 1:
        raise ValueError(f"workload.profile.session.blockTokens: {block_tokens} must be at least 1")
    inputs = parse_lengths(profile.get("inputTokens"), "workload.profile.inputTokens")
    return Workload(
        turns=turns,
        think_seconds=parse_duration(str(session.get("thinkTime", "0s"))),
        sharing=solve_sharing(turns, inputs, percent, block_tokens),
        inputs=inputs,
        outputs=parse_lengths(profile.get("outputTokens"), "workload.profile.outputTokens"),
        arrivals=parse_arrivals(body.get("arrivals"), default="Poisson", recorded=False),
    )


def _mapping(body: object, name: str) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueError(f"{name}: must be an object")  # noqa: TRY004 - callers catch ValueErrors only
    return body


def _parse_trace(body: Mapping[str, Any]) -> Trace:
    try:
        return read_trace(
            Path(str(body.get("path", ""))),
            str(body.get("format", "AzureLLMInference")),
            max_input_tokens=_positive(body, "maxInputTokens"),
            max_output_tokens=_positive(body, "maxOutputTokens"),
            block_tokens=_positive(body, "blockTokens") or MOONCAKE_BLOCK_TOKENS,
        )
    except ValueError as error:
        raise ValueError(f"workload.trace.{error}") from error


def _positive(body: Mapping[str, Any], field_name: str) -> int | None:
    value = body.get(field_name)
    if value is None:
        return None
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{field_name}: {value!r} must be a whole number of at least 1")
    return value


def declared_hit_percent(workload: Mapping[str, Any]) -> float | None:
    """Return the share of the prompt tokens that a workload repeats, in percent; None where a trace does not say."""
    if "profile" not in workload:
        return None
    session = workload["profile"].get("session") or {}
    return float(session.get("sharedPrefixPercent", 0))
