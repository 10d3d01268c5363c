"""Runs methods side by side, each with each seed, in as many processes as asked for."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from frontier_tuner.bench.arena import Arena, StartLog
from frontier_tuner.bench.goal import Goal
from frontier_tuner.bench.methods import check, method_of
from frontier_tuner.bench.priors import PriorKind, wrong
from frontier_tuner.bench.tables import Table
from frontier_tuner.predict import Prediction


@dataclass(frozen=True)
class Experiment:
    """What is the same for all methods.

    Attributes:
        table: The truth, bent where it shall be.
        goal: What must hold and what is best.
        starts: Starts of each run.
        noise: Standard deviation of the logarithm of a start's speed.
        prior: What methods are told.
        prediction: What the right prior says; None with the prior `none`.
    """

    table: Table
    goal: Goal
    starts: int
    noise: float
    prior: PriorKind = "none"
    prediction: Prediction | None = None

    def run(self, method: str, seed: int) -> list[StartLog]:
        """Run one method once and return what it did."""
        prediction = self.prediction
        if self.prior == "wrong" and prediction is not None:
            prediction = wrong(prediction, self.table, seed)
        function = method_of(method)
        arena = Arena(self.table, self.goal, starts=self.starts, seed=seed, noise=self.noise, prediction=prediction)
        function(arena, seed, self.starts)
        return arena.log


def run(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    on_done: Callable[[str, int], None] = lambda *_: None,
) -> dict[str, dict[int, list[StartLog]]]:
    """Return the log of each method with each seed; the number of processes changes nothing but the time.

    Args:
        experiment: What is the same for all.
        methods: Names.
        seeds: Of noise, methods and wrong priors alike.
        jobs: Processes; with 1 everything runs in this one.
        on_done: Called with a method and a seed when that run is done.

    Raises:
        MethodError: A method cannot run here.
    """
    for method in methods:
        check(method, prior=experiment.prediction is not None)
    logs: dict[str, dict[int, list[StartLog]]] = {method: {} for method in methods}
    for method, seed, log in _each(experiment, [(method, seed) for method in methods for seed in seeds], jobs):
        logs[method][seed] = log
        on_done(method, seed)
    return logs


def _each(
    experiment: Experiment, runs: Sequence[tuple[str, int]], jobs: int
) -> Iterator[tuple[str, int, list[StartLog]]]:
    if jobs == 1:
        for method, seed in runs:
            yield method, seed, experiment.run(method, seed)
        return
    with _pool(experiment, jobs) as pool:
        waiting: dict[Future[list[StartLog]], tuple[str, int]] = {pool.submit(_run, *each): each for each in runs}
        for future in as_completed(waiting):
            yield *waiting[future], future.result()


@contextmanager
def _pool(experiment: Experiment, jobs: int) -> Iterator[ProcessPoolExecutor]:
    # A fresh interpreter for each: a fork would inherit the threads of numerical libraries in whatever state they are.
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_remember, initargs=(experiment,)
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_experiments: list[Experiment] = []
"""Of a worker process: what its parent sent once, so that it is not sent with each run."""


def _remember(experiment: Experiment) -> None:
    _experiments[:] = [experiment]


def _run(method: str, seed: int) -> list[StartLog]:
    return _experiments[0].run(method, seed)
