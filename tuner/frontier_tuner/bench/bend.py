"""A bent world: the truth of a table times an error field as large as that between a good predictor and silicon.

The field is structured the way such errors are: most of it belongs to single knob levels (a kernel slower than its
model says on this GPU), the rest to one combination of layout and precision.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from frontier_tuner.bench.tables import Table, Truth
from frontier_tuner.predict import Floats

BETWEEN, OVER_LOAD, ON_TTFT, COMMON_ON_TTFT = 0.185, 0.158, 0.30, 0.4
"""Standard deviations of the logarithm: between configurations, over load within one, on the time to first token
between configurations, and of the one factor on it that all share."""
ADDITIVE = 0.6
"""Share of the variance that adds up over knob levels."""
SEED_OFFSET = 4242
ALONE = ("mode", "gemm", "moe", "kvcache", "tp", "moe_ep", "attention_dp", "nextn", "ctx_tokens", "p_tp")
TOGETHER = ("mode", "tp", "pp", "attention_dp", "moe_ep", "gemm", "moe", "p_tp", "p_dp")


def bend(table: Table, seed: int) -> Table:
    """Return the table with another truth: seeded, so that everyone who draws in this order meets the same world.

    Draws come from `default_rng(seed + 4242)`: an effect between configurations, one over load, one on the time to
    first token, then its common factor. Each effect draws one standard normal for each level of the knobs of `ALONE`
    that vary, in the order of the levels' text, then one for each combination of the knobs of `TOGETHER`. The
    logarithm of the load has mean 0 and standard deviation 1 over the levels. Speeds fall as times grow; half of that
    reaches the time to first token besides its own effect.
    """
    rng = np.random.default_rng(seed + SEED_OFFSET)
    load = np.log(table.batches)
    spread = load.std()
    load = (load - load.mean()) / spread if spread > 0 else np.zeros_like(load)
    slower = _effect(table, rng, BETWEEN)[:, None] + _effect(table, rng, OVER_LOAD)[:, None] * load
    later = _effect(table, rng, ON_TTFT)[:, None] + rng.normal() * COMMON_ON_TTFT
    truth = table.truth
    bent = Truth(
        ttft=truth.ttft * np.exp(slower * 0.5 + later),
        itl=truth.itl * np.exp(slower),
        user_speed=truth.user_speed * np.exp(-slower),
        throughput=truth.throughput * np.exp(-slower),
    )
    return replace(table, truth=bent)


def _effect(table: Table, rng: np.random.Generator, deviation: float) -> Floats:
    """Return (n,) logarithms of this standard deviation."""
    alone = np.zeros(len(table))
    for name in ALONE:
        labels = _labels(table, name)
        if len({*labels}) > 1:
            alone += _drawn(labels, rng)
    size = alone.std()
    together = _drawn(["-".join(each) for each in zip(*(_labels(table, k) for k in TOGETHER), strict=True)], rng)
    own = alone / size if size > 0 else alone
    return np.asarray(own * deviation * ADDITIVE**0.5 + together * deviation * (1 - ADDITIVE) ** 0.5)


def _labels(table: Table, name: str) -> list[str]:
    return [str(value) for value in table.column(name, "none" if name == "moe" else 0)]


def _drawn(labels: Sequence[str], rng: np.random.Generator) -> Floats:
    drawn = {label: rng.normal() for label in sorted({*labels})}
    return np.array([drawn[label] for label in labels])
