import itertools

import numpy as np
import pytest

from frontier_tuner.bench.arena import FLAKES, TTFT_NOISE, Arena, StartsSpentError
from frontier_tuner.bench.goal import make_goal
from support.plant_tables import row, small_rows, table_of

GOAL = make_goal("MaxThroughput", ("TTFT<=500ms", "UserTokensPerSecond>=50"))
BATCHES = tuple(2**n for n in range(8))


def arena(table, **settings):
    return Arena(table, GOAL, **{"starts": 1000, **settings})


def wide(tmp_path, engines=400):
    return table_of(tmp_path, [row(f"e{n}", b, ctx_tokens=n + 1) for n in range(engines) for b in BATCHES])


def test_without_noise_a_rung_is_the_truth(tmp_path):
    run = arena(table_of(tmp_path, small_rows())).start(0)
    rung = run.measure(1)
    assert (rung.level, rung.ttft, rung.user_speed, rung.throughput) == (1, 0.2, 50.0, 90.0)
    assert rung.itl == pytest.approx(0.02)


def test_an_engine_out_of_memory_dies_at_start(tmp_path):
    it = arena(table_of(tmp_path, small_rows()))
    assert it.start(2) is None
    assert [(start.engine_id, start.outcome, start.levels) for start in it.log] == [("dead", "Infeasible", [])]


def test_a_level_beyond_the_cache_yields_nothing_and_is_not_logged(tmp_path):
    it = arena(table_of(tmp_path, small_rows()))
    run = it.start(1)
    assert run.cache_full.tolist() == [False, False, True]
    assert run.measure(2) is None
    assert run.measure(1) is not None
    assert run.measure(0) is not None
    assert it.log[0].levels == [1, 0]


def test_a_level_without_a_row_yields_nothing(tmp_path):
    it = arena(table_of(tmp_path, [row("a", 1), row("b", 1, tp=1), row("b", 2, tp=1)]))
    assert it.start(0).measure(1) is None


@pytest.mark.parametrize("level", [-1, 3])
def test_a_level_that_the_table_does_not_have_is_an_error(tmp_path, level):
    run = arena(table_of(tmp_path, small_rows())).start(0)
    with pytest.raises(IndexError, match="0 to 2"):
        run.measure(level)


@pytest.mark.parametrize("index", [-1, 3])
def test_a_candidate_that_the_table_does_not_have_is_an_error(tmp_path, index):
    with pytest.raises(IndexError, match="0 to 2"):
        arena(table_of(tmp_path, small_rows())).start(index)


def test_more_starts_than_given_are_refused(tmp_path):
    it = arena(table_of(tmp_path, small_rows()), starts=2)
    it.start(0)
    it.start(0)
    assert it.left == 0
    with pytest.raises(StartsSpentError, match="all 2 starts are spent"):
        it.start(1)
    assert len(it.log) == 2


def curves(it, index):
    run = it.start(index)
    return None if run is None else [run.measure(level) for level in range(len(BATCHES))]


def test_the_luck_of_a_start_depends_on_seed_engine_and_try_alone(tmp_path):
    table = wide(tmp_path, 20)
    one, other = arena(table, seed=5, noise=0.04), arena(table, seed=5, noise=0.04)
    first = {index: curves(one, index) for index in range(20)}
    again = {index: curves(one, index) for index in range(20)}
    for index in reversed(range(20)):
        assert curves(other, index) == first[index]
    for index in range(20):
        assert curves(other, index) == again[index]
        if first[index] and again[index]:
            assert first[index] != again[index]
    assert curves(arena(table, seed=6, noise=0.04), 0) != first[0]


def test_the_order_of_rungs_does_not_change_their_luck(tmp_path):
    table = wide(tmp_path, 1)
    up, down = arena(table, seed=1, noise=0.04).start(0), arena(table, seed=1, noise=0.04).start(0)
    assert {up.measure(n) for n in range(4)} == {down.measure(n) for n in reversed(range(4))}


def test_noise_has_the_stated_size(tmp_path):
    table = wide(tmp_path)
    it = arena(table, seed=0, noise=0.04)
    found = [each for index in range(400) if (each := curves(it, index)) is not None]
    died = 1 - len(found) / 400
    assert 0.3 * FLAKES < died < 2 * FLAKES
    speed = np.log([[rung.throughput / 50 for rung in run] for run in found])
    ttft = np.log([[rung.ttft / 0.1 for rung in run] for run in found])
    assert speed.mean(1).std() == pytest.approx(0.04, rel=0.15)
    assert speed.std(axis=1, ddof=1).mean() == pytest.approx(0.02, rel=0.15)
    assert ttft.std(axis=1, ddof=1).mean() == pytest.approx(TTFT_NOISE, rel=0.15)
    assert np.corrcoef(speed.mean(1), ttft.mean(1))[0, 1] < -0.4
    rung = found[0][0]
    assert rung.itl * rung.user_speed == pytest.approx(1.0)


def test_without_noise_nothing_fails_for_no_reason(tmp_path):
    it = arena(wide(tmp_path), seed=0)
    assert all(it.start(index) is not None for index in range(400))


def test_the_methods_own_time_is_logged_and_not_the_arenas(tmp_path):
    ticks = itertools.chain([0.0, 2.0, 10.0, 10.5], itertools.repeat(0.0))
    it = Arena(table_of(tmp_path, small_rows()), GOAL, starts=2, clock=lambda: next(ticks))
    it.start(0)
    it.start(1)
    assert [start.seconds for start in it.log] == [2.0, 0.5]
