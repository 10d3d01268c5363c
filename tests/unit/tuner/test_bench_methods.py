from collections.abc import Iterator

import numpy as np
import optuna
import pytest

from frontier_tuner.bench import methods
from frontier_tuner.bench.arena import Arena
from frontier_tuner.bench.baselines import prior_picks
from frontier_tuner.bench.climb import climb
from frontier_tuner.bench.flat import FlatSpace
from frontier_tuner.bench.goal import GoalError, make_goal
from frontier_tuner.bench.methods import MethodError
from frontier_tuner.bench.priors import WRONG_KNOBS, wrong
from frontier_tuner.predict import Prediction
from support.plant_tables import row, table_of

GOAL = make_goal("MaxThroughput", ("TTFT<=500ms", "UserTokensPerSecond>=50"))
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)


def arena(table, starts=8, **settings):
    return Arena(table, settings.pop("goal", GOAL), starts=starts, **settings)


def one_engine(tmp_path, **curves):
    rows = [row("a", batch, **{name: values[n] for name, values in curves.items()}) for n, batch in enumerate(LEVELS)]
    return table_of(tmp_path, rows)


def measured(table):
    it = arena(table)
    rungs = climb(it, it.start(0))
    assert [rung.level for rung in rungs] == sorted(it.log[0].levels)
    return it.log[0].levels


def test_a_climb_takes_every_second_level(tmp_path):
    assert measured(one_engine(tmp_path, throughput=[10, 20, 30, 40, 50, 60, 70, 80])) == [0, 2, 4, 6, 7]


def test_a_climb_ends_where_an_slo_is_missed_twofold_and_refines_the_crossing(tmp_path):
    throughput = [10, 20, 30, 40, 50, 60, 70, 80]
    # 500 ms hold up to level 3; level 4 misses by less than twice, level 6 by more.
    ttft = [100, 100, 100, 500, 600, 900, 1001, 2000]
    assert measured(one_engine(tmp_path, throughput=throughput, ttft_ms=ttft)) == [0, 2, 4, 6, 3]


def test_a_climb_ends_where_throughput_is_flat(tmp_path):
    assert measured(one_engine(tmp_path, throughput=[10, 20, 30, 30, 30, 30, 30, 30])) == [0, 2, 4, 6, 7]
    assert measured(one_engine(tmp_path, throughput=[30] * 8)) == [0, 2, 4, 5]


def test_a_climb_leaves_out_what_does_not_fit_the_cache(tmp_path):
    rows = [row("a", b, status="kv_oom" if b > 8 else "ok", throughput=b) for b in LEVELS]
    assert measured(table_of(tmp_path, rows)) == [0, 2, 3]


def grid(tmp_path):
    rows = [row(f"agg/{tp}{g}{c}", b, tp=tp, gpus=tp, gemm=g, moe=g, ctx_tokens=c, throughput=10 * tp + b)
            for tp in (1, 2, 4) for g in ("bf16", "fp8") for c in (512, 2048) for b in (1, 4)]  # fmt: skip
    rows += [row(f"dis/{p}{w}", b, mode="disagg", p_tp=p, p_workers=w, gemm="bf16", moe="bf16", throughput=p * w + b)
             for p in (1, 2) for w in (1, 2, 3) for b in (1, 4)]  # fmt: skip
    return table_of(tmp_path, rows)


def test_the_flat_space_leaves_out_what_others_determine(tmp_path):
    table = grid(tmp_path)
    space = FlatSpace.of(table.candidates())
    # `moe` always equals `gemm`; only one of the two is needed.
    assert len({"gemm", "moe"} & {*space.names}) == 1
    assert {*space.names} - {"gemm", "moe"} == {"mode", "tp", "ctx_tokens", "p_tp", "p_workers"}
    assert len(np.unique(space.levels, axis=0)) == len(table)
    assert [name for name, leads in zip(space.names, space.leading, strict=True) if leads] == ["mode"]


def test_each_candidate_is_nearest_to_itself(tmp_path):
    space = FlatSpace.of(grid(tmp_path).candidates())
    everything = np.ones(len(space.levels), dtype=bool)
    for index in range(len(space.levels)):
        assert space.nearest(np.maximum(space.levels[index], 0), everything) == index


def test_a_proposal_keeps_its_mode_and_takes_the_nearest_that_is_free(tmp_path):
    table = grid(tmp_path)
    space = FlatSpace.of(table.candidates())
    free = np.ones(len(table), dtype=bool)
    proposal = np.maximum(space.levels[0], 0)
    free[0] = False
    assert table.configurations[space.nearest(proposal, free)]["mode"] == "agg"
    free[:12] = False
    assert table.configurations[space.nearest(proposal, free)]["mode"] == "disagg"


def test_a_candidate_survives_the_way_through_a_trial(tmp_path):
    space = FlatSpace.of(grid(tmp_path).candidates())
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    everything = np.ones(len(space.levels), dtype=bool)
    for index in (0, 7, 15):
        study.enqueue_trial(dict(space.encode(index)))
        trial = study.ask()
        assert space.nearest(space.suggest(trial), everything) == index
        assert trial.distributions.keys() <= space.distributions().keys()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


