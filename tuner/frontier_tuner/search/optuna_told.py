"""What the trials of an Optuna study teach: losses and constraints at loads, on scales that a surrogate can learn.

A trial that is complete teaches its values and its constraints; one that was pruned its last intermediate value, but
it is never taken for a result; one that failed teaches nothing. Where trials tell whole curves, those without one
teach their constraints alone, and a curve's rungs take the place of the trial's values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from frontier_tuner.predict import Floats
from frontier_tuner.search.candidates import Integers
from frontier_tuner.search.optuna_gain import front

CURVE = "frontier:curve"
"""User attribute with a trial's whole curve: `[[load, {name: value, …}], …]`."""
CONSTRAINT = "constraint:"
"""Prefix of the names of constraints at a rung."""
LEVELS = 10
"""Loads that are told apart; where there are more, the nearest of so many in geometric steps is meant."""
UNIT = 0.3
"""Spread that a loss is given, as large as the surrogate's own priors expect of the logarithm of a speed."""
READ = 200
"""Trials that the surrogate reads at most."""


@dataclass(frozen=True)
class Rung:
    """What was told of one load.

    Attributes:
        load: The load; 0 in a study without curves.
        losses: (m,) objectives, all to be minimised; not a number where one is not known.
        constraints: Values by name, feasible at 0 or below.
    """

    load: float
    losses: Floats
    constraints: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lesson:
    """What one trial teaches.

    Attributes:
        number: The trial's number.
        row: (k,) its point.
        rungs: What was told, in ascending load; none where only the constraints are known.
        constraints: Of the trial as a whole, by name.
        final: Whether its values are results.
    """

    number: int
    row: Floats
    rungs: tuple[Rung, ...]
    constraints: Mapping[str, float]
    final: bool

    def feasible(self, rung: Rung) -> bool:
        """Return whether a rung is a result that holds all constraints."""
        held = [*self.constraints.values(), *rung.constraints.values()]
        return self.final and bool(np.isfinite(rung.losses).all()) and all(value <= 0 for value in held)


def lesson(
    trial: FrozenTrial, row: Floats, directions: Sequence[StudyDirection], names: Sequence[str] | None
) -> Lesson | None:
    """Return what a trial teaches, or None where that is nothing.

    Args:
        trial: A trial in any state.
        row: Its point.
        directions: Those of the study.
        names: Names of the objectives in curves; their positions as text where None.

    Raises:
        ValueError: The trial's curve is not of the form that `CURVE` says.
    """
    if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None
    signs = np.array([-1.0 if each == StudyDirection.MAXIMIZE else 1.0 for each in directions])
    final = trial.state == TrialState.COMPLETE
    keys = list(names or map(str, range(len(directions))))
    curve = trial.user_attrs.get(CURVE)
    if curve is not None:
        rungs = _curve(trial.number, curve, keys, signs)
    elif final and trial.values is not None:
        rungs = (Rung(0.0, signs * np.array(trial.values, dtype=float)),)
    elif trial.intermediate_values and len(signs) == 1:
        last = trial.intermediate_values[max(trial.intermediate_values)]
        rungs = (Rung(0.0, signs * last),)
    else:
        rungs = ()
    constraints = {name: float(value) for name, value in trial.constraints.items()}
    kept = tuple(each for each in rungs if not np.isnan(each.losses).all() or each.constraints)
    return Lesson(trial.number, row, kept, constraints, final) if kept or constraints else None


def _curve(number: int, curve: Any, keys: Sequence[str], signs: Floats) -> tuple[Rung, ...]:
    try:
        rungs = [_rung(float(load), dict(metrics), keys, signs) for load, metrics in curve]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the user attribute {CURVE!r} of trial {number} must be [[load, {{name: value}}], …] with the objectives "
            f"{', '.join(map(repr, keys))} and constraints as {CONSTRAINT + 'NAME'!r}: {error}"
        ) from error
    return tuple(sorted(rungs, key=lambda rung: rung.load))


