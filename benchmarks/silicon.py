"""Reads measured points of real engines, in the form of aiconfigurator-core's `systems/silicon_sample.csv`.

That file (0.12.0, Apache-2.0) holds points of public benchmark runs: model, system, engine, precision, layout, lengths,
concurrency, and the mean TTFT and TPOT.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.facts_weights import BLOCK_SCALED
from frontier_tuner.predict.deployment import Deployment, Pool
from frontier_tuner.predict.efficiency import Efficiencies
from frontier_tuner.predict.precision import CHECKPOINT, PRECISIONS, normalised
from frontier_tuner.predict.roofline import Roofline, Traffic

SYSTEMS = {
    "h100_sxm": "H100", "h200_sxm": "H200", "b200_sxm": "B200", "b300_sxm": "B300", "gb200": "GB200", "gb300": "GB300",
}  # fmt: skip
STEP_TOKENS = 8192
"""The default step budget of the engines on these systems; the file does not say what was set."""
MEAN_LENGTH = 0.9
"""Runs of that benchmark draw lengths uniformly between 0.8 and 1 of the nominal one."""
HIDDEN_LIMIT = 0.3
"""A request that waits longer than this share of its decoding met a limit on sequences that the file does not tell."""
LARGEST_WORKER = 16
"""Aggregated rows beyond it are sums over workers."""


@dataclass(frozen=True)
class Point:
    """One measured point.

    Attributes:
        model: The model's name.
        system: The system's name in the file.
        engine: The engine's name.
        workload: Nominal input and output length.
        deployment: What ran.
        concurrency: Requests in flight.
        traffic: Mean lengths.
        ttft: Seconds to the first token.
        itl: Seconds between tokens.
    """

    model: str
    system: str
    engine: str
    workload: tuple[int, int]
    deployment: Deployment
    concurrency: float
    traffic: Traffic
    ttft: float
    itl: float

    @property
    def group(self) -> tuple[object, ...]:
        """Points that a user would choose among."""
        return (self.model, self.system, self.engine, self.workload)


def read_points(path: Path) -> list[Point]:
    """Return the points that can be told, without rows whose layout contradicts itself."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not _unclear(row)]
    # The same runs come under several names.
    found = {(row["silicon_ttft_ms"], row["silicon_tpot_ms"]): _point(row) for row in rows}
    return [point for point in found.values() if point is not None and fits(point)]


def _unclear(row: dict[str, str]) -> bool:
    """Tell rows that say too little about what ran.

    Those of DeepSeek-R1 mix runs with and without multi-token prediction. Some small sets ran several replicas.
    """
    return row["model_path"] == "deepseek-ai/DeepSeek-R1" or row["model_path"].startswith("nvidia/")


def _point(row: dict[str, str]) -> Point | None:
    concurrency = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    ttft, itl = float(row["silicon_ttft_ms"] or 0) / 1e3, float(row["silicon_tpot_ms"] or 0) / 1e3
    deployment = _deployment(row)
    isl, osl = int(row["isl"]), int(row["osl"])
    if not concurrency or deployment is None or ttft <= 0 or itl <= 0:
        return None
    if deployment.prefill is None and ttft > HIDDEN_LIMIT * itl * osl:
        return None
    drawn = "source_file=2026" in row["silicon_data_source"] or "db-dump" in row["silicon_data_source"]
    share = MEAN_LENGTH if drawn else 1.0
    return Point(
        model=row["model_path"],
        system=row["system"],
        engine=row["backend"],
        workload=(isl, osl),
        deployment=deployment,
        concurrency=float(concurrency[1]),
        traffic=Traffic(isl * share, osl * share),
        ttft=ttft,
        itl=itl,
    )


