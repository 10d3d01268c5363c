"""Scores of many seeds as the rows of a table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.score import CHECKPOINTS, Score, Scorer


@dataclass(frozen=True)
class Row:
    """One method after some starts, over all seeds.

    Attributes:
        method: Its name.
        starts: After how many starts.
        hypervolume: Mean and worst hypervolume ratio.
        target: Mean and worst target ratio.
        gpu_hours: Mean cost.
        died: Mean number of failed starts.
        hours_to_target: Median GPU-hours until the target was reached; None where half of the seeds never did.
        reached: Share of the seeds that did, within all their starts.
        seconds: Mean time that the method thought before a start.
    """

    method: str
    starts: int
    hypervolume: tuple[float, float]
    target: tuple[float, float]
    gpu_hours: float
    died: float
    hours_to_target: float | None
    reached: float
    seconds: float


def marks(starts: int) -> tuple[int, ...]:
    """Return after how many starts a run of this length is judged."""
    return (*(mark for mark in CHECKPOINTS if mark < starts), starts)


def rows(scorer: Scorer, method: str, runs: Mapping[int, Sequence[StartLog]], starts: int) -> list[Row]:
    """Return a method's rows, one for each checkpoint."""
    return summary(method, [scorer.score(log, marks(starts)) for log in runs.values()])


def summary(method: str, scores: Sequence[Score]) -> list[Row]:
    """Return a method's rows over runs that were judged at the same marks, also on different tables and goals."""
    return [_row(method, scores, place) for place in range(len(scores[0].checkpoints))]


def _row(method: str, scores: Sequence[Score], place: int) -> Row:
    points = [score.checkpoints[place] for score in scores]
    hours = sorted(float("inf") if s.hours_to_target is None else s.hours_to_target for s in scores)
    middle = statistics.median(hours)
    return Row(
        method=method,
        starts=points[0].starts,
        hypervolume=_mean_and_worst([point.hypervolume for point in points]),
        target=_mean_and_worst([point.target for point in points]),
        gpu_hours=statistics.fmean(point.gpu_hours for point in points),
        died=statistics.fmean(point.died for point in points),
        hours_to_target=None if middle == float("inf") else middle,
        reached=statistics.fmean(hour < float("inf") for hour in hours),
        seconds=statistics.fmean(score.seconds for score in scores),
    )


def _mean_and_worst(values: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(values), min(values)
