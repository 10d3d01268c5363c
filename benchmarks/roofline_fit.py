"""How well the roofline predicts measured points, and the fit of its efficiencies to them.

    python benchmarks/roofline_fit.py SILICON_CSV                # how it does as it ships
    python benchmarks/roofline_fit.py SILICON_CSV --held-out     # fitted without each model, then asked about it
    python benchmarks/roofline_fit.py SILICON_CSV --fit          # fits, prints the constants of predict/efficiency.py

SILICON_CSV is `aiconfigurator_core/systems/silicon_sample.csv` of the wheel aiconfigurator-core 0.12.0 (Apache-2.0).
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from fitting import fit
from silicon import Point, predict, read_points

from frontier_tuner.predict.efficiency import EFFICIENCIES, Efficiencies, efficiencies_of

NOT_MEASURED = ("network_seconds", "eager_layer_seconds", "prefill_utilisation")
"""Constants that these points do not tell."""
START = replace(
    EFFICIENCIES, memory=0.8, memory_8bit=0.75, memory_4bit=0.65, cache=0.65, flops_16bit=0.65, flops_8bit=0.55,
    flops_8bit_block=0.45, flops_4bit=0.45, attention=0.45, sharpness=3.0, layer_seconds=12e-6, moe_layer_seconds=20e-6,
    latent_layer_seconds=10e-6, index_layer_seconds=10e-6, linear_layer_seconds=10e-6, quantize_seconds=8e-6,
    step_seconds=1e-3, sequence_seconds=5e-6, token_bytes=24.0, reduce_seconds=5e-6, exchange_seconds=15e-6, link=0.6,
    expert_spread=0.7, expert_skew=0.1, lockstep=0.3, arrival_seconds=0.03, burst=0.05, transfer_seconds=0.02,
)  # fmt: skip
"""What seemed plausible before any measured point was seen: every fit starts here, so that none knows more."""
OF_ENGINE = ("arrival_seconds", "burst", "step_seconds", "sequence_seconds")
"""Constants that differ between engines."""
SHARES = ("memory", "memory_8bit", "memory_4bit", "cache", "flops_16bit", "flops_8bit", "attention", "link")
MOST = 0.9
"""No kernel comes nearer to a data sheet; the file does not tell what precision a cache had, which can look so."""
LEVEL_WEIGHT = 0.4
TTFT_WEIGHT = 0.3
TTFT_LEVEL_WEIGHT = 0.15
TWO = 2
SPEED_FLOORS = (10, 20, 30, 40, 60, 80, 100, 150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit all constants, then those of each engine")
    parser.add_argument(
        "--held-out", nargs="*", metavar="MODEL", help="fit without each (of these) models, report on it"
    )
    parser.add_argument("--iterations", type=int, default=6)
    arguments = parser.parse_args()
    points = read_points(arguments.csv)
    print(f"{len(points)} points of {len({p.model for p in points})} models")
    if arguments.fit:
        fit_all(points, arguments.iterations)
    elif arguments.held_out is not None:
        held_out(points, arguments.held_out or models(points), arguments.iterations)
    else:
        report(points, [EFFICIENCIES] * len(points), "all engines alike")
        report(points, [efficiencies_of(p.engine) for p in points], "by engine")


def predict_each(points: Sequence[Point], efficiencies: Sequence[Efficiencies]) -> tuple[np.ndarray, np.ndarray]:
    ttft, itl = np.empty(len(points)), np.empty(len(points))
    for each in set(efficiencies):
        rows = [row for row, its in enumerate(efficiencies) if its == each]
        ttft[rows], itl[rows] = predict([points[row] for row in rows], each)
    return ttft, itl


# ---------------------------------------------------------------------------------------------------------- report
def report(points: Sequence[Point], efficiencies: Sequence[Efficiencies], title: str) -> None:
    started = time.perf_counter()
    ttft, itl = predict_each(points, efficiencies)
    print(f"\n{title} ({time.perf_counter() - started:.1f} s)")
    print("                                     n    bias  configurations   load  groups")
    for name, predicted, of in (("ITL", itl, lambda p: p.itl), ("TTFT", ttft, lambda p: p.ttft)):
        residuals = np.log(predicted) - np.log([of(p) for p in points])
        rows = [("aggregated", lambda p: p.deployment.prefill is None), ("P/D", lambda p: p.deployment.prefill)]
        rows += [(m, lambda p, m=m: p.model == m and p.deployment.prefill is None) for m in models(points)]
        for label, wanted in rows:
            chosen = [row for row, p in enumerate(points) if wanted(p)]
            if chosen:
                print(f"{name:5s}{label:30s}", spread([points[row] for row in chosen], residuals[chosen]))
    choices(points, ttft, itl)


def models(points: Sequence[Point]) -> list[str]:
    return sorted({p.model for p in points})


def spread(points: Sequence[Point], residuals: np.ndarray) -> str:
    """Return bias and standard deviations of a log ratio: between configurations, over load, between groups."""
    groups = defaultdict(lambda: defaultdict(list))
    for point, residual in zip(points, residuals, strict=True):
        groups[point.group][point.deployment].append(residual)
    between, over_load, level = [], [], []
    for configurations in groups.values():
        means = np.array([np.mean(each) for each in configurations.values()])
        level.append(means.mean())
        if len(means) > 1:
            between.extend(means - means.mean())
        for each in configurations.values():
            if len(each) > 1:
                over_load.extend(np.array(each) - np.mean(each))
    deviations = [np.std(each) if len(each) > 1 else np.nan for each in (between, over_load, level)]
    bias = float(np.exp(np.median(residuals)))
    return f"{len(points):5d}  {bias:5.2f}  {deviations[0]:14.3f}  {deviations[1]:5.3f}  {deviations[2]:6.3f}"


def choices(points: Sequence[Point], ttft: np.ndarray, itl: np.ndarray) -> None:
    """Print what the predicted best configuration of each group is worth at speed floors, against the real best."""
    groups = defaultdict(lambda: defaultdict(list))
    for row, point in enumerate(points):
        groups[point.group][point.deployment].append(row)
    worth, first, chance, ranks = [], [], [], []
    for configurations in groups.values():
        if len(configurations) < TWO:
            continue
        ranks.extend(correlations(points, list(configurations.values()), itl))
        for floor in SPEED_FLOORS:
            real = [best(points, rows, [points[r].ttft for r in rows], [points[r].itl for r in rows], floor)
                    for rows in configurations.values()]  # fmt: skip
            said = [best(points, rows, ttft[rows], itl[rows], floor) for rows in configurations.values()]
            if max(real) > 0 and max(said) > 0:
                pick = int(np.argmax(said))
                worth.append(real[pick] / max(real))
                first.append(real[pick] >= 0.95 * max(real))
                chance.append(np.mean(real) / max(real))
    if not worth:
        return
    print(
        f"choosing at a speed: {len(worth)} choices, the pick is worth {np.mean(worth):.3f} of the best "
        f"(median {np.median(worth):.2f}, worst tenth {np.quantile(worth, 0.1):.2f}), within 5 % in "
        f"{np.mean(first):.2f}, by chance {np.mean(chance):.3f}; rank correlation at one load {np.mean(ranks):.3f}"
    )


def best(points: Sequence[Point], rows: Sequence[int], ttft, itl, floor: float) -> float:  # noqa: ANN001
    """Return the highest throughput per GPU at which a user is fast enough, by Little's law; 0 where none is."""
    found = [0.0]
    for row, first, between in zip(rows, ttft, itl, strict=True):
        point = points[row]
        if 1 / between >= floor:
            tokens = point.traffic.output_tokens
            found.append(point.concurrency * tokens / (first + between * tokens) / point.deployment.gpus)
    return max(found)