def _deployment(row: dict[str, str]) -> Deployment | None:
    split = row["mode"] == "disagg"
    decode = _pool(row, "decode_" if split else "", row["model_path"])
    prefill = _pool(row, "prefill_", row["model_path"]) if split else None
    if decode is None or (split and prefill is None):
        return None
    if not split and decode.gpus_per_worker > LARGEST_WORKER:
        return None
    dense, experts = _precisions(row)
    return Deployment(
        decode=decode,
        prefill=prefill,
        dense=dense,
        experts=experts,
        cache=_cache(row),
        gpu_memory_fraction=0.95,
        step_tokens=0 if split else STEP_TOKENS,
    )


def _precisions(row: dict[str, str]) -> tuple[str, str]:
    """Return the formats of dense weights and experts; 8-bit checkpoints of these makers are scaled by blocks."""
    dense, experts = normalised(row["gemm_quant_mode"]), normalised(row["moe_quant_mode"])
    model = model_facts(row["model_path"])
    if row["model_path"].startswith("openai/"):
        return CHECKPOINT, CHECKPOINT
    by_block = row["precision"] == "fp8" and row["model_path"].lower().startswith(BLOCK_SCALED)
    if by_block and row["model_path"] != "Qwen/Qwen3-32B":
        return "fp8_block", "fp8_block"
    if dense == "fp8":
        return "fp8_static", "fp8_static"
    if model.experts and dense in ("nvfp4", "int4_weights"):
        return "bf16", experts  # what those checkpoints leave of attention
    return dense, experts if experts != CHECKPOINT else dense


def _cache(row: dict[str, str]) -> str:
    return "fp8" if row["backend"] == "trtllm" and row["precision"] in ("fp8", "fp4") else CHECKPOINT


def _pool(row: dict[str, str], prefix: str, model: str) -> Pool | None:
    def number(name: str) -> int:
        return max(1, int(float(row[f"{prefix}{name}"] or 1)))

    tensor, data, expert = number("tp_size"), number("attention_dp_size"), number("moe_ep_size")
    # Where experts are spread, some rows count their ranks twice: as tensor ranks or attention ranks, and again.
    if data > 1 and tensor == data:
        tensor, expert = 1, min(expert, data)
    elif expert > 1 and number("moe_tp_size") == expert and tensor * data == expert**2:
        tensor, data = (expert, 1) if data == 1 else (1, expert)
    group = tensor * data
    if group & (group - 1) or (model_facts(model).experts and group % expert):
        return None
    workers = number("num_workers") if prefix else 1
    return Pool(tensor, number("pp_size"), data, group // expert, expert, workers)


def fits(point: Point) -> bool:
    """Tell whether a point's weights fit its GPUs at all; where they do not, the file names too few of them."""
    facts, pool = model_facts(point.model), point.deployment.decode
    bits = PRECISIONS[point.deployment.experts].bits if point.deployment.experts != CHECKPOINT else facts.weight_bits
    each = facts.parameters() * bits / 8 / pool.gpus_per_worker
    return each < gpu_facts(SYSTEMS[point.system]).memory_bytes


def predict(points: Iterable[Point], efficiencies: Efficiencies) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted seconds to the first token and between tokens, in the order of the points."""
    points = list(points)
    batches = defaultdict(list)
    for index, point in enumerate(points):
        batches[point.system, point.traffic].append(index)
    ttft, itl = np.empty(len(points)), np.empty(len(points))
    for (system, traffic), rows in batches.items():
        members = [points[row] for row in rows]
        roofline = Roofline(
            {member.model: model_facts(member.model) for member in members},
            gpu_facts(SYSTEMS[system]),
            traffic,
            lambda configuration, members=members: members[configuration.integer("row")].deployment,
            efficiencies,
        )
        configurations = [Configuration.of({"row": at, "variant": each.model}) for at, each in enumerate(members)]
        answer = roofline.predict(configurations, np.array([[each.concurrency] for each in members]))
        ttft[rows], itl[rows] = answer.ttft[:, 0], answer.itl[:, 0]
    return ttft, itl
