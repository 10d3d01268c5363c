"""The search as an Optuna sampler: every candidate is scored by what it is expected to add.

`optuna.create_study(sampler=FrontierSampler(seed=1))` is all that is needed. A proposal depends on the seed, the number
of the trial and the trials in the study's storage alone, so a study that was interrupted goes on as if it had not been.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from frontier_tuner.predict import Floats
from frontier_tuner.search import optuna_told as told
from frontier_tuner.search.optuna_model import gains
from frontier_tuner.search.optuna_space import ENUMERATED, ParameterSpace, Predicate

RELATIVE = "frontier:relative"
"""System attribute with what is proposed for a trial: Optuna stores a parameter only when the trial asks for it."""
SIMILARITIES = 1_000_000
"""Similarities between candidates and trials that one proposal computes at most, for each term of the kernel."""

Predictor = Callable[[Sequence[Mapping[str, Any]]], Sequence[Sequence[float]] | Floats]


@dataclass(frozen=True)
class _Task:
    """One proposal: where to choose, for which trial, with what is fixed already."""

    study: Study
    trial: FrozenTrial
    space: ParameterSpace
    fixed: Mapping[str, Any]
    seed: tuple[int, ...]
    whole: bool


@dataclass(frozen=True)
class _Known:
    """The points that matter to a proposal: what taught, what is under way, and all that must not be repeated."""

    lessons: list[told.Lesson]
    pending: Floats
    closed: Floats


class FrontierSampler(BaseSampler):
    """Proposes the point with the largest expected gain, times the probability that it holds all constraints.

    The gain is the expected improvement of one objective, or the expected growth of the hypervolume of several. What
    is believed comes from Gaussian processes that are additive over parameters, groups of them and pairs of those.
    Spaces of up to `ENUMERATED` points are enumerated, and no point of one is proposed twice before all were. Trials
    under way count as if they had come out in the middle. Trials that failed teach nothing.

    A trial may tell a whole curve through the user attribute `frontier:curve`, a list of `[load, {name: value}]`: the
    study's objectives by `Study.metric_names` (or `"0"`, `"1"`, …) and constraints as `constraint:NAME`. Each rung then
    counts as a result of its own.

    Args:
        seed: Makes proposals reproducible; None draws one.
        n_startup_trials: Trials that spread over the space before anything is learnt; None takes one more than there
            are parameters, between 4 and 10, and none at all where there is a prior.
        search_space: The parameters, if known beforehand: then the first trial is chosen too, and not drawn at random.
        candidates: Says of an assignment of the whole `search_space` whether it may be proposed.
        prior: Predicts the objectives, in their units, of assignments of the whole `search_space`: (n, objectives).
            It is trusted as far as it predicts what is measured.
        groups: Names a group for parameters that act together, by parameter.

    Raises:
        ValueError: `candidates` or `prior` without `search_space`, or a number of trials below 0.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        n_startup_trials: int | None = None,
        search_space: Mapping[str, BaseDistribution] | None = None,
        candidates: Predicate | None = None,
        prior: Predictor | None = None,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        if search_space is None and (candidates is not None or prior is not None):
            raise ValueError("candidates and prior are asked about whole assignments: give search_space as well")
        if n_startup_trials is not None and n_startup_trials < 0:
            raise ValueError(f"n_startup_trials must be 0 or more, not {n_startup_trials}")
        self._seed = _fresh() if seed is None else seed
        self._startup = n_startup_trials
        self._space = dict(search_space or {})
        self._allowed, self._prior, self._groups = candidates, prior, dict(groups or {})
        self._enumerated: dict[tuple[str, str], Floats] = {}

    def reseed_rng(self) -> None:
        """Replace the seed by a random one."""
        self._seed = _fresh()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that are chosen together: the given ones, or those that all trials have alike."""
        del trial
        trials = study.get_trials(deepcopy=False)
        space = self._space or optuna.search_space.intersection_search_space(trials, include_pruned=True)
        return {name: each for name, each in sorted(space.items()) if not each.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of the parameters that are chosen together."""
        if not search_space:
            return {}
        space = ParameterSpace.of(search_space)
        whole = {name for name, each in self._space.items() if not each.single()} == set(space.names)
        row = self._choose(_Task(study, trial, space, {}, (self._seed, trial.number), whole))
        if row is None:
            return {}
        shown = {name: float(value) for name, value in zip(space.names, row, strict=True)}
        study._storage.set_trial_system_attr(trial._trial_id, RELATIVE, shown)  # noqa: SLF001 - samplers have no other way
        return space.parameters(row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a parameter that only some trials have, given the values that the trial has so far."""
        seed = (self._seed, trial.number, crc32(param_name.encode()))
        space = ParameterSpace.of({**trial.distributions, param_name: param_distribution})
        row = self._choose(_Task(study, trial, space, trial.params, seed, whole=False))
        if row is not None:
            return space.parameters(row)[param_name]
        alone = ParameterSpace.of({param_name: param_distribution})
        return alone.parameters(alone.from_unit(np.random.default_rng(seed).random((1, 1)))[0])[param_name]

    def _choose(self, task: _Task) -> Floats | None:
        known = self._known(task)
        informed = self._prior is not None and task.whole
        count = self._startup
        if count is None:
            count = 0 if informed else min(max(len(task.space.names) + 1, 4), 10)
        begun = len(known.lessons) + len(known.pending)
        if begun < count or (not known.lessons and not informed):
            # A parameter that follows others is drawn: it has no cover of its own to keep.
            covers = begun > 0 or task.whole
            return _spread(self._pool(task, known), known, task) if covers and not task.fixed else None
        return self._best(task, known)

    def _known(self, task: _Task) -> _Known:
        lessons, pending, closed = [], [], []
        names = task.study.metric_names
        for trial in task.study.get_trials(deepcopy=False):
            row = None if trial.number == task.trial.number else _row(trial, task.space)
            if row is None:
                continue
            closed.append(row)
            if trial.state == TrialState.RUNNING:
                pending.append(row)
            elif (lesson := told.lesson(trial, row, task.study.directions, names)) is not None:
                lessons.append(lesson)
        width = len(task.space.names)
        empty = np.zeros((0, width))
        return _Known(lessons, np.array(pending).reshape(-1, width), np.array(closed) if closed else empty)

    def _pool(self, task: _Task, known: _Known) -> Floats:
        """Return the (n, k) points to choose from; never empty."""
        free = {n: d for n, d in zip(task.space.names, task.space.distributions, strict=True) if n not in task.fixed}
        inner = ParameterSpace.of(free)
        columns = [task.space.names.index(name) for name in inner.names]
        leading = [known.lessons[place].row for place in told.best(known.lessons, 8)]
        near = np.array(leading).reshape(-1, len(task.space.names))
        if inner.size <= ENUMERATED:
            key = (repr(inner), str(task.whole))
            if key not in self._enumerated:
                self._enumerated[key] = self._valid(task, inner.enumerate())
            part = self._enumerated[key]
        else:
            part = self._valid(task, inner.pool(near[:, columns], task.seed))
        pool = np.zeros((len(part), len(task.space.names)))
        for name, value in task.fixed.items():
            place = task.space.names.index(name)
            pool[:, place] = task.space.distributions[place].to_internal_repr(value)
        pool[:, columns] = part
        # Unless nothing else is left, nothing is tried twice.
        fresh = pool[~_among(pool, known.closed)]
        pool = fresh if len(fresh) else pool
        most = SIMILARITIES // max(min(len(known.lessons), told.READ) + len(known.pending), 1)
        if len(pool) <= most:
            return pool
        close = task.space.neighbours(pool, near)[:most]
        others = np.random.default_rng(task.seed).permutation(np.setdiff1d(np.arange(len(pool)), close))
        return np.asarray(pool[np.sort(np.concatenate([close, others[: most - len(close)]]))])

    def _valid(self, task: _Task, rows: Floats) -> Floats:
        if self._allowed is None or not task.whole:
            return rows
        allowed = self._allowed
        kept = rows[[bool(allowed(each)) for each in self._assignments(task.space, rows)]]
        if not len(kept):
            raise ValueError(
                "candidates refuses every point of search_space: loosen it, or give a space that it accepts"
            )
        return np.asarray(kept)

    def _assignments(self, space: ParameterSpace, rows: Floats) -> list[dict[str, Any]]:
        single = {name: each for name, each in self._space.items() if each.single()}
        only = ParameterSpace.of(single)
        always = only.parameters(only.from_unit(np.full((1, len(single)), 0.5))[0]) if single else {}
        return [{**always, **space.parameters(row)} for row in rows]

    def _best(self, task: _Task, known: _Known) -> Floats:
        pool = self._pool(task, known)
        lessons = told.informative(known.lessons)
        tried = np.array([each.row for each in lessons]).reshape(-1, pool.shape[1])
        rows = np.concatenate([tried, known.pending, pool])
        losses = np.array([rung.losses for each in lessons for rung in each.rungs])
        losses = losses.reshape(-1, len(task.study.directions))
        scales, prior = self._scaled(task, rows, losses)
        if lessons:
            candidates = task.space.candidates(rows, self._groups)
            worth = gains(candidates, lessons, len(known.pending), scales, prior, task.seed)
        else:
            worth = -prior.sum(-1)
        return np.asarray(pool[int(np.argmax(worth[len(rows) - len(pool) :]))])

    def _scaled(self, task: _Task, rows: Floats, losses: Floats) -> tuple[list[told.Scale], Floats]:
        """Return the scales of the objectives, and (n, m) the scaled predictions; no columns without a prior."""
        if self._prior is None or not task.whole:
            return [told.Scale.of(column) for column in losses.T], np.zeros((len(rows), 0))
        prior = self._predicted(self._prior, task, rows)
        # The predictions keep the scale steady while few trials are known.
        seen = np.concatenate([losses, prior])
        scales = [told.Scale.of(column, logarithmic=True) for column in seen.T]
        return scales, np.stack([scale(column) for scale, column in zip(scales, prior.T, strict=True)], -1)

    def _predicted(self, prior: Predictor, task: _Task, rows: Floats) -> Floats:
        signs = np.array([-1.0 if each == StudyDirection.MAXIMIZE else 1.0 for each in task.study.directions])
        values = np.asarray(prior(self._assignments(task.space, rows)), dtype=float)
        if values.shape != (len(rows), len(signs)) or not np.isfinite(values).all():
            raise ValueError(
                f"prior must give finite numbers of shape {(len(rows), len(signs))}, one row for each assignment and "
                f"one column for each objective, not {values.shape}"
            )
        return np.asarray(values * signs)


def _fresh() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


def _row(trial: FrozenTrial, space: ParameterSpace) -> Floats | None:
    """Return the point of a trial, or None where it lacks a parameter or has it over another range."""
    stored = trial.system_attrs.get(RELATIVE, {}) if trial.state == TrialState.RUNNING else {}
    row = np.zeros(len(space.names))
    for i, (name, distribution) in enumerate(zip(space.names, space.distributions, strict=True)):
        if name in trial.params:
            if trial.distributions[name] != distribution:
                return None
            row[i] = distribution.to_internal_repr(trial.params[name])
        elif name in stored:
            row[i] = stored[name]
        else:
            return None
    return row


def _among(rows: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return (n,): which of (n, k) points are among others."""
    if not len(others):
        return np.zeros(len(rows), dtype=bool)
    # One number for each distinct point.
    _, codes = np.unique(np.concatenate([rows, others]), axis=0, return_inverse=True)
    return np.isin(codes[: len(rows)], codes[len(rows) :])


def _spread(pool: Floats, known: _Known, task: _Task) -> Floats:
    """Return the point whose values were tried least; the seed decides between equals."""
    novelty = np.zeros(len(pool))
    before, here = task.space.bins(known.closed), task.space.bins(pool)
    for column in range(pool.shape[1]):
        width = max(here[:, column].max(), before[:, column].max(initial=0)) + 1
        novelty += 1 / (1 + np.bincount(before[:, column], minlength=width)[here[:, column]])
    ties = np.random.default_rng(task.seed).random(len(pool))
    return np.asarray(pool[np.lexsort((ties, novelty))[-1]])
