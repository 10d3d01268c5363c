"""The rivals: Optuna's samplers over the flat space, and a prior's ranking, each through the same ladder.

What made a baseline stronger was given to it. A start yields a whole curve (but for `tpe-point`, which is what others
run). A proposal is repaired to the nearest candidate that was not tried yet. The opening is drawn from the candidates
and not from the flat space, whose repair favours few of them. A crash is told as a constraint beside the lowest value
so far. The one value told is the target's, of the best rung that holds every demand: a second one for the other axis
gained a little hypervolume and lost more at the target.
"""

import importlib
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.trial import Trial

from frontier_tuner.bench.arena import Arena, Rung
from frontier_tuner.bench.climb import climb, levels_of
from frontier_tuner.bench.flat import FlatSpace
from frontier_tuner.bench.goal import GoalError
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.search.sampler import FrontierSampler

OPENING = 10
"""Trials before a sampler learns, Optuna's own default: candidates at random, or picks of the prior."""
POPULATION = 8
"""Of NSGA-II: with Optuna's 50 it would be random search at these budgets."""
FAILED = "start"
STEPS = 40
"""Speeds at which predicted frontiers are compared."""

Sampler = Callable[[int], BaseSampler]


def tpe(seed: int) -> BaseSampler:
    """Return Optuna's TPE, multivariate."""
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=OPENING)


def gp(seed: int) -> BaseSampler:
    """Return Optuna's Gaussian process sampler; needs torch."""
    from optuna.samplers import GPSampler  # noqa: PLC0415 - needs torch

    return GPSampler(seed=seed, n_startup_trials=OPENING, deterministic_objective=False)


def nsga2(seed: int) -> BaseSampler:
    """Return Optuna's NSGA-II with a population that fits the budget."""
    return NSGAIISampler(seed=seed, population_size=POPULATION)


def botorch(seed: int) -> BaseSampler:
    """Return BoTorch's sampler; needs optuna-integration and botorch."""
    integration = importlib.import_module("optuna_integration")

    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        return [float(value) for value in trial.constraints.values()]

    made: BaseSampler = integration.BoTorchSampler(constraints_func=constraints, n_startup_trials=OPENING, seed=seed)
    return made


def frontier(seed: int) -> BaseSampler:
    """Return this project's sampler for Optuna studies; here it sees what the others see, one value of a start."""
    return FrontierSampler(seed=seed, n_startup_trials=OPENING)


def run_random(arena: Arena, seed: int, starts: int) -> None:
    """Start candidates in a random order, none twice."""
    order = np.random.default_rng(seed).permutation(len(arena.candidates))
    for index in order[:starts]:
        _whole_curve(arena, int(index))


def run_prior(arena: Arena, seed: int, starts: int) -> None:
    """Start candidates in the order in which the prior says that they make up the frontier."""
    for index in prior_picks(arena, starts):
        _whole_curve(arena, index)


def run_optuna(arena: Arena, seed: int, starts: int, sampler: Sampler, *, opening: Sequence[int] | None = None) -> None:
    """Let a sampler propose each start and tell it the best value of the curve.

    Args:
        arena: Where to start engines.
        seed: Of the sampler and the opening.
        starts: Starts to spend.
        sampler: Makes the sampler.
        opening: Candidates to start first; `OPENING` at random where it is None.
    """
    space = FlatSpace.of(arena.candidates)
    study = _study(sampler, seed)
    if opening is None:
        opening = [int(index) for index in np.random.default_rng(seed).permutation(len(arena.candidates))[:OPENING]]
    for index in opening:
        study.enqueue_trial(dict(space.encode(index)))
    free = np.ones(len(arena.candidates), dtype=bool)
    for _ in range(starts):
        trial = study.ask()
        index = space.nearest(space.suggest(trial), free)
        free[index] = False
        _tell(study, trial, arena, _whole_curve(arena, index))


def run_opened(arena: Arena, seed: int, starts: int, sampler: Sampler) -> None:
    """Let the prior pick the opening, then a sampler."""
    run_optuna(arena, seed, starts, sampler, opening=prior_picks(arena, OPENING))


def run_point(arena: Arena, seed: int, starts: int, sampler: Sampler) -> None:
    """Let a sampler propose an engine and one level of load for each start; an engine may come again."""
    space = FlatSpace.of(arena.candidates)
    study = _study(sampler, seed)
    count = arena.candidates.concurrency.shape[1]
    everything = np.ones(len(arena.candidates), dtype=bool)
    for _ in range(starts):
        trial = study.ask()
        index = space.nearest(space.suggest(trial), everything)
        wanted = trial.suggest_int("load", 0, count - 1)
        run = arena.start(index)
        rungs: list[Rung] | None = None
        if run is not None:
            level = min(levels_of(arena, run), key=lambda each: (abs(each - wanted), each))
            rung = run.measure(level)
            rungs = [rung] if rung is not None else []
        _tell(study, trial, arena, rungs)