def correlations(points: Sequence[Point], configurations: Sequence[Sequence[int]], itl: np.ndarray) -> list[float]:
    loads = defaultdict(list)
    for rows in configurations:
        for row in rows:
            loads[points[row].concurrency].append(row)
    found = []
    for rows in loads.values():
        real, said = np.array([points[row].itl for row in rows]), itl[rows]
        if len(rows) > TWO and np.std(said) > 0 and np.std(real) > 0:
            place = [np.argsort(np.argsort(values)) for values in (real, said)]
            found.append(float(np.corrcoef(*place)[0, 1]))
    return found


# ------------------------------------------------------------------------------------------------------------- fit
def residuals_of(
    points: Sequence[Point], names: Sequence[str], base: Efficiencies, itl_weight: float = 1.0
) -> Callable[[np.ndarray], np.ndarray]:
    """Return what to make small: how groups are ordered inside counts most, their level less, TTFT least."""
    numbers: dict[object, int] = {}
    group = np.array([numbers.setdefault(p.group, len(numbers)) for p in points])
    count = np.bincount(group)
    weight = np.sqrt(1 / np.sqrt(count[group]))
    weight /= np.sqrt(np.mean(weight**2))
    measured_itl, measured_ttft = np.log([p.itl for p in points]), np.log([p.ttft for p in points])

    def residuals(at: np.ndarray) -> np.ndarray:
        ttft, itl = predict(points, changed(base, names, at))
        itl, ttft = np.log(itl) - measured_itl, np.log(ttft) - measured_ttft
        itl_level, ttft_level = (np.bincount(group, each)[group] / count[group] for each in (itl, ttft))
        parts = (
            itl_weight * (itl - itl_level), itl_weight * LEVEL_WEIGHT * itl,
            TTFT_WEIGHT * (ttft - ttft_level), TTFT_LEVEL_WEIGHT * ttft,
        )  # fmt: skip
        return np.concatenate([part * weight for part in parts])

    return residuals


