"""Distrust a winner: the best of many noisy measurements was partly lucky, so it is measured again before it serves.

The finalists and their measured neighbours are started again, interleaved, so that a drift of the surroundings falls
on all alike. The choice is made among the second measurements alone, and so is the estimate of what it is worth: the
first one led to the choice, and would be too good on average.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier_tuner.axes import PLANE
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point, make_point, points
from frontier_tuner.ladder import LadderDone, next_rung
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.neighbours import knob_between, orders
from frontier_tuner.noise import ASSUMED, Noise, Ratio, pooled, ratio
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.policies import misses, rank, traded
from frontier_tuner.selection import Selection, select
from frontier_tuner.space import SearchSpace
from frontier_tuner.trial import TrialRecord
from frontier_tuner.unlocks import figures

MAX_STARTS = 6
"""Confirming starts of one stop of the search at most: a ranking that turns with every measurement must end as well."""
TRIES = 2
"""So many confirmations of one configuration may fail in a row for a reason of their surroundings."""


@dataclass(frozen=True)
class Rerun:
    """Start this configuration again.

    Attributes:
        configuration: What to start.
        loads: The rungs to climb, ascending: the one that matters with the measured ones beside it.
        round: Which repeat it belongs to, from 1.
        reason: Why.
    """

    configuration: Configuration
    loads: tuple[Load, ...]
    round: int
    reason: str


@dataclass(frozen=True)
class Confirmed:
    """What the second measurements say.

    Attributes:
        selection: The choice among them, with its explanation; its point carries the pooled estimates of all repeats,
            whose intervals hold the noise between starts.
        repeats: Starts behind the chosen point; 0 without a choice.
        optimism: How many times better the first measurement of the chosen point looked than the second, by what the
            policy wants; None where there is no first one, no choice, or the policy is the knee.
        refuted: Finalists that do not hold the objectives any more, by their second measurement.
    """

    selection: Selection
    repeats: int
    optimism: Ratio | None
    refuted: tuple[Point, ...]

    def sentences(self) -> tuple[str, ...]:
        """Return what a reader should know of the second measurements beside the choice."""
        found = []
        if self.selection.point is not None:
            found.append(f"chosen by {self.repeats} second measurement" + "s" * (self.repeats > 1))
        if self.optimism is not None:
            found.append(f"the first measurement looked {self.optimism} times as good")
        return (*found, *(f"{figures(point)} did not hold a second time" for point in self.refuted))


@dataclass(frozen=True)
class Choice:
    """The point to serve.

    Attributes:
        selection: The choice with its explanation.
        confirmed: The second measurements that it is made by; None where it is made by everything known, since the
            best was measured only once.
    """

    selection: Selection
    confirmed: Confirmed | None = None

    @property
    def message(self) -> str:
        """The sentence a user reads."""
        return "; ".join([self.selection.message, *(self.confirmed.sentences() if self.confirmed is not None else ())])


def choose(
    journal: Sequence[TrialRecord],
    objectives: Objectives,
    target: Target,
    *,
    noise: Noise = ASSUMED,
    max_starts: int = MAX_STARTS,
) -> Choice:
    """Return the point to serve: by the second measurements, once the best by all that is known has one.

    Until then, and for a target that was edited after the study, it is the best by everything known.

    Args:
        journal: Finished trials.
        objectives: What must hold.
        target: Which point is wanted.
        noise: Between engine starts.
        max_starts: As for `finalist_plan`; once they are used up the second measurements decide in any case.
    """
    again = confirmed(journal, objectives, target, noise=noise)
    missing = finalist_plan(journal, objectives, target, count=1, neighbours=0, max_starts=max_starts)
    if again.selection.point is None or missing:
        return Choice(select(points(journal, objectives), objectives, target, noise=noise))
    return Choice(again.selection, again)


def finalists(
    points: Sequence[Point], objectives: Objectives, target: Target, count: int
) -> tuple[tuple[Configuration, Load], ...]:
    """Return the points to measure again before one is served: distinct configurations, best by the target first."""
    return tuple((point.configuration, point.load) for point in _leaders(points, objectives, target, count))


def finalist_plan(
    journal: Sequence[TrialRecord],
    objectives: Objectives,
    target: Target,
    *,
    space: SearchSpace | None = None,
    count: int = 2,
    repeats: int = 1,
    incumbent: Configuration | None = None,
    neighbours: int | None = None,
    max_starts: int = MAX_STARTS,
) -> tuple[Rerun, ...]:
    """Return the starts that are still missing to confirm the best points, in the order to run them.

    First the best `count` configurations, then the incumbent, then the neighbours of the best one that were measured,
    those that serve the target best first. With several repeats the rounds follow each other: A B C A B C. What was
    confirmed at its load already is left out. Where the finalists fall, whatever then leads is confirmed as well, so
    the plan is empty once the best by all that is known were measured again, or the starts are used up.

    Args:
        journal: Finished trials, confirmations included.
        objectives: What must hold.
        target: Which points are wanted.
        space: Says which configurations are neighbours; without it the values that occur do.
        count: Configurations to confirm.
        repeats: Starts of each.
        incumbent: The configuration that serves, to be compared with; only where it was measured.
        neighbours: Neighbours of the best one at most; None for all that were measured.
        max_starts: Confirming starts since the search's last trial at most, those already made and failed ones
            included; whole rounds of fewer configurations are preferred to many configurations once.
    """
    known = points(journal, objectives)
    leaders = _leaders(known, objectives, target, count)
    if not leaders:
        return ()
    wanted = [(point, "finalist") for point in leaders]
    wanted += [(point, "incumbent") for point in _of(known, incumbent, leaders[0].load)]
    ahead = {point.configuration for point, _ in wanted}
    near: dict[Configuration, Point] = {}
    for point in _neighbours(leaders[0], known, objectives, target, space):
        if point.configuration not in ahead:
            near.setdefault(point.configuration, point)
    wanted += [(point, "neighbour") for point in list(near.values())[:neighbours]]
    unique: dict[Configuration, tuple[Point, str]] = {}
    for point, role in wanted:
        unique.setdefault(point.configuration, (point, role))
    chosen = list(unique.values())[: max(1, max_starts // max(1, repeats))]
    again = [record for record in journal if record.purpose == "Confirmation"]
    given_up = _given_up(again)
    plan = []
    for turn in range(1, repeats + 1):
        for point, role in chosen:
            made = sum(_confirms(record, point, objectives) for record in again)
            if made < turn and point.configuration not in given_up:
                reason = f"{role} at {point.load}, measured again on a fresh engine (round {turn} of {repeats})"
                plan.append(Rerun(point.configuration, _beside(point, known), turn, reason))
    last = max((record.number for record in journal if record.purpose in ("Baseline", "Search")), default=-1)
    begun = sum(record.number > last for record in again)
    return tuple(plan[: max(0, max_starts - begun)])


def confirmed(
    journal: Sequence[TrialRecord], objectives: Objectives, target: Target, *, noise: Noise = ASSUMED
) -> Confirmed:
    """Return the choice by the confirming measurements alone; without any there is no choice.

    Repeats of a configuration at a load are pooled to their geometric mean. Nothing measured before counts, neither for
    the choice nor for its estimate. A configuration whose latest confirmation died has no points.

    Args:
        journal: Finished trials.
        objectives: What must hold.
        target: Which point is wanted.
        noise: Between engine starts; it is part of the intervals of the pooled estimates.
    """
    again = [record for record in journal if record.purpose == "Confirmation"]
    before = [record for record in journal if record.purpose != "Confirmation"]
    second = _pooled_points(again, objectives, noise)
    candidates = [point for point, _ in second]
    # The pooled intervals hold the noise between starts already.
    selection = select(candidates, objectives, target, noise=Noise(0.0))
    first = {(point.configuration, point.load): point for point in points(before, objectives)}
    chosen = selection.point
    repeats = next((starts for point, starts in second if point is chosen), 0)
    optimism = None
    if chosen is not None:
        optimism = _optimism(first.get((chosen.configuration, chosen.load)), chosen, candidates, target, noise)
    refuted = [
        point
        for point in candidates
        if misses(point, objectives, target)
        and (point.configuration, point.load) in first
        and not misses(first[point.configuration, point.load], objectives, target)
    ]
    return Confirmed(selection, repeats, optimism, tuple(refuted))


def _leaders(points: Sequence[Point], objectives: Objectives, target: Target, count: int) -> list[Point]:
    left = list(points)
    chosen: list[Point] = []
    while len(chosen) < count:
        best = select(left, objectives, target).point
        if best is None:
            break
        chosen.append(best)
        left = [point for point in left if point.configuration != best.configuration]
    return chosen


def _of(known: Sequence[Point], configuration: Configuration | None, load: Load) -> list[Point]:
    """Return the point of a configuration at a load, or at the nearest that it was measured at."""
    own = [point for point in known if point.configuration == configuration]
    return [min(own, key=lambda point: (abs(point.load.value - load.value), point.load))] if own else []


def _neighbours(
    leader: Point, known: Sequence[Point], objectives: Objectives, target: Target, space: SearchSpace | None
) -> list[Point]:
    """Return one point for each measured neighbour of the leader: those that hold everything first, best first."""
    order = orders((point.configuration for point in known), space)
    near = [point for point in known if knob_between(leader.configuration, point.configuration, order) is not None]
    fit = [point for point in near if not misses(point, objectives, target)]
    held = {id(point) for point in fit}
    rest = [point for point in near if id(point) not in held and point.load == leader.load]
    return [*rank(fit, target), *sorted(rest, key=lambda point: (point.trial, point.configuration.hash))]


def _beside(point: Point, known: Sequence[Point]) -> tuple[Load, ...]:
    loads = sorted({each.load for each in known if each.configuration == point.configuration})
    at = loads.index(point.load)
    return tuple(loads[max(0, at - 1) : at + 2])


def _confirms(record: TrialRecord, point: Point, objectives: Objectives) -> bool:
    """Return whether a confirming trial has measured a point again, or ended below it because no more was to be had."""
    if record.configuration != point.configuration or record.outcome == "Failed":
        return False
    measured = {measurement.load for measurement in record.measurements}
    # Real traffic is never at the same level twice.
    if record.outcome == "Infeasible" or record.beside is not None or point.load in measured:
        return True
    highest = max((measurement.load.value for measurement in record.measurements), default=math.inf)
    step = next_rung([point.load.value], record.measurements, objectives, kind=point.load.kind)
    return highest < point.load.value and isinstance(step, LadderDone)


def _given_up(confirmations: Sequence[TrialRecord]) -> set[Configuration]:
    """Return the configurations that died when they were confirmed, or whose surroundings failed too often in a row."""
    failed: Counter[Configuration] = Counter()
    given_up = set()
    for record in sorted(confirmations, key=lambda record: record.number):
        failed[record.configuration] = failed[record.configuration] + 1 if record.outcome == "Failed" else 0
        if record.outcome == "Infeasible" or failed[record.configuration] >= TRIES:
            given_up.add(record.configuration)
    return given_up


def _pooled_points(records: Sequence[TrialRecord], objectives: Objectives, noise: Noise) -> list[tuple[Point, int]]:
    """Return the pooled points of confirming trials, each with the number of starts behind it."""
    found: dict[tuple[Configuration, Load], list[tuple[TrialRecord, Measurement]]] = {}
    alive = {point.configuration for point in points(records, objectives)}
    for record in sorted(records, key=lambda record: record.number):
        for measurement in record.measurements:
            known = all(axis.key in measurement.metrics for axis in PLANE)
            if measurement.validity.valid and known and record.configuration in alive:
                found.setdefault((record.configuration, measurement.load), []).append((record, measurement))
    return [
        (make_point(starts[-1][0], _pool([each for _, each in starts], noise), objectives), len(starts))
        for starts in found.values()
    ]


def _pool(measurements: Sequence[Measurement], noise: Noise) -> Measurement:
    """Return one measurement for several of one load; a metric that one of them lacks is unknown."""
    shared = set.intersection(*(set(measurement.metrics) for measurement in measurements))
    return replace(
        measurements[-1],
        sent=sum(measurement.sent for measurement in measurements),
        ok=sum(measurement.ok for measurement in measurements),
        failed=sum(measurement.failed for measurement in measurements),
        metrics={key: pooled([each.metrics[key] for each in measurements], noise) for key in sorted(shared)},
    )


def _optimism(
    first: Point | None, second: Point, candidates: Sequence[Point], target: Target, noise: Noise
) -> Ratio | None:
    axes = traded(target, candidates)
    if first is None or len(axes) > 1:
        return None
    pair = first.metrics.get(axes[0].key), second.metrics.get(axes[0].key)
    if pair[0] is None or pair[1] is None:
        return None
    one, other = (pair[0], pair[1]) if axes[0].sign > 0 else (pair[1], pair[0])
    # Only the first interval lacks the noise of its start, and `ratio` would add that of two.
    return ratio(one, other, Noise(noise.start / math.sqrt(2)))