def prior_picks(arena: Arena, count: int) -> list[int]:
    """Return the candidates that the prior would start, in order: each adds most to the predicted frontier so far.

    When nothing is left to add, the next frontier below begins; when nothing more is expected to respond in time,
    those follow that miss the goal least. Ranking by the value at the target alone did worse, at the target too: its
    first picks are alike and fail alike.

    Raises:
        GoalError: The arena has no prior.
    """
    prediction = arena.candidates.prediction
    if prediction is None:
        raise GoalError("a method that follows the prior needs one: give --prior roofline or --prior wrong")
    fits = fitting(prediction)
    held = arena.goal.responsive(prediction) & fits
    speed, throughput = np.where(held, prediction.user_speed, 0.0), np.where(held, prediction.throughput, 0.0)
    steps = np.linspace(0, 1, STEPS + 1)[1:] * max(float(speed.max()), 1e-9)
    curves = np.stack([np.where(speed >= step, throughput, 0.0).max(1) for step in steps], axis=1)
    near = np.where(fits, _nearness(arena, prediction), -np.inf).max(1)
    free = np.ones(len(near), dtype=bool)
    reached = np.zeros(STEPS)
    picks: list[int] = []
    while len(picks) < min(count, len(near)):
        gain = np.where(free, np.maximum(curves - reached, 0.0).sum(1), -1.0)
        if gain.max() <= 0 and reached.any():
            reached = np.zeros(STEPS)
            continue
        pick = int(np.argmax(gain if gain.max() > 0 else np.where(free, np.maximum(near, -1e9), -np.inf)))
        picks.append(pick)
        free[pick] = False
        reached = np.maximum(reached, curves[pick])
    return picks


def fitting(prediction: Prediction) -> np.ndarray:
    """Return (n, L) whether a level is expected to fit the memory; where its size is not known, it does."""
    roomy = np.isnan(prediction.capacity)[:, None] | (prediction.memory <= prediction.capacity[:, None])
    starts = np.isnan(prediction.capacity) | (prediction.start_memory <= prediction.capacity)
    return np.asarray(roomy & starts[:, None])


def _value(arena: Arena, curves: Rung | Prediction) -> Floats:
    """Return what the target maximises, for each point."""
    speed, throughput = np.asarray(curves.user_speed), np.asarray(curves.throughput)
    match arena.target.policy:
        case "MinCost" | "MaxThroughput" | "AtUserSpeed":
            return throughput
        case "MinLatency" | "AtCost":
            return speed
        case "Knee":
            # Where the ends of the frontier are not known yet, the product rises towards the knee all the same.
            return np.asarray(np.sqrt(speed * throughput))


def _nearness(arena: Arena, curves: Rung | Prediction) -> Floats:
    """Return the worst slack of each point, not above 0."""
    slacks = [np.asarray(slack) for _, slack in arena.goal.slacks(curves)]
    shape = np.shape(np.asarray(curves.throughput))
    worst = np.minimum.reduce([*slacks, np.zeros(shape)])
    return np.where(np.isnan(worst), -np.inf, worst)


def _whole_curve(arena: Arena, index: int) -> list[Rung] | None:
    run = arena.start(index)
    return None if run is None else climb(arena, run)


def _study(sampler: Sampler, seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(direction="maximize", sampler=sampler(seed))


def _tell(study: optuna.Study, trial: Trial, arena: Arena, rungs: Sequence[Rung] | None) -> None:
    """Tell the best value of the rungs that hold all demands; else by how much the nearest rung misses them."""
    trial.set_constraint(FAILED, 0.0 if rungs else 1.0)
    if not rungs:
        trial.set_constraint("goal", 1.0)
        # A surrogate of the values would take a zero for a cliff; the lowest value so far does no harm.
        told = (each.value for each in study.get_trials(deepcopy=False) if each.value is not None)
        study.tell(trial, min(told, default=0.0))
        return
    held = [rung for rung in rungs if arena.goal.feasible(rung)]
    nearest = max(float(_nearness(arena, rung)) for rung in rungs)
    trial.set_constraint("goal", 0.0 if held else -nearest)
    best = max(float(_value(arena, rung)) for rung in (held or rungs))
    study.tell(trial, best)
