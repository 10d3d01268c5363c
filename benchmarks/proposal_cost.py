"""What one proposal costs: seconds and peak memory of the search and of samplers, as a table in Markdown.

    OMP_NUM_THREADS=1 python benchmarks/proposal_cost.py --trials 10 100 1000 --limit 300

The space has 10,000 configurations, four knobs of ten values each; the objectives are two products of factors. Every
figure comes from a process of its own. A proposal that takes longer than the limit is shown as such. `Search` learns
curves of five rungs, with a prior; the samplers learn two values for each trial.
"""

import argparse
import itertools
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import optuna
from optuna.distributions import IntDistribution
from optuna.samplers import BaseSampler, TPESampler

from frontier_tuner.configuration import Configuration
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.search.candidates import Candidates, Knob
from frontier_tuner.search.goal import Goal
from frontier_tuner.search.sampler import FrontierSampler
from frontier_tuner.search.search import Search, Started

KNOBS, VALUES, LOADS, RUNGS = 4, 10, 10, 5
SPACE = {f"x{knob}": IntDistribution(0, VALUES - 1) for knob in range(KNOBS)}
POINTS = np.array(list(itertools.product(range(VALUES), repeat=KNOBS)))
REPEATS = 3


def logs() -> Floats:
    """Return (n, L, 2) logarithms of speed and throughput."""
    rng = np.random.default_rng(0)
    effects = rng.normal(0, 0.2, (2, KNOBS, VALUES))
    level = sum(effects[:, knob, POINTS[:, knob]] for knob in range(KNOBS)).T
    load = np.linspace(0, 1, LOADS)[:, None] * np.array([-3.0, 3.0])
    return level[:, None] + load + rng.normal(0, 0.05, (len(POINTS), 1, 2))


def sampler(make: Callable[[], BaseSampler], trials: int) -> float:
    truth = logs().max(1)
    study = optuna.create_study(directions=["maximize", "maximize"], sampler=make())
    places = np.random.default_rng(1).permutation(len(POINTS))[:trials]
    for place in places:
        params = {f"x{knob}": int(value) for knob, value in enumerate(POINTS[place])}
        study.add_trial(optuna.create_trial(params=params, distributions=SPACE, values=truth[place].tolist()))
    begun = time.perf_counter()
    for _ in range(REPEATS):
        trial = study.ask(SPACE)
        place = int(sum(value * VALUES ** (KNOBS - 1 - knob) for knob, value in enumerate(trial.params.values())))
        study.tell(trial, truth[place].tolist())
    return (time.perf_counter() - begun) / REPEATS


def search(trials: int) -> float:
    truth = logs()
    guess = np.exp(truth + np.random.default_rng(2).normal(0, 0.2, truth.shape))
    bare = np.full(len(POINTS), np.nan)
    prediction = Prediction(
        ttft=1 / guess[..., 0], itl=1 / guess[..., 0], user_speed=guess[..., 0], throughput=guess[..., 1],
        memory=np.full(guess.shape[:2], np.nan), start_memory=bare, capacity=bare,
    )  # fmt: skip
    one = np.ones(len(POINTS))
    candidates = Candidates(
        configurations=tuple(Configuration.of({f"x{k}": int(v) for k, v in enumerate(point)}) for point in POINTS),
        knobs=tuple(Knob(f"x{knob}", "", ordered=True) for knob in range(KNOBS)),
        levels=POINTS, scale=POINTS.astype(float), gpus=one, ranks=one,
        concurrency=np.tile(np.geomspace(1, 512, LOADS), (len(POINTS), 1)), prediction=prediction,
    )  # fmt: skip
    rungs = tuple(range(0, LOADS, LOADS // RUNGS))
    places = np.random.default_rng(1).permutation(len(POINTS))[:trials]
    history = [Started(int(place), rungs, truth[place, list(rungs)]) for place in places]
    chooser = Search(candidates, Goal(("speed", "throughput"), (), 1))
    begun = time.perf_counter()
    chooser.choose(history)
    return time.perf_counter() - begun


METHODS: dict[str, Callable[[int], float]] = {
    "`FrontierSampler`": lambda trials: sampler(lambda: FrontierSampler(seed=1), trials),
    "`search.Search`": search,
    "Optuna's `TPESampler`": lambda trials: sampler(lambda: TPESampler(seed=1, multivariate=True), trials),
}


def measured(name: str, trials: int, out: Connection) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = METHODS[name](trials)
    out.send((seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def cell(name: str, trials: int, limit: float) -> str:
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=measured, args=(name, trials, send))
    process.start()
    answer = receive.recv() if receive.poll(limit) else None
    process.terminate()
    process.join()
    return f"> {limit:.0f} s" if answer is None else f"{answer[0]:.2f} s, {answer[1]:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--limit", type=float, default=300, help="seconds that a proposal may take")
    options = parser.parse_args()
    print("| one proposal among 10,000 |", " | ".join(f"{trials} trials" for trials in options.trials), "|")
    print("|---|" + "---|" * len(options.trials))
    for name in METHODS:
        print(
            f"| {name} |", " | ".join(cell(name, trials, options.limit) for trials in options.trials), "|", flush=True
        )


if __name__ == "__main__":
    main()
