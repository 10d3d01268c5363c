"""Which technique contributed which factor: the winner beside itself with one technique taken back.

Leave-one-out around the winner rather than add-one-in around the baseline, because the question is what the served
configuration would lose. Everything is measured; what a parameter declares about itself decides nothing here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from frontier_tuner.axes import Axis
from frontier_tuner.configuration import Configuration
from frontier_tuner.curves import Effect, compare
from frontier_tuner.frontier import Point, points
from frontier_tuner.measurement import Estimate
from frontier_tuner.noise import ASSUMED, Noise, Ratio, combined
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.policies import traded
from frontier_tuner.selection import select
from frontier_tuner.space import SearchSpace
from frontier_tuner.techniques import Technique, carried_over, techniques_between
from frontier_tuner.trial import TrialRecord

TRIES = 2
"""So many ablations of one configuration may fail for a reason of their surroundings."""

State = Literal["Measured", "Needed", "NotMeasured", "NoConfiguration"]
"""`Measured`: there is a factor. `Needed`: without the technique nothing holds the objectives, so there is none.
`NotMeasured`: the configuration without it was not tried. `NoConfiguration`: no valid configuration does without it."""


@dataclass(frozen=True)
class Without:
    """The winner with one technique taken back.

    Attributes:
        technique: What is taken back.
        configuration: The nearest valid configuration.
        partial: Whether the technique is only nearer to the baseline and not at it: no valid configuration goes further
            without changing something else.
        others: Knobs of other techniques that had to change as well; its factor is theirs too.
    """

    technique: Technique
    configuration: Configuration
    partial: bool = False
    others: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why it is tried, for the trial that does."""
        share = " as far as a valid configuration goes" if self.partial else ""
        beside = f", together with {', '.join(self.others)}" if self.others else ""
        return f"{self.technique.name} set back to the baseline{share}{beside}: its factor at the target"


@dataclass(frozen=True)
class Factor:
    """What one technique contributes to the winner at the target.

    Attributes:
        technique: Its name.
        knobs: Its knobs that differ.
        state: Whether there is a factor, or why not.
        factor: How many times better the winner is with it than without, by what the policy wants.
        effect: What the measured curves say: `PushesOut`, `MovesAlong`, `PullsIn` where it is better without, or
            `WithinNoise`; None where one of the two curves is missing.
        without: The configuration that it was compared with, or None.
        message: The sentence a user reads.
    """

    technique: str
    knobs: tuple[str, ...]
    state: State
    factor: Ratio | None
    effect: Effect | None
    without: Configuration | None
    message: str


@dataclass(frozen=True)
class Attribution:
    """How the winner's advantage over the baseline is made up.

    Attributes:
        factors: One for each technique in which they differ.
        total: How many times better the winner is than the baseline, or None where one of them holds nothing.
        product: The product of all factors; None unless all are known.
        interaction: What is left: the total over the product. Above 1 the techniques need each other less than the
            factors suggest, below 1 they pay twice for the same.
        gains: What the factors are factors of.
    """

    factors: tuple[Factor, ...]
    total: Ratio | None
    product: Ratio | None
    interaction: Ratio | None
    gains: str

    def sentences(self) -> tuple[str, ...]:
        """Return what each technique contributed, then the winner's advantage and what of it the factors explain."""
        ratios = (
            ("winner against baseline", self.total),
            ("product of the factors", self.product),
            ("interaction that is left", self.interaction),
        )
        made_up = (f"{name}: {value} times in {self.gains}" for name, value in ratios if value is not None)
        return (*(factor.message for factor in self.factors), *made_up)


def leave_one_out(space: SearchSpace, winner: Configuration, baseline: Configuration) -> tuple[Without, ...]:
    """Return for each technique in which winner and baseline differ the winner without it.

    Of the valid configurations with the technique nearer to the baseline the one is taken that changes the fewest
    knobs of other techniques, then the one that brings it nearest to the baseline.
    """
    found = []
    for technique in techniques_between(winner, baseline):
        nearest = _nearest(space, winner, baseline, technique)
        if nearest is not None:
            found.append(nearest)
    return tuple(found)


