"""Plant tables that tests write themselves."""

import csv

from frontier_tuner.bench.tables import COLUMNS, read_table

AGG = {
    "mode": "agg", "gpus": 2, "tp": 2, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "gemm": "bfloat16",
    "kvcache": "bfloat16", "moe": "", "nextn": 0, "ctx_tokens": 2048, "p_tp": "", "p_pp": "", "p_dp": "",
    "p_moe_tp": "", "p_moe_ep": "", "p_workers": "", "d_workers": "",
}  # fmt: skip
DISAGG = AGG | {
    "mode": "disagg", "gpus": 3, "ctx_tokens": "", "p_tp": 1, "p_pp": 1, "p_dp": 1, "p_moe_tp": 1, "p_moe_ep": 1,
    "p_workers": 1, "d_workers": 1,
}  # fmt: skip


def row(engine, batch, ttft_ms=100.0, speed=100.0, throughput=50.0, status="ok", **knobs):
    """Return one row; knobs default to an aggregated engine on two GPUs."""
    base = DISAGG if knobs.get("mode") == "disagg" else AGG
    return {
        **base, "engine_id": engine, "batch": batch, "concurrency": batch, "status": status, "ttft_ms": ttft_ms,
        "tpot_ms": 1000 / speed, "tok_s_user": speed, "tok_s_gpu": throughput, **knobs,
    }  # fmt: skip


def write_table(path, rows, columns=COLUMNS):
    """Write the rows as a table and return its path."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def table_of(folder, rows):
    """Return the table that these rows make."""
    return read_table(write_table(folder / "plant.csv", rows))


def small_rows():
    """Return three engines: a slow one with much throughput, a fast one, and one that is out of memory."""
    return [
        row("big", 1, 100, 60, 30, tp=4, gpus=4, ctx_tokens=4096),
        row("big", 4, 200, 50, 90, tp=4, gpus=4, ctx_tokens=4096),
        row("big", 16, 900, 20, 200, tp=4, gpus=4, ctx_tokens=4096),
        row("fast", 1, 50, 120, 40),
        row("fast", 4, 150, 80, 60),
        row("fast", 16, 300, 70, 70, status="kv_oom"),
        row("dead", 1, 90, 90, 90, status="oom", tp=1, gpus=1),
        row("dead", 4, 90, 90, 90, status="oom", tp=1, gpus=1),
    ]
