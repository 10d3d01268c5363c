from itertools import product

import numpy as np
import pytest

from frontier_tuner.bench.bend import BETWEEN, ON_TTFT, OVER_LOAD, bend
from support.plant_tables import row, table_of

BATCHES = (1, 2, 4, 8, 16, 32, 64)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a few hundred engines whose truth is one constant, so that a bent truth shows the field itself."""
    engines = list(product((1, 2, 4, 8), (1, 2, 4), ("bfloat16", "fp8", "fp8_block"), ("bfloat16", "fp8"), (512, 2048)))
    rows = [
        row(f"e{n}", batch, tp=tp, pp=pp, gemm=gemm, kvcache=kv, ctx_tokens=ctx)
        for n, (tp, pp, gemm, kv, ctx) in enumerate(engines)
        for batch in BATCHES
    ]
    return table_of(tmp_path_factory.mktemp("bend"), rows)


def logs(table, seed, name):
    return np.log(getattr(bend(table, seed).truth, name) / getattr(table.truth, name))


def test_the_field_has_the_stated_spread(table):
    slower = np.stack([-logs(table, seed, "throughput") for seed in range(40)])
    load = np.log(BATCHES)
    load = (load - load.mean()) / load.std()
    # The load is centred, so the mean over it is the effect between configurations and the slope is the other.
    assert slower.mean(axis=2).std(axis=1).mean() == pytest.approx(BETWEEN, rel=0.15)
    assert (slower @ load / len(load)).std(axis=1).mean() == pytest.approx(OVER_LOAD, rel=0.15)


def test_the_field_on_the_first_token_adds_its_own_and_a_common_factor(table):
    own = np.stack([logs(table, s, "ttft") + 0.5 * logs(table, s, "throughput") for s in range(40)])
    assert np.ptp(own, axis=2).max() < 1e-9
    per_engine = own[:, :, 0]
    assert per_engine.std(axis=1).mean() == pytest.approx(ON_TTFT, rel=0.2)
    assert 0.2 < per_engine.mean(axis=1).std() < 0.7


def test_three_fifths_of_the_variance_add_up_over_knob_levels(table):
    names = ("tp", "pp", "gemm", "kvcache", "ctx_tokens")
    columns = [[str(value) for value in table.column(name, 0)] for name in names if name != "pp"]
    design = np.concatenate([[[v == level for v in c] for level in sorted({*c})] for c in columns]).T.astype(float)
    shares = []
    for seed in range(40):
        field = -logs(table, seed, "throughput").mean(1)
        fitted = design @ np.linalg.lstsq(design, field, rcond=None)[0]
        shares.append(1 - (field - fitted).var() / field.var())
    # Combinations are drawn for 36 pairs of layout and weight precision, so main effects explain some of those too.
    assert 0.6 < np.mean(shares) < 0.85


def test_speeds_move_against_times(table):
    truth, bent = table.truth, bend(table, 1).truth
    assert bent.itl * bent.user_speed == pytest.approx(truth.itl * truth.user_speed)
    assert bent.throughput / truth.throughput == pytest.approx(bent.user_speed / truth.user_speed)


def test_the_same_seed_bends_the_same_and_another_does_not(table):
    one, same, other = (bend(table, seed).truth.ttft for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)


def test_the_draws_are_those_that_the_docstring_states(tmp_path):
    """Repeats the stated order of draws by hand on two engines that differ in one knob."""
    table = table_of(tmp_path, [row(e, b, tp=tp) for e, tp in (("a", 1), ("b", 2)) for b in (1, 4)])
    rng = np.random.default_rng(7 + 4242)

    def effect(deviation):
        alone = np.array([rng.normal(), rng.normal()])
        together = np.array([rng.normal(), rng.normal()])
        return alone / alone.std() * deviation * 0.6**0.5 + together * deviation * 0.4**0.5

    slower = effect(0.185)[:, None] + effect(0.158)[:, None] * np.array([-1.0, 1.0])
    later = effect(0.30)[:, None] + rng.normal() * 0.4
    bent = bend(table, 7).truth
    assert bent.throughput == pytest.approx(50 * np.exp(-slower))
    assert bent.ttft == pytest.approx(0.1 * np.exp(slower / 2 + later))


def test_what_an_engine_does_not_serve_stays_unserved(tmp_path):
    table = table_of(tmp_path, [row("a", 1), row("a", 4, status="kv_oom"), row("b", 1, tp=1, status="oom")])
    bent = bend(table, 0)
    assert np.isnan(bent.truth.throughput[0, 1])
    assert bent.dead.tolist() == [False, True]


def test_a_table_of_one_engine_and_one_load_bends_without_a_word(tmp_path):
    bent = bend(table_of(tmp_path, [row("a", 1)]), 0)
    assert bent.truth.throughput[0, 0] > 0