def leave_one_out_plan(
    space: SearchSpace,
    winner: Configuration,
    baseline: Configuration,
    journal: Sequence[TrialRecord],
    *,
    starts: int | None = None,
    gpu_seconds: float | None = None,
    cost: Callable[[Configuration], float] = lambda _: 0.0,
) -> tuple[Without, ...]:
    """Return the configurations that are still to be measured to know every technique's factor, most telling first.

    The baseline is part of it where it was never measured. The order is that of `TECHNIQUES`; where the budget does
    not last, later ones are left out, and cheaper ones behind them still taken.

    Args:
        space: Where valid configurations come from.
        winner: The chosen configuration.
        baseline: What it is compared with.
        journal: Finished trials; whatever they settled is not asked for again, nor what failed twice.
        starts: Engine starts that may be spent, or None.
        gpu_seconds: GPU-seconds that may be spent, or None.
        cost: Expected GPU-seconds of a configuration's trial.
    """
    settled = {record.configuration for record in journal if record.outcome != "Failed"}
    failed = Counter(r.configuration for r in journal if r.purpose == "Ablation" and r.outcome == "Failed")
    settled |= {configuration for configuration, count in failed.items() if count >= TRIES}
    wanted = [Without(Technique("Baseline", ()), baseline), *leave_one_out(space, winner, baseline)]
    plan: list[Without] = []
    left = gpu_seconds
    for each in wanted:
        price = cost(each.configuration)
        known = each.configuration in settled or any(each.configuration == other.configuration for other in plan)
        if known or (left is not None and price > left) or (starts is not None and len(plan) >= starts):
            continue
        plan.append(each)
        left = None if left is None else left - price
    return tuple(plan)


def technique_factors(
    journal: Sequence[TrialRecord],
    space: SearchSpace,
    winner: Configuration,
    baseline: Configuration,
    objectives: Objectives,
    target: Target,
    *,
    noise: Noise = ASSUMED,
) -> Attribution:
    """Return what each technique contributes at the target, as far as it was measured.

    A configuration's worth is that of the point which the target selects among its own: throughput per GPU or cost at
    the speed floor, speed for the policies that want it, and for the knee the product of both.

    Args:
        journal: Finished trials.
        space: Where valid configurations come from.
        winner: The chosen configuration.
        baseline: What it is compared with.
        objectives: What must hold.
        target: Says where on the curves they are compared.
        noise: Between engine starts.
    """
    known = points(journal, objectives)
    axes = traded(target, known)
    ours = _Measured.of(winner, known, axes, objectives, target)
    theirs = _Measured.of(baseline, known, axes, objectives, target)
    planned = {each.technique: each for each in leave_one_out(space, winner, baseline)}
    factors, worths = [], []
    for technique in techniques_between(winner, baseline):
        without = planned.get(technique)
        other = None if without is None else _Measured.of(without.configuration, known, axes, objectives, target)
        factors.append(_factor(technique, without, ours, other, journal, noise))
        worths.append(other.worth if other is not None else ())
    total = _times(ours.worth, [theirs.worth], noise)
    product = _times(ours.worth, worths, noise) if all(worths) else None
    return Attribution(
        factors=tuple(factors),
        total=total,
        product=product,
        interaction=_left(ours.worth, theirs.worth, worths, noise) if total and product else None,
        gains=" x ".join(axis.title for axis in axes),
    )


@dataclass(frozen=True)
class _Measured:
    """One configuration's curve, and what it is worth at the target: its axes' estimates, each more is better."""

    curve: tuple[Point, ...]
    worth: tuple[tuple[int, Estimate], ...]

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        known: Sequence[Point],
        axes: Sequence[Axis],
        objectives: Objectives,
        target: Target,
    ) -> "_Measured":
        curve = tuple(point for point in known if point.configuration == configuration)
        chosen = select(curve, objectives, target).point
        if chosen is None or not all(axis.key in chosen.metrics for axis in axes):
            return cls(curve, ())
        return cls(curve, tuple((axis.sign, chosen.metrics[axis.key]) for axis in axes))


def _nearest(
    space: SearchSpace, winner: Configuration, baseline: Configuration, technique: Technique
) -> Without | None:
    ideal = {**winner, **{knob: baseline[knob] for knob in technique.knobs if knob in baseline}}
    for knob in technique.knobs:
        if knob not in baseline:
            ideal.pop(knob, None)
    # Without the technique knobs may exist that the winner lacks, such as the limits of a single pool.
    exact = [Configuration.of(ideal), Configuration.of({**carried_over(winner, baseline), **ideal})]
    for candidate in exact:
        if not space.violations(candidate):
            return Without(technique, candidate)
    wanted = exact[-1]
    best: tuple[tuple[float, ...], str, Configuration, tuple[str, ...]] | None = None
    start = _away(space, winner, baseline, technique.knobs)
    for candidate in space.configurations():
        away = _away(space, candidate, baseline, technique.knobs)
        if away >= start:
            continue
        names = {**candidate, **wanted}
        others = tuple(sorted(n for n in names if n not in technique.knobs and candidate.get(n) != wanted.get(n)))
        rank = (len(others), away, _away(space, candidate, wanted, others))
        if best is None or (rank, candidate.hash) < best[:2]:
            best = (rank, candidate.hash, candidate, others)
    if best is None:
        return None
    return Without(technique, best[2], partial=best[0][1] > 0, others=best[3])


