"""Where the frontier is jagged: neighbours between which a metric jumps, as they were measured.

Two configurations are neighbours when one step of one knob is between them, two rungs when no measured load is. A jump
counts when it is beyond noise and by at least a factor. More load by itself may slow users and lengthen waiting by
the ratio of the loads, and never lowers throughput; between rungs only what goes beyond that counts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

from frontier_tuner.axes import SPEED, THROUGHPUT
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point, points, with_unit
from frontier_tuner.measurement import LATENCIES, Load
from frontier_tuner.neighbours import Orders, knob_between, orders
from frontier_tuner.noise import ASSUMED, Noise, ratio
from frontier_tuner.objectives import Objectives
from frontier_tuner.space import SearchSpace
from frontier_tuner.trial import Failure, TrialRecord

JUMP = 1.2
"""From this factor on a jump is a cliff."""


@dataclass(frozen=True)
class Cliff:
    """A jump between two neighbours.

    Attributes:
        kind: `Configuration` between two configurations at one load, `Load` between two loads of one configuration.
        knob: The parameter between them; empty between loads.
        better: The side that is better on the metric.
        worse: The other side; None where its engine cannot serve at all.
        worse_configuration: The other side's configuration.
        key: The metric that jumps; empty where the engine cannot serve.
        factor: By how many times the worse side is worse, beyond what load explains; infinite where it cannot serve.
        failure: Why it cannot serve.
    """

    kind: Literal["Configuration", "Load"]
    knob: str
    better: Point
    worse: Point | None
    worse_configuration: Configuration
    key: str
    factor: float
    failure: Failure | None = None

    @property
    def message(self) -> str:
        """The sentence a user reads."""
        if self.kind == "Load" and self.worse is not None:
            where = f"{self.better.configuration} from {self.better.load} to {self.worse.load}"
        else:
            sides = (self.better.configuration, self.worse_configuration)
            values = [str(side.get(self.knob, "none")) for side in sides]
            where = f"{self.knob} {values[0]} to {values[1]} at {self.better.load}, from {self.better.configuration}"
        if self.worse is None:
            why = f": {self.failure.reason}: {self.failure.message}" if self.failure is not None else ""
            return f"{where}: the engine cannot serve{why}"
        then, now = (with_unit(self.key, side.metrics[self.key].value) for side in (self.better, self.worse))
        explained = " than the load explains" if self.kind == "Load" else ""
        return f"{where}: {self.key} goes from {then} to {now}, {self.factor:.2g} times worse{explained}"


def find_cliffs(
    journal: Sequence[TrialRecord],
    objectives: Objectives,
    *,
    space: SearchSpace | None = None,
    noise: Noise = ASSUMED,
    jump: float = JUMP,
) -> tuple[Cliff, ...]:
    """Return the cliffs of a journal, the steepest first; for each pair and direction the metric that jumps most.

    Args:
        journal: Finished trials.
        objectives: The metrics that they bound are looked at beside speed and throughput.
        space: Gives the order of each knob's values; without it the values that occur do.
        noise: Between engine starts.
        jump: The smallest factor that counts.
    """
    known = points(journal, objectives)
    curves: dict[Configuration, dict[Load, Point]] = {}
    for point in known:
        curves.setdefault(point.configuration, {})[point.load] = point
    keys = tuple(dict.fromkeys((SPEED.key, THROUGHPUT.key, *(slo.key for slo in objectives.slos))))
    order = orders((record.configuration for record in journal), space)
    found = [*_between_loads(curves.values(), keys, noise)]
    for one, other in combinations(sorted(curves, key=lambda each: each.hash), 2):
        knob = knob_between(one, other, order)
        if knob is not None:
            found += _between_curves(knob, curves[one], curves[other], keys, noise)
    steep = [cliff for cliff in found if cliff.factor >= jump]
    steep += _edges(journal, curves, order)
    return tuple(sorted(steep, key=_steepest))


def beside(point: Point, cliffs: Iterable[Cliff]) -> tuple[Cliff, ...]:
    """Return the cliffs that lie beside a point: one step away something falls, in the order given."""
    return tuple(
        cliff
        for cliff in cliffs
        if cliff.better.configuration == point.configuration
        and (cliff.kind == "Configuration" or cliff.better.load == point.load)
    )


def _steepest(cliff: Cliff) -> tuple[float, int, Load, str, str]:
    return -cliff.factor, cliff.better.trial, cliff.better.load, cliff.worse_configuration.hash, cliff.key


def _worse(better: Point, worse: Point, key: str, noise: Noise, allowed: float) -> float:
    """Return by how many times a point is worse on a metric beyond what is allowed; 1 where it is not beyond noise."""
    if key not in better.metrics or key not in worse.metrics:
        return 1.0
    pair = (better.metrics[key], worse.metrics[key])
    if key.partition("/")[0] in LATENCIES:
        pair = (pair[1], pair[0])
    found = ratio(*pair, noise, same_start=better.trial == worse.trial)
    return found.value / allowed if found.low > allowed else 1.0


def _between_loads(curves: Iterable[dict[Load, Point]], keys: Sequence[str], noise: Noise) -> list[Cliff]:
    found = []
    for curve in curves:
        for less, more in pairwise(sorted(curve)):
            if less.kind != more.kind:
                continue
            step = more.value / less.value
            jumps = [
                (_worse(curve[less], curve[more], key, noise, 1.0 if key == THROUGHPUT.key else step), key)
                for key in keys
            ]
            factor, key = max(jumps)
            found.append(Cliff("Load", "", curve[less], curve[more], curve[more].configuration, key, factor))
    return found


def _between_curves(
    knob: str, one: dict[Load, Point], other: dict[Load, Point], keys: Sequence[str], noise: Noise
) -> list[Cliff]:
    found = []
    shared = sorted(set(one) & set(other))
    for better, worse in ((one, other), (other, one)):
        jumps = [(_worse(better[load], worse[load], key, noise, 1.0), load, key) for load in shared for key in keys]
        if jumps:
            factor, load, key = max(jumps, key=lambda each: each[0])
            cliff = Cliff("Configuration", knob, better[load], worse[load], worse[load].configuration, key, factor)
            found.append(cliff)
    return found


def _edges(
    journal: Sequence[TrialRecord], curves: dict[Configuration, dict[Load, Point]], order: Orders
) -> list[Cliff]:
    """Return the steps from a configuration that holds everything to one whose engine cannot serve."""
    latest: dict[Configuration, TrialRecord] = {}
    for record in sorted(journal, key=lambda record: record.number):
        if record.outcome != "Failed":
            latest[record.configuration] = record
    dead = [record for record in latest.values() if record.outcome == "Infeasible"]
    found = []
    for configuration, curve in curves.items():
        alive = [point for point in curve.values() if point.feasible]
        if not alive:
            continue
        highest = max(alive, key=lambda point: point.throughput)
        for record in dead:
            knob = knob_between(configuration, record.configuration, order)
            if knob is not None:
                gone = record.configuration
                found.append(Cliff("Configuration", knob, highest, None, gone, "", math.inf, record.failure))
    return found
