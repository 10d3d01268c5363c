"""Compare search methods on every plant table of a directory and write the tables of docs/benchmarks.md.

    python benchmarks/search.py TABLES RESULTS --markdown docs/benchmarks-search.md --jobs 2

A table's name says what it is of: `MODEL_GPU_ENGINE_islN_oslN[_prefixN].csv.gz`. Its SLOs come from `GOALS`, or from
`--slo` where the model is not listed. Each combination of table, policy and regime is one record in RESULTS, in the
form of `frontier bench --json`; what a record already has is not run again, so a run can be interrupted and widened.

Regimes: `right` (the roofline's prior), `wrong` (the same with errors by technique and no memory figure), `none` (no
prior) and `bentN` (the roofline's prior, truth bent with seed N). Methods that see no prior run once for the first
three.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from frontier_tuner.bench import priors, results, runner
from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.bend import bend
from frontier_tuner.bench.goal import make_goal
from frontier_tuner.bench.methods import names_of
from frontier_tuner.bench.report import Row, marks, summary
from frontier_tuner.bench.score import Score, Scorer
from frontier_tuner.bench.tables import Table, read_table

GOALS = {
    "qwen3-32b": ("TTFT<=1500ms", "UserTokensPerSecond>=40"),
    "qwen3-235b-a22b": ("TTFT<=2000ms", "UserTokensPerSecond>=50"),
}
INFORMED = ("ours", "prior", "tpe+prior")
"""Methods to which a prior makes a difference."""
NEED_PRIOR = ("prior", "tpe+prior")
NAME = re.compile(
    r"(?P<model>.+)_(?P<gpu>[^_]+)_(?P<engine>[^_]+)_isl(?P<isl>\d+)_osl(?P<osl>\d+)(_prefix(?P<prefix>\d+))?"
)

Logs = dict[str, dict[int, list[StartLog]]]


@dataclass(frozen=True)
class Case:
    """One table under one policy."""

    name: str
    policy: str
    table: Table
    served: priors.Served
    slos: tuple[str, ...]


def main() -> None:
    options = parse()
    methods = names_of(options.methods)
    cases = list(read_cases(options))
    options.results.mkdir(parents=True, exist_ok=True)
    parts = [f"{options.seeds} seeds, noise {options.noise:g}, {options.starts} starts; mean / worst run.\n"]
    for regime in options.regimes.split(","):
        scores: dict[str, dict[str, list[Score]]] = {}
        for case in cases:
            scores[f"{case.name}, {case.policy}"] = judge(case, regime, methods, options)
        parts.append(markdown(regime, scores))
        print(parts[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(parts))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--methods", default="ours,random,tpe,tpe-point,gp,nsga2,botorch,prior,tpe+prior")
    parser.add_argument("--policies", default="MaxThroughput,MinLatency,Knee")
    parser.add_argument("--regimes", default="right,wrong,none,bent1,bent2,bent3")
    parser.add_argument("--slo", action="append", default=[], help="For tables whose model GOALS does not list.")
    parser.add_argument("--starts", type=int, default=48)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.04)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def read_cases(options: argparse.Namespace) -> Iterator[Case]:
    for path in sorted(options.tables.glob("*.csv*")):
        match = NAME.match(path.name)
        if match is None:
            raise SystemExit(f"{path.name} does not say what it is of; name it MODEL_GPU_ENGINE_islN_oslN.csv.gz")
        slos = GOALS.get(match["model"], tuple(options.slo))
        if not slos:
            raise SystemExit(f"no SLOs are known for {match['model']}; give them with --slo")
        served = priors.Served(
            match["model"], None, match["gpu"], int(match["isl"]), int(match["osl"]), int(match["prefix"] or 0)
        )
        table = read_table(path)
        for policy in options.policies.split(","):
            yield Case(path.name.split(".csv")[0], policy, table, served, slos)


def judge(case: Case, regime: str, methods: Sequence[str], options: argparse.Namespace) -> dict[str, list[Score]]:
    """Run what is missing and return each method's scores."""
    seed = regime.removeprefix("bent")
    table = bend(case.table, int(seed)) if regime.startswith("bent") else case.table
    goal = make_goal(case.policy, case.slos, output_tokens=case.served.output_tokens)
    scorer = Scorer(table, goal)
    found: dict[str, list[Score]] = {}
    for method in methods:
        if regime == "none" and method in NEED_PRIOR:
            continue
        # Without a prior to look at, a method does the same in each of the unbent regimes.
        blind = method not in INFORMED and not regime.startswith("bent")
        logs = run(case, table, "none" if blind else regime, method, options)
        found[method] = [scorer.score(logs[each], marks(options.starts)) for each in range(options.seeds)]
    return found


def run(case: Case, table: Table, regime: str, method: str, options: argparse.Namespace) -> dict[int, list[StartLog]]:
    """Return a method's logs, from the record as far as it has them."""
    path = options.results / f"{case.name}.{case.policy}.{regime}.json"
    logs: Logs = results.decode(json.loads(path.read_text()), table) if path.exists() else {}
    known = {seed: log for seed, log in logs.get(method, {}).items() if len(log) >= options.starts}
    missing = [seed for seed in range(options.seeds) if seed not in known]
    if missing:
        kind: priors.PriorKind = "none" if regime == "none" else "wrong" if regime == "wrong" else "roofline"
        prediction = None if kind == "none" else priors.roofline(table, case.served)
        goal = make_goal(case.policy, case.slos, output_tokens=case.served.output_tokens)
        experiment = runner.Experiment(table, goal, options.starts, options.noise, kind, prediction)
        known |= runner.run(experiment, [method], missing, jobs=options.jobs)[method]
        results.write(path, results.encode({**logs, method: known}, table))
    return {seed: log[: options.starts] for seed, log in known.items()}


def markdown(regime: str, scores: dict[str, dict[str, list[Score]]]) -> str:
    """Return a regime's tables: all cases together, then each."""
    methods = list(dict.fromkeys(method for case in scores.values() for method in case))
    pooled = {method: [score for case in scores.values() for score in case[method]] for method in methods}
    parts = [f"## {regime}\n", grid(pooled)]
    for name, case in scores.items():
        parts += [f"\n### {name}\n", grid(case)]
    return "\n".join(parts) + "\n"


def grid(scores: dict[str, list[Score]]) -> str:
    """Return one table: a row for each method, hypervolume and target at each mark, then what it cost."""
    tables = {method: summary(method, each) for method, each in scores.items()}
    starts = [row.starts for row in next(iter(tables.values()))]
    heads = ["method", *(f"hv @{n}" for n in starts), *(f"target @{n}" for n in starts), "GPU-h to 0.95", "s/start"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for method, rows in tables.items():
        cells = [f"`{method}`", *(pair(row.hypervolume) for row in rows), *(pair(row.target) for row in rows)]
        lines.append("| " + " | ".join([*cells, hours(rows[-1]), f"{rows[-1].seconds:.2f}"]) + " |")
    return "\n".join(lines)


def pair(values: tuple[float, float]) -> str:
    return f"{values[0]:.2f} / {values[1]:.2f}"


def hours(row: Row) -> str:
    median = "-" if row.hours_to_target is None else f"{row.hours_to_target:.0f}"
    return f"{median} ({row.reached:.0%})"


if __name__ == "__main__":
    main()