def _away(space: SearchSpace, one: Configuration, other: Configuration, knobs: Sequence[str]) -> float:
    """Return how far two configurations are apart in some knobs: 1 for each at opposite ends or of another name."""
    total = 0.0
    parameters = {parameter.name: parameter for parameter in space.parameters}
    for knob in knobs:
        pair = one.get(knob), other.get(knob)
        if pair[0] == pair[1]:
            continue
        parameter = parameters.get(knob)
        places = [parameter.values.index(v) for v in pair if parameter is not None and v in parameter.values]
        if parameter is not None and parameter.ordered and len(places) == len(pair) and len(parameter.values) > 1:
            total += abs(places[0] - places[1]) / (len(parameter.values) - 1)
        else:
            total += 1
    return total


def _factor(
    technique: Technique,
    without: Without | None,
    ours: _Measured,
    other: _Measured | None,
    journal: Sequence[TrialRecord],
    noise: Noise,
) -> Factor:
    def answer(state: State, message: str, factor: Ratio | None = None, effect: Effect | None = None) -> Factor:
        found = without.configuration if without is not None else None
        return Factor(technique.name, technique.knobs, state, factor, effect, found, f"{technique.name}: {message}")

    if without is None or other is None:
        return answer("NoConfiguration", "no valid configuration does without it")
    caveat = f"; {without.reason.partition(':')[0]}" if without.partial or without.others else ""
    latest = max(
        (r for r in journal if r.configuration == without.configuration and r.outcome != "Failed"),
        key=lambda record: record.number,
        default=None,
    )
    if latest is None:
        return answer("NotMeasured", f"{without.configuration} was not measured{caveat}")
    if latest.outcome == "Infeasible":
        why = f": {latest.failure.reason}: {latest.failure.message}" if latest.failure is not None else ""
        return answer("Needed", f"without it the engine cannot serve{why}{caveat}")
    effect = compare(ours.curve, other.curve, noise) if ours.curve and other.curve else None
    factor = _times(ours.worth, [other.worth], noise)
    if not ours.worth:
        return answer("NotMeasured", f"the winner itself holds no objectives at the target{caveat}", None, effect)
    if factor is None:
        return answer("Needed", f"without it no load holds all objectives{caveat}", None, effect)
    words = {
        "PushesOut": "pushes the frontier out",
        "MovesAlong": "moves along the frontier",
        "PullsIn": "pulls the frontier in",
        "WithinNoise": "makes no difference beyond noise",
    }
    said = f", and {words[effect]}" if effect is not None else ""
    return answer("Measured", f"{factor} times{said}{caveat}", factor, effect)


Worth = Sequence[tuple[int, Estimate]]


def _times(ours: Worth, others: Sequence[Worth], noise: Noise) -> Ratio | None:
    """Return the product of how many times better ours is than each of the others; None where one is unknown."""
    if not ours or not all(others):
        return None
    terms = [(sign * float(len(others)), estimate) for sign, estimate in ours]
    terms += [(-float(sign), estimate) for other in others for sign, estimate in other]
    return _combined(terms, noise)


def _left(ours: Worth, theirs: Worth, others: Sequence[Worth], noise: Noise) -> Ratio | None:
    """Return (ours / theirs) over the product of ours / other, in which ours is partly cancelled out."""
    terms = [(sign * (1.0 - len(others)), estimate) for sign, estimate in ours]
    terms += [(-float(sign), estimate) for sign, estimate in theirs]
    terms += [(float(sign), estimate) for other in others for sign, estimate in other]
    return _combined(terms, noise)


def _combined(terms: Sequence[tuple[float, Estimate]], noise: Noise) -> Ratio | None:
    """Return the product of the terms, or None where one is 0; what occurs twice is one measurement and one noise."""
    weights: dict[int, float] = {}
    estimates = {id(estimate): estimate for _, estimate in terms}
    for weight, estimate in terms:
        weights[id(estimate)] = weights.get(id(estimate), 0.0) + weight
    if any(estimate.value <= 0 for estimate in estimates.values()):
        return None
    return combined([(weights[place], estimate) for place, estimate in estimates.items() if weights[place]], noise)
