"""What a benchmark asks for, and which points of a load curve hold it.

Tables have mean values, so the objectives of a benchmark bound means: an SLO is written without a percentile.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, get_args

import numpy as np

from frontier_tuner.bench.tables import Booleans
from frontier_tuner.durations import parse_duration
from frontier_tuner.errors import TunerError
from frontier_tuner.measurement import E2E, TTFT, USER_SPEED, cost_per_million
from frontier_tuner.objectives import SLO, Metric, Objectives, Policy, Target
from frontier_tuner.predict import Floats

MEAN = 50
"""The percentile under which the mean goes, as tables have nothing else."""
_SLO = re.compile(r"(\w+?)(/\d+)?\s*(<=|>=)\s*(\S+)")
_HINT = "write it like TTFT<=3000ms, ITL<=30ms, E2E<=20s or UserTokensPerSecond>=50"


class GoalError(TunerError):
    """A goal that cannot be: the message says what to write instead."""


class Curves(Protocol):
    """Points of load curves, as numbers or as arrays of one shape: a rung, a truth, a prediction."""

    @property
    def ttft(self) -> float | Floats:
        """Seconds to the first token."""
        ...

    @property
    def itl(self) -> float | Floats:
        """Seconds between tokens."""
        ...

    @property
    def user_speed(self) -> float | Floats:
        """Output tokens per second that one user sees."""
        ...

    @property
    def throughput(self) -> float | Floats:
        """Output tokens per second per GPU."""
        ...


@dataclass(frozen=True)
class Goal:
    """What must hold and what is best.

    Attributes:
        objectives: What must hold.
        target: What is best.
        output_tokens: Length of an answer, which turns a time between tokens into the end-to-end time.
        gpu_price: Money per GPU-hour, for a target cost.
    """

    objectives: Objectives
    target: Target
    output_tokens: int = 0
    gpu_price: float = 1.0

    def slacks(self, curves: Curves) -> list[tuple[str, Floats]]:
        """Return for each demand its name and how far the points hold it, relative to its bound: below 0 it is missed.

        Demands are the SLOs, and the target's own figure for `AtUserSpeed` and `AtCost`.
        """
        found = [(slo.name, self._slack(slo, curves)) for slo in self.objectives.slos]
        wanted, ceiling = self.target.user_tokens_per_second, self.target.max_cost
        if self.target.policy == "AtUserSpeed" and wanted:
            found.append(("target", np.asarray(curves.user_speed) / wanted - 1))
        if self.target.policy == "AtCost" and ceiling:
            found.append(("target", 1 - self.cost(curves) / ceiling))
        return found

    def feasible(self, curves: Curves) -> Booleans:
        """Return which points hold every demand; one that is not a number holds none."""
        return _all_hold(curves, [slack for _, slack in self.slacks(curves)])

    def responsive(self, curves: Curves) -> Booleans:
        """Return which points hold every SLO on the time to first token: those that make up the frontier.

        Bounds on speed do not count: they pick a point of the frontier and do not cut it.
        """
        return _all_hold(curves, [self._slack(slo, curves) for slo in self.objectives.slos if slo.metric == TTFT])

    def cost(self, curves: Curves) -> Floats:
        """Return the money per million output tokens of each point."""
        return np.asarray(cost_per_million(self.gpu_price, 1.0) / np.asarray(curves.throughput))

    def _slack(self, slo: SLO, curves: Curves) -> Floats:
        ttft, itl = np.asarray(curves.ttft, dtype=float), np.asarray(curves.itl, dtype=float)
        match slo.metric:
            case "TTFT":
                values = ttft
            case "ITL":
                values = itl
            case "E2E":
                values = np.asarray(ttft + itl * (self.output_tokens - 1))
            case "UserTokensPerSecond":
                values = np.asarray(curves.user_speed, dtype=float)
        relative = values / slo.bound
        return np.asarray(1 - relative if slo.maximum is not None else relative - 1)


def _all_hold(curves: Curves, slacks: Sequence[Floats]) -> Booleans:
    held: Booleans = np.isfinite(np.asarray(curves.throughput, dtype=float))
    for slack in slacks:
        held = np.logical_and(held, slack >= 0)
    return held


def parse_slo(text: str) -> SLO:
    """Return the SLO that a text such as `TTFT<=3000ms` or `UserTokensPerSecond>=50` stands for.

    Raises:
        GoalError: The text is something else; the message says what is allowed.
    """
    match = _SLO.fullmatch(text.strip())
    if match is None or match[1] not in get_args(Metric):
        raise GoalError(f"{text!r} is not an SLO on a mean; {_HINT}")
    if match[2]:
        raise GoalError(f"{text!r} names a percentile, but a table has only means; {_HINT}")
    metric, relation = cast("Metric", match[1]), match[3]
    if (relation == ">=") != (metric == USER_SPEED):
        raise GoalError(f"{text!r} bounds {metric} from the wrong side; {_HINT}")
    try:
        value = float(match[4]) if relation == ">=" else parse_duration(match[4])
    except ValueError as error:
        raise GoalError(f"the bound of {text!r} cannot be read: {error}; {_HINT}") from error
    if not 0 < value < float("inf"):
        raise GoalError(f"the bound of {text!r} must be above 0")
    if relation == ">=":
        return SLO(name=text, metric=metric, percentile=MEAN, minimum=value)
    return SLO(name=text, metric=metric, percentile=MEAN, maximum=value)


def make_goal(
    policy: str,
    slos: tuple[str, ...],
    *,
    output_tokens: int | None = None,
    user_tokens_per_second: float | None = None,
    max_cost: float | None = None,
    gpu_price: float = 1.0,
) -> Goal:
    """Return the goal that options describe.

    Raises:
        GoalError: A policy is unknown or lacks its figure, or an SLO cannot be read or lacks the answer's length.
    """
    if policy not in get_args(Policy):
        raise GoalError(f"policy {policy!r} is unknown; known are {', '.join(get_args(Policy))}")
    if policy == "AtUserSpeed" and not user_tokens_per_second:
        raise GoalError("policy AtUserSpeed needs --user-tokens-per-second")
    if policy == "AtCost" and not max_cost:
        raise GoalError("policy AtCost needs --max-cost")
    read = tuple(map(parse_slo, slos))
    if output_tokens is None and any(slo.metric == E2E for slo in read):
        raise GoalError("an SLO on E2E needs --output-tokens, the length of an answer")
    target = Target(cast("Policy", policy), user_tokens_per_second, max_cost)
    return Goal(Objectives(read), target, output_tokens or 0, gpu_price)
