"""What the requests look like: lengths, shared prefixes, sessions; every draw is a function of seed and position.

Lengths depend on the seed and the request's position only, so that every level of load sees the same sequence.
Prompts depend on the level as well, so that a rung never finds its prompts in the prefix cache that an earlier rung
on the same engine has filled.
"""

import csv
import math
import random
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier_tuner.durations import parse_duration

_Z95 = 1.6448536269514722
"""95th percentile of the standard normal distribution."""
MAX_P95_OF_MEAN = math.exp(_Z95**2 / 2)
"""No lognormal distribution has a 95th percentile that is more than this multiple of its mean, 3.87."""
TRACE_FORMAT = "AzureLLMInference"
"""The one format of traces that can be replayed."""
_TAIL = 2.0
"""Fitted lengths are clipped at this multiple of their p95: a tail without end would exceed any model's context."""
_RESERVED_IDS = 100
"""Low token ids are often special ones, which engines may refuse or treat on their own."""


@dataclass(frozen=True)
class Lengths:
    """A distribution of token counts, at least 1: fixed at `mean`, or lognormal with this mean and 95th percentile."""

    mean: float
    p95: float

    def __post_init__(self) -> None:
        if self.mean < 1:
            raise ValueError(f"mean {self.mean:g} must be at least 1 token")
        if self.p95 < self.mean:
            raise ValueError(f"p95 {self.p95:g} is below the mean {self.mean:g}; give a p95 at or above it")
        if self.p95 > self.mean * MAX_P95_OF_MEAN:
            raise ValueError(
                f"p95 {self.p95:g} is more than {MAX_P95_OF_MEAN:.2f} times the mean {self.mean:g}, "
                "which no lognormal distribution has; raise the mean or replay a trace",
            )

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm; 0 where the length is fixed."""
        return _Z95 - math.sqrt(max(0.0, _Z95**2 - 2 * math.log(self.p95 / self.mean)))

    def draw(self, generator: random.Random) -> int:
        """Return one length."""
        sigma = self.sigma
        if sigma == 0:
            return max(1, round(self.mean))
        length = generator.lognormvariate(math.log(self.mean) - sigma**2 / 2, sigma)
        return max(1, min(round(length), round(self.p95 * _TAIL)))


@dataclass(frozen=True)
class Request:
    """One request to send: the prompt as a JSON list of token ids, its length and the exact output length."""

    prompt: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Workload:
    """A reproducible, endless sequence of sessions of requests.

    Attributes:
        turns: Requests per session, at least 1.
        think_seconds: Pause between the answer to one turn and the next turn.
        shared_prefix_percent: Share of each prompt that earlier requests have shown the engine: the earlier turns of
            its session, or with one turn per session a prefix common to all sessions.
        inputs: Prompt lengths of a profile.
        outputs: Output lengths of a profile.
        trace: Pairs of prompt and output length to replay in order, over and over; used instead of the profile where
            not empty.
    """

    turns: int = 1
    think_seconds: float = 0.0
    shared_prefix_percent: int = 0
    inputs: Lengths = Lengths(256, 256)
    outputs: Lengths = Lengths(64, 64)
    trace: tuple[tuple[int, int], ...] = ()

    def lengths(self, seed: int, session: int, turn: int) -> tuple[int, int]:
        """Return prompt and output length of one request."""
        if self.trace:
            return self.trace[(session * self.turns + turn) % len(self.trace)]
        generator = random.Random(f"lengths:{seed}:{session}:{turn}")  # noqa: S311 - reproducible on purpose
        return self.inputs.draw(generator), self.outputs.draw(generator)


class Prompts:
    """Makes the requests of a workload for one seed and one level of load."""

    def __init__(self, workload: Workload, seed: int, level: str, vocabulary: int) -> None:
        if vocabulary <= 1:
            raise ValueError(f"vocabulary {vocabulary} must be at least 2")
        low = min(_RESERVED_IDS, vocabulary // 2)
        self._words = [str(low + number % (vocabulary - low)) for number in range(1 << 16)]
        self._workload = workload
        self._seed = seed
        self._level = level

    def request(self, session: int, turn: int) -> Request:
        """Return the request at this position; the same for the same seed and level in any process."""
        inputs, outputs = self._workload.lengths(self._seed, session, turn)
        shared = inputs * self._workload.shared_prefix_percent // 100
        stream = session if self._workload.turns > 1 else "all"
        words = self._tokens(f"shared:{self._seed}:{self._level}:{stream}", shared)
        words += self._tokens(f"fresh:{self._seed}:{self._level}:{session}:{turn}", inputs - shared)
        return Request(f"[{','.join(words)}]", inputs, outputs)

    def _tokens(self, key: str, count: int) -> list[str]:
        if count <= 0:
            return []
        generator = random.Random(key)  # noqa: S311 - reproducible on purpose
        return [self._words[number] for number in array("H", generator.randbytes(2 * count))]


def parse_workload(body: Mapping[str, Any]) -> Workload:
    """Return the workload that a resolved `workload` object describes; a trace file is read.

    Raises:
        ValueError: A field is missing or has a value that cannot be; the message names it.
    """
    if not isinstance(body, Mapping) or ("profile" in body) == ("trace" in body):
        raise ValueError("workload: give exactly one of profile and trace")
    if "trace" in body:
        return _parse_trace(_mapping(body["trace"], "workload.trace"))
    profile = _mapping(body["profile"], "workload.profile")
    session = _mapping(profile.get("session") or {}, "workload.profile.session")
    turns, percent = int(session.get("turns", 1)), int(session.get("sharedPrefixPercent", 0))
    if turns < 1:
        raise ValueError(f"workload.profile.session.turns: {turns} must be at least 1")
    if not 0 <= percent <= 100:  # noqa: PLR2004 - a percentage
        raise ValueError(f"workload.profile.session.sharedPrefixPercent: {percent} must lie between 0 and 100")
    return Workload(
        turns=turns,
        think_seconds=parse_duration(str(session.get("thinkTime", "0s"))),
        shared_prefix_percent=percent,
        inputs=_parse_lengths(profile, "inputTokens"),
        outputs=_parse_lengths(profile, "outputTokens"),
    )


def _mapping(body: object, name: str) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueError(f"{name}: must be an object")  # noqa: TRY004 - callers catch ValueErrors only
    return body


def _parse_lengths(profile: Mapping[str, Any], field: str) -> Lengths:
    body = profile.get(field)
    if not isinstance(body, Mapping) or "mean" not in body:
        raise ValueError(f"workload.profile.{field}.mean: required")
    try:
        mean = float(body["mean"])
        return Lengths(mean, float(body.get("p95") or mean))
    except (TypeError, ValueError) as error:
        raise ValueError(f"workload.profile.{field}: {error}") from error


def _parse_trace(body: Mapping[str, Any]) -> Workload:
    if body.get("format") != TRACE_FORMAT:
        raise ValueError(f"workload.trace.format: {body.get('format')!r} is not known; use {TRACE_FORMAT}")
    path = Path(str(body.get("path", "")))
    longest = (int(body.get("maxInputTokens") or 0), int(body.get("maxOutputTokens") or 0))
    try:
        with path.open(newline="") as file:
            rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise ValueError(
            f"workload.trace.path: {path} cannot be read as TIMESTAMP,ContextTokens,GeneratedTokens: {error!r}",
        ) from error
    if not rows:
        raise ValueError(f"workload.trace.path: {path} has no requests")
    return Workload(trace=tuple((_clip(row[0], longest[0]), _clip(row[1], longest[1])) for row in rows))


def _clip(tokens: int, longest: int) -> int:
    return max(1, min(tokens, longest) if longest else tokens)
