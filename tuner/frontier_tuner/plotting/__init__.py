"""A study as a picture: what was measured, its frontier and the chosen point, for any medium that can draw them.

The frontier is drawn as stairs: between two measured points nothing was measured, so nothing is drawn there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from frontier_tuner.axes import SPEED
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import ROUNDING, Point, frontier, non_dominated, points
from frontier_tuner.measurement import COST, THROUGHPUT_PER_GPU
from frontier_tuner.noise import ASSUMED, Noise
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.selection import Selection, select
from frontier_tuner.trial import TrialRecord

__all__ = ["Curve", "Figure", "Stairs", "figure_of", "label"]

Stairs = tuple[tuple[float, float], ...]
"""Corners of the edge of what points dominate, from the fast end to the cheap one."""


@dataclass(frozen=True)
class Curve:
    """All points of one configuration, by load.

    Attributes:
        label: The knobs in which configurations differ.
        points: The points in the order of their load.
        baseline: Whether it is the study's first trial.
    """

    label: str
    points: tuple[Point, ...]
    baseline: bool


@dataclass(frozen=True)
class Figure:
    """What there is to see.

    Attributes:
        curves: One for each configuration that has points, in the order of their trials.
        members: The members of the frontier, fastest first.
        reached: Edge of what feasible points dominate.
        beyond: Edge of what all points dominate; the space between the two is reached only by missing an objective.
        speed_floor: Below this speed an objective or the target is missed, or None where none bounds it.
        throughput_floor: Below this throughput a GPU is too dear, or None.
        selection: The choice.
        failed: Configurations that have no point, with the reason.
    """

    curves: tuple[Curve, ...]
    members: tuple[Point, ...]
    reached: Stairs
    beyond: Stairs
    speed_floor: float | None
    throughput_floor: float | None
    selection: Selection
    failed: tuple[tuple[str, str], ...]

    @property
    def highest(self) -> tuple[float, float]:
        """The largest speed and throughput in the picture, at least 1 each."""
        everything = [point for curve in self.curves for point in curve.points]
        return (
            max([1.0, self.speed_floor or 0.0, *(point.speed for point in everything)]),
            max([1.0, self.throughput_floor or 0.0, *(point.throughput for point in everything)]),
        )


def figure_of(
    journal: Sequence[TrialRecord], objectives: Objectives, target: Target, *, noise: Noise = ASSUMED
) -> Figure:
    """Return the picture of a study.

    Args:
        journal: Finished trials.
        objectives: What must hold.
        target: Which point is chosen.
        noise: Between engine starts, for the members of the frontier.
    """
    ordered = sorted(journal, key=lambda record: record.number)
    known = points(ordered, objectives)
    everyone = [record.configuration for record in ordered]
    first = everyone[0] if everyone else None
    curves = []
    for configuration in dict.fromkeys(everyone):
        own = sorted((p for p in known if p.configuration == configuration), key=lambda point: point.load)
        if own:
            curves.append(Curve(label(configuration, everyone), tuple(own), configuration == first))
    measured = {curve.points[0].configuration for curve in curves}
    failed = {r.configuration: r.failure for r in ordered if r.configuration not in measured and r.failure is not None}
    return Figure(
        curves=tuple(curves),
        members=frontier(known, noise=noise),
        reached=_stairs([point for point in known if point.feasible]),
        beyond=_stairs(known),
        speed_floor=_speed_floor(objectives, target),
        throughput_floor=_throughput_floor(known, objectives, target),
        selection=select(known, objectives, target, noise=noise),
        failed=tuple((label(c, everyone), f"{why.reason}: {why.message}") for c, why in failed.items()),
    )


def label(configuration: Configuration, among: Sequence[Configuration]) -> str:
    """Return the knobs of a configuration that differ among several; all of them where none does."""
    names = [name for name in configuration if any(other.get(name) != configuration[name] for other in among)]
    return str(Configuration.of({name: configuration[name] for name in names or configuration}))


def _stairs(known: Sequence[Point]) -> Stairs:
    corners: list[tuple[float, float]] = []
    height = 0.0
    for point in non_dominated(known):
        corners += [(point.speed, height), (point.speed, point.throughput)]
        height = point.throughput
    return (*corners, (0.0, height)) if corners else ()


def _speed_floor(objectives: Objectives, target: Target) -> float | None:
    margin = 1 + target.headroom_percent / 100
    floors = [slo.bound * margin for slo in objectives.slos if slo.key == SPEED.key]
    if target.policy == "AtUserSpeed" and target.user_tokens_per_second is not None:
        floors.append(target.user_tokens_per_second)
    return max(floors, default=None)


def _throughput_floor(known: Sequence[Point], objectives: Objectives, target: Target) -> float | None:
    """Return the throughput at which a GPU's price is the lowest ceiling; None where GPUs have several prices."""
    ceilings = [objectives.max_cost, target.max_cost if target.policy == "AtCost" else None]
    prices = [p.metrics[COST].value * p.metrics[THROUGHPUT_PER_GPU].value for p in known if COST in p.metrics]
    lowest = min((ceiling for ceiling in ceilings if ceiling), default=None)
    if lowest is None or not prices or max(prices) - min(prices) > max(prices) * ROUNDING * 1000:
        return None
    return prices[0] / lowest