@pytest.mark.parametrize("name", ["random", "tpe", "nsga2", "frontier-sampler"])
def test_a_method_spends_its_starts_on_different_engines_and_repeats_itself(tmp_path, name):
    table = grid(tmp_path)
    logs = []
    for _ in range(2):
        it = arena(table, starts=14, noise=0.04, seed=3)
        methods.method_of(name)(it, 3, 14)
        logs.append([(start.engine_id, start.levels) for start in it.log])
    assert logs[0] == logs[1]
    assert len({engine for engine, _ in logs[0]}) == 14


def test_one_load_per_start_measures_one(tmp_path):
    it = arena(grid(tmp_path), starts=12)
    methods.method_of("tpe-point")(it, 0, 12)
    assert [len(start.levels) for start in it.log] == [1] * 12


def prediction_of(table, throughput):
    shape = table.concurrency.shape
    each = np.broadcast_to(np.array(throughput, dtype=float)[:, None], shape).copy()
    full = np.full(shape, 100.0)
    return Prediction(
        full / 1000, full / 10000, full, each, np.full(shape, 5.0), np.full(shape[0], 5.0), np.full(shape[0], 10.0)
    )


def test_the_prior_alone_follows_its_ranking(tmp_path):
    table = grid(tmp_path)
    predicted = np.arange(len(table), dtype=float) + 1
    it = arena(table, starts=3, prediction=prediction_of(table, predicted))
    methods.method_of("prior")(it, 0, 3)
    assert [start.index for start in it.log] == [17, 16, 15]


def test_the_prior_leaves_what_cannot_fit_for_last(tmp_path):
    table = grid(tmp_path)
    prediction = prediction_of(table, np.arange(len(table), dtype=float) + 1)
    prediction.start_memory[17] = 11.0
    picks = prior_picks(arena(table, prediction=prediction), len(table))
    assert picks[0] == 16
    assert picks[-1] == 17
    assert sorted(picks) == list(range(len(table)))


def test_tpe_after_the_prior_opens_with_its_picks(tmp_path):
    table = grid(tmp_path)
    it = arena(table, starts=12, prediction=prediction_of(table, np.arange(len(table), dtype=float) + 1))
    picks = prior_picks(it, 10)
    methods.method_of("tpe+prior")(it, 0, 12)
    assert [start.index for start in it.log[:10]] == picks


def test_without_a_prior_there_is_no_ranking(tmp_path):
    with pytest.raises(GoalError, match="--prior roofline"):
        prior_picks(arena(grid(tmp_path)), 3)


def test_a_wrong_prior_errs_by_knob_level_within_its_bounds(tmp_path):
    table = grid(tmp_path)
    prediction = prediction_of(table, np.ones(len(table)))
    off = wrong(prediction, table, 5)
    factors = off.throughput[:, 0]
    assert np.array_equal(factors, wrong(prediction, table, 5).throughput[:, 0])
    assert not np.allclose(factors, wrong(prediction, table, 6).throughput[:, 0])
    assert off.user_speed / prediction.user_speed == pytest.approx(off.throughput)
    assert prediction.ttft / off.ttft == pytest.approx(off.throughput)
    assert prediction.itl / off.itl == pytest.approx(off.throughput)
    assert np.isnan(off.capacity).all()
    # Engines that differ only in a knob on which it does not err are equally wrong.
    assert factors[0] == factors[1]
    assert np.abs(np.log2(factors)).max() <= len(WRONG_KNOBS)
    ratio = np.array([wrong(prediction, table, seed).throughput[[0, 4], 0] for seed in range(200)])
    apart = np.log2(ratio[:, 0] / ratio[:, 1])
    # Two independent log-uniform factors from 1/2 to 2: at most 4 apart, with a spread of sqrt(2/3) octaves.
    assert np.abs(apart).max() <= 2
    assert apart.std() == pytest.approx((2 / 3) ** 0.5, rel=0.15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tpe,magic", "no method is called 'magic'; known are ours, random, tpe"),
        (",", "no method is called an empty list"),
        ("tpe,tpe", "named twice"),
    ],
)
def test_a_list_of_methods_is_checked(text, words):
    with pytest.raises(MethodError, match=words):
        methods.names_of(text)


def test_a_method_that_lacks_a_package_names_the_extra(monkeypatch):
    entry = methods.Entry("one that needs more", needs=("no_such_package",))
    monkeypatch.setattr(methods, "METHODS", {"more": entry})
    with pytest.raises(MethodError, match=r"needs no_such_package; .*frontier-operator\[baselines\]"):
        methods.check("more", prior=True)


def test_a_method_that_follows_a_prior_needs_one():
    with pytest.raises(MethodError, match="give --prior roofline"):
        methods.check("tpe+prior", prior=False)