def changed(base: Efficiencies, names: Sequence[str], at: np.ndarray) -> Efficiencies:
    """Return the efficiencies with constants of these logarithms, shares of a data sheet below what is possible."""
    values = {name: float(np.exp(each)) for name, each in zip(names, at, strict=True)}
    return replace(base, **{name: min(value, MOST) if name in SHARES else value for name, value in values.items()})


def fitted(points: Sequence[Point], names: Sequence[str], base: Efficiencies, iterations: int) -> Efficiencies:
    start = np.log([getattr(base, name) for name in names])
    began = time.perf_counter()

    def tell(iteration: int, loss: float) -> None:
        print(f"  step {iteration}: loss {loss:.2f}, {time.perf_counter() - began:.0f} s", flush=True)

    found = fit(residuals_of(points, names, base), start, iterations=iterations, report=tell)
    return changed(base, names, found)


def names_of_all() -> list[str]:
    return [field.name for field in fields(Efficiencies) if field.name not in NOT_MEASURED]


def fit_all(points: Sequence[Point], iterations: int) -> None:
    every = fitted(points, names_of_all(), START, iterations)
    for name in names_of_all():
        print(f"    {name}: float = {getattr(every, name):.4g}")
    by_engine = {}
    for engine in sorted({p.engine for p in points}):
        own = fitted([p for p in points if p.engine == engine], OF_ENGINE, every, iterations)
        by_engine[engine] = own
        print(f'    "{engine}": ' + ", ".join(f"{name}={getattr(own, name):.4g}" for name in OF_ENGINE))
    report(points, [every] * len(points), "fitted, all engines alike")
    report(points, [by_engine[p.engine] for p in points], "fitted by engine")


def held_out(points: Sequence[Point], without: Sequence[str], iterations: int) -> None:
    """Fit without each model in turn, and tell how its points are predicted then."""
    asked = [point for point in points if point.model in without]
    efficiencies = [EFFICIENCIES] * len(asked)
    for model in without:
        print(f"without {model}")
        found = fitted([p for p in points if p.model != model][::2], names_of_all(), START, iterations)
        efficiencies = [found if p.model == model else each for p, each in zip(asked, efficiencies, strict=True)]
        own = [point for point in points if point.model == model]
        report(own, [found] * len(own), f"held out: {model}")
    report(asked, efficiencies, "held-out models")


if __name__ == "__main__":
    main()
