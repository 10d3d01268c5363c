"""The demo's words: rows and tables from API objects, and what must be true at the end. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontier_local.demo.scenario import Scenario

Manifest = Mapping[str, Any]

COST = ("cost per million output tokens", "CostPerMillionOutputTokens", None)
THROUGHPUT = ("output tokens/s per GPU", "OutputTokensPerSecondPerGPU", None)


def condition(manifest: Manifest, kind: str) -> Mapping[str, Any]:
    """Return a condition of an object, empty where it has none of that type."""
    for item in (manifest.get("status") or {}).get("conditions") or []:
        if item["type"] == kind:
            found: Mapping[str, Any] = item
            return found
    return {}


def is_true(manifest: Manifest, kind: str) -> bool:
    """Return whether a condition is True."""
    return condition(manifest, kind).get("status") == "True"


def metric(metrics: Sequence[Mapping[str, Any]], name: str, percentile: int | None = None) -> float | None:
    """Return a metric's value, or None where it is unknown."""
    for item in metrics:
        if item["name"] == name and item.get("percentile") == percentile:
            return float(item["value"])
    return None


def configuration(values: Mapping[str, str]) -> str:
    """Return a configuration in one line, in short words."""
    short = {
        "tensorParallelSize": "tp",
        "pipelineParallelSize": "pp",
        "dataParallelSize": "dp",
        "maxNumSeqs": "seqs",
        "maxNumBatchedTokens": "tokens",
        "kvCacheDtype": "kv",
        "enablePrefixCaching": "prefix",
        "enableChunkedPrefill": "chunked",
        "numSpeculativeTokens": "spec",
        "gpuMemoryUtilizationPercent": "mem",
        "enableExpertParallel": "ep",
    }
    return " ".join(f"{short.get(name, name)}={value}" for name, value in sorted(values.items()))


def trial_row(trial: Manifest) -> str:
    """Return one line about a finished trial: outcome, configuration, and its best rung or its failure."""
    spec, status = trial["spec"], trial.get("status") or {}
    head = f"{spec['number']:>3} {spec['purpose']:<12} {status['outcome']:<10} {spec['gpus']} GPU  "
    head += f"{configuration(spec['configuration']):<60}"
    failure = status.get("failure")
    if failure:
        return f"{head} {failure['reason']}: {failure['message'][:80]}"
    rungs = [item for item in status.get("measurements") or [] if item["valid"]]
    if not rungs:
        return f"{head} no valid rung"
    peak = max(rungs, key=lambda item: metric(item["metrics"], "OutputTokensPerSecondPerGPU") or 0.0)
    return f"{head} {len(rungs)} rungs, up to {measured(peak)}"


def measured(rung: Mapping[str, Any]) -> str:
    """Return a rung in one line."""
    metrics = rung["metrics"]
    load = rung["load"]
    words = [f"{load['value']} {'concurrent' if load['kind'] == 'Concurrency' else 'req/s'}:"]
    throughput = metric(metrics, "OutputTokensPerSecondPerGPU")
    speed = metric(metrics, "UserTokensPerSecond", 50)
    ttft, itl = metric(metrics, "TTFT", 95), metric(metrics, "ITL", 95)
    cost = metric(metrics, "CostPerMillionOutputTokens")
    words += [f"{throughput:.0f} tok/s/GPU"] if throughput is not None else []
    words += [f"{speed:.0f} tok/s/user"] if speed is not None else []
    words += [f"TTFT p95 {ttft * 1000:.0f} ms"] if ttft is not None else []
    words += [f"ITL p95 {itl * 1000:.1f} ms"] if itl is not None else []
    words += [f"{cost:.3f}/Mtok"] if cost is not None else []
    return " ".join(words)


@dataclass(frozen=True)
class Ending:
    """How the demo ended: sentences to print, and what is not as it must be."""

    lines: tuple[str, ...]
    failures: tuple[str, ...]


def ending(scenario: Scenario, deployment: Manifest, trials: Sequence[Manifest]) -> Ending:
    """Return what the finished demo shows, and every expectation that it misses."""
    status = deployment.get("status") or {}
    incumbent, baseline = status.get("incumbent") or {}, status.get("baseline") or {}
    frontier = status.get("frontier") or []
    failures = []
    if not is_true(deployment, "Ready"):
        failures.append("the InferenceDeployment is not Ready")
    if len(trials) < scenario.min_trials:
        failures.append(f"{len(trials)} trials ran, {scenario.min_trials} were expected")
    if len(frontier) < scenario.min_frontier:
        failures.append(f"the frontier has {len(frontier)} points, {scenario.min_frontier} were expected")
    if incumbent.get("configurationHash") == baseline.get("configurationHash"):
        failures.append("the incumbent is still the baseline")
    lines = [
        f"baseline   {configuration(baseline.get('configuration') or {})}",
        f"incumbent  {configuration(incumbent.get('configuration') or {})}",
    ]
    policy = (status.get("selection") or {}).get("policy", "MinCost")
    aim, factor = target_factor(policy, baseline, incumbent)
    if factor is None:
        failures.append(f"baseline and incumbent have no measured {aim} to compare")
    else:
        lines.append(f"better on the target ({aim}) by a factor of {factor:.2f}")
        if factor <= 1:
            failures.append("the incumbent is not better than the baseline on the target")
    return Ending(tuple(lines), tuple(failures))


def target_factor(policy: str, baseline: Mapping[str, Any], incumbent: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return what a policy aims at, and how much better the incumbent's operating point is; None where unknown."""
    before, after = ((side.get("measured") or {}).get("metrics") or [] for side in (baseline, incumbent))
    aims = {"MinLatency": ("tokens/s of a user", "UserTokensPerSecond", 50), "MaxThroughput": THROUGHPUT}
    aim, name, percentile = aims.get(policy, COST)
    old, new = metric(before, name, percentile), metric(after, name, percentile)
    if not old or not new:
        return aim, None
    return aim, old / new if (aim, name, percentile) == COST else new / old