def _rung(load: float, metrics: Mapping[str, float], keys: Sequence[str], signs: Floats) -> Rung:
    if not (math.isfinite(load) and load > 0):
        raise ValueError(f"{load!r} is not a load above 0")
    losses = signs * np.array([float(metrics.get(key, math.nan)) for key in keys])
    limits = {k.removeprefix(CONSTRAINT): float(v) for k, v in metrics.items() if k.startswith(CONSTRAINT)}
    return Rung(load, losses, {name: value for name, value in limits.items() if not math.isnan(value)})


def informative(lessons: Sequence[Lesson], count: int = READ) -> list[Lesson]:
    """Return at most so many of the lessons, in their order.

    Half are the best: the front of the feasible results, then the front of the rest, and so on. A quarter are the
    latest. The others are spread evenly over what remains, so that bad regions stay known.
    """
    if len(lessons) <= count:
        return list(lessons)
    chosen = set(best(lessons, count // 2))
    for place in reversed(range(len(lessons))):
        if len(chosen) >= count // 2 + count // 4:
            break
        chosen.add(place)
    rest = [place for place in range(len(lessons)) if place not in chosen]
    chosen |= {rest[place] for place in np.linspace(0, len(rest) - 1, count - len(chosen)).round().astype(int)}
    return [lessons[place] for place in sorted(chosen)]


def best(lessons: Sequence[Lesson], count: int) -> list[int]:
    """Return the places of the best feasible lessons: front after front, the earlier trial first."""
    points = [(place, rung.losses) for place, each in enumerate(lessons) for rung in each.rungs if each.feasible(rung)]
    chosen: dict[int, None] = {}
    while points and len(chosen) < count:
        edge = {tuple(point) for point in front(np.array([losses for _, losses in points]))}
        for place, losses in points:
            if tuple(losses) in edge:
                chosen.setdefault(place)
        points = [(place, losses) for place, losses in points if place not in chosen]
    return list(chosen)[:count]


@dataclass(frozen=True)
class Scale:
    """A monotone scale for the losses of one objective, on which the better half is linear.

    What is worse than the middle is compressed: how bad a bad value is matters little, and one crash told as a huge
    loss must not flatten the rest.

    Attributes:
        middle: Loss that becomes 0.
        spread: Loss that becomes `UNIT`, counted from the middle.
        bottom: The best and the worst finite loss, which stand for infinite ones.
        top: See `bottom`.
        sign: 0 as they are; 1 or -1 where the logarithm of losses of that sign is meant.
    """

    middle: float
    spread: float
    bottom: float
    top: float
    sign: int = 0

    @classmethod
    def of(cls, losses: Floats, *, logarithmic: bool = False) -> "Scale":
        """Return the scale of (r,) losses; `logarithmic` where all have one sign and factors are what matters."""
        known = losses[np.isfinite(losses)]
        sign = 0
        if logarithmic and len(known):
            sign = int(np.sign(known[0])) if (np.sign(known) == np.sign(known[0])).all() else 0
        if not len(known):
            return cls(0.0, 1.0, 0.0, 0.0)
        shown = sign * np.log(np.abs(known)) if sign else known
        middle, good, least = (float(np.quantile(shown, q)) for q in (0.5, 0.1, 0.0))
        # The best must not lie so far out that the rest looks flat.
        spread = max((middle - good) / 1.28, (middle - least) / 4)
        spread = spread or float(shown.std()) or max(abs(middle), 1.0)
        return cls(middle, spread, float(known.min()), float(known.max()), sign)

    def __call__(self, losses: Floats) -> Floats:
        """Return losses on the scale; what is not a number stays so."""
        finite = np.where(np.isposinf(losses), self.top, np.where(np.isneginf(losses), self.bottom, losses))
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = self.sign * np.log(np.abs(finite)) if self.sign else finite
        apart = (shown - self.middle) / self.spread
        return np.asarray(UNIT * np.where(apart > 0, np.log1p(np.maximum(apart, 0)), apart))


@dataclass(frozen=True)
class Table:
    """What was told of metrics that were told together, on their scales.

    Attributes:
        owner: (r,) place of the lesson, ascending.
        level: (r,) place of the load.
        values: (r, c) scaled values of c metrics.
        feasible: (r,) whether this is a result that holds all constraints.
    """

    owner: Integers
    level: Integers
    values: Floats
    feasible: NDArray[np.bool_]


def loads(lessons: Sequence[Lesson]) -> Floats:
    """Return (L,) the loads of all curves in ascending order, or a single 1 where there are none."""
    known = np.unique([rung.load for each in lessons for rung in each.rungs if rung.load])
    if not len(known):
        return np.ones(1)
    return known if len(known) <= LEVELS else np.geomspace(known[0], known[-1], LEVELS)


def tables(lessons: Sequence[Lesson], levels: Floats, scales: Sequence[Scale]) -> tuple[Table, list[Table]]:
    """Return what was told of the objectives, and of the constraints.

    Args:
        lessons: The lessons.
        levels: (L,) loads.
        scales: One for each objective.
    """
    told: list[tuple[int, int, Rung]] = []
    for place, each in enumerate(lessons):
        for rung in each.rungs:
            if rung.load or len(levels) == 1:
                nearest = np.argmin(np.abs(np.log(levels / (rung.load or levels[0]))))
                told.append((place, int(nearest), rung))
    taught = [(place, level, rung) for place, level, rung in told if _taught(lessons[place], rung)]
    losses = np.array([rung.losses for _, _, rung in taught]).reshape(-1, len(scales))
    objectives = Table(
        np.array([place for place, _, _ in taught], dtype=np.int64),
        np.array([level for _, level, _ in taught], dtype=np.int64),
        np.stack([scale(losses[:, i]) for i, scale in enumerate(scales)], -1),
        np.array([lessons[place].feasible(rung) for place, _, rung in taught], dtype=bool),
    )
    entries: dict[str, list[tuple[int, int, float]]] = {}
    for place, level, rung in told:
        for name, value in rung.constraints.items():
            entries.setdefault(name, []).append((place, level, value))
    for place, each in enumerate(lessons):
        for name, value in each.constraints.items():
            entries.setdefault(name, []).append((place, len(levels) // 2, value))
    return objectives, _constraints([sorted(entries[name]) for name in sorted(entries)])


def _taught(each: Lesson, rung: Rung) -> bool:
    """Whether a rung's losses mean something: an infinite loss with a broken constraint only stands for that."""
    broken = any(value > 0 for value in (*each.constraints.values(), *rung.constraints.values()))
    return not np.isnan(rung.losses).any() and (bool(np.isfinite(rung.losses).all()) or not broken)


def _constraints(columns: Sequence[Sequence[tuple[int, int, float]]]) -> list[Table]:
    """Put constraints that were told of the same rungs into one table, so that they are learnt together."""
    alike: dict[tuple[tuple[int, int], ...], list[list[float]]] = {}
    for column in columns:
        places = tuple((place, level) for place, level, _ in column)
        alike.setdefault(places, []).append(_limit([value for _, _, value in column]))
    found = []
    for places, values in alike.items():
        owner, level = np.array(places, dtype=np.int64).T
        shown = np.array(values).T
        found.append(Table(owner, level, shown, np.asarray((shown <= 0).all(1))))
    return found


def _limit(values: Sequence[float]) -> list[float]:
    """Scale a constraint by its usual size; 0 stays 0, and large violations are compressed."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    size = float(np.median(sizes)) if sizes else 1.0
    most = max(sizes, default=size)
    return [UNIT * math.asinh(max(-most, min(most, value)) / size) for value in values]
