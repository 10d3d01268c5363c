import itertools
import math

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from frontier_tuner.search.optuna_told import CURVE
from frontier_tuner.search.sampler import FrontierSampler

GRID = {
    "a": IntDistribution(0, 4),
    "b": CategoricalDistribution(["x", "y", "z"]),
    "c": FloatDistribution(0, 1, step=0.25),
}
MIXED = {
    "batch": IntDistribution(1, 1024, log=True),
    "fill": FloatDistribution(0.5, 0.95),
    "kernel": CategoricalDistribution(["triton", "flash", "flashinfer"]),
}


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def loss(a, b, c):
    return (a - 3) ** 2 / 4 + {"x": 1.0, "y": 0.0, "z": 0.5}[b] + abs(c - 0.75)


def mixed(batch, fill, kernel):
    return abs(math.log2(batch) - 6) + 10 * abs(fill - 0.8) + {"triton": 1.0, "flash": 0.5, "flashinfer": 0.0}[kernel]


def run(study, space, objective, trials):
    for _ in range(trials):
        trial = study.ask(space)
        study.tell(trial, objective(**trial.params))
    return [trial.params for trial in study.trials]


def make(sampler=None, **over):
    return optuna.create_study(sampler=sampler or FrontierSampler(seed=1), **over)


def test_case_71_no_point_of_a_finite_space_is_proposed_twice_before_all_were():
    proposed = run(make(FrontierSampler(seed=1, search_space=GRID)), GRID, loss, 80)
    everything = set(itertools.product(range(5), "xyz", (0, 0.25, 0.5, 0.75, 1)))
    assert {tuple(point[name] for name in GRID) for point in proposed[:75]} == everything


def test_case_78_asking_goes_on_after_the_last_point():
    tiny = {"a": IntDistribution(0, 1)}
    proposed = run(make(FrontierSampler(seed=1, search_space=tiny)), tiny, float_of_a, 4)
    assert {point["a"] for point in proposed[:2]} == {0, 1}
    assert len(proposed) == 4


def float_of_a(a):
    return float(a)


@pytest.mark.parametrize(("space", "objective", "good"), [(GRID, loss, 0.01), (MIXED, mixed, 0.6)])
def test_the_best_is_found_without_trying_most(space, objective, good):
    study = make()
    run(study, space, objective, 25)
    assert study.best_value <= good


def test_the_seed_decides_and_nothing_else():
    same = [run(make(FrontierSampler(seed=7)), MIXED, mixed, 12) for _ in range(2)]
    assert same[0] == same[1]
    assert run(make(FrontierSampler(seed=8)), MIXED, mixed, 12) != same[0]


def test_a_new_seed_can_be_drawn():
    sampler = FrontierSampler(seed=7)
    sampler.reseed_rng()
    assert run(make(sampler), MIXED, mixed, 3) != run(make(FrontierSampler(seed=7)), MIXED, mixed, 3)


@pytest.mark.parametrize("kept", [1, 4, 9])
@pytest.mark.parametrize("directions", [["minimize"], ["minimize", "maximize"]], ids=len)
def test_a_study_that_is_loaded_again_goes_on_bit_for_bit(tmp_path, kept, directions):
    def objective(**point):
        value = mixed(**point)
        return [value, -value * point["fill"]][: len(directions)]

    whole = run(make(directions=directions), MIXED, objective, 12)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run(make(study_name="s", storage=storage, directions=directions), MIXED, objective, kept)
    again = optuna.load_study(study_name="s", storage=storage, sampler=FrontierSampler(seed=1))
    assert run(again, MIXED, objective, 12 - kept) == whole


def test_trials_under_way_keep_others_away_even_before_they_ask_for_their_parameters():
    study = make(FrontierSampler(seed=1, search_space=GRID))
    run(study, GRID, loss, 8)
    waiting = [study.ask() for _ in range(6)]
    points = [tuple(trial._suggest(name, each) for name, each in GRID.items()) for trial in waiting]
    told = [tuple(trial.params[name] for name in GRID) for trial in study.trials[:8]]
    assert len(set(points + told)) == 14


def test_a_batch_before_anything_is_told_covers_the_space():
    study = make(FrontierSampler(seed=1, search_space=GRID))
    batch = [study.ask(GRID).params for _ in range(5)]
    assert {point["a"] for point in batch} == {0, 1, 2, 3, 4}
    assert {point["b"] for point in batch} == {"x", "y", "z"}


def test_a_failed_trial_teaches_nothing_and_is_not_proposed_at_once_again():
    study = make(FrontierSampler(seed=1, search_space=GRID))
    run(study, GRID, loss, 8)
    failed = study.ask(GRID)
    study.tell(failed, state=TrialState.FAIL)
    assert study.ask(GRID).params != failed.params


def test_the_last_intermediate_value_of_a_pruned_trial_teaches():
    def study_with(bad):
        study = make(FrontierSampler(seed=3, n_startup_trials=0))
        for a, b, c in itertools.product((0, 2, 4), "xyz", (0.0, 1.0)):
            pruned = b == bad
            study.add_trial(
                optuna.create_trial(
                    params={"a": a, "b": b, "c": c},
                    distributions=GRID,
                    state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
                    intermediate_values={0: 9.0} if pruned else {},
                    value=None if pruned else 1.0 + a / 10,
                )
            )
        return [study.ask(GRID).params["b"] for _ in range(4)]

    assert "x" not in study_with("x")
    assert "z" not in study_with("z")


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
def test_a_value_beyond_all_measure_does_not_blind_it(value):
    study = make()
    run(study, GRID, loss, 6)
    study.add_trial(optuna.create_trial(params={"a": 0, "b": "x", "c": 0.0}, distributions=GRID, value=value))
    run(study, GRID, loss, 14)
    assert min(trial.value for trial in study.trials if trial.params != {"a": 0, "b": "x", "c": 0.0}) <= 0.26


def constrained(trial):
    params = {name: trial._suggest(name, each) for name, each in GRID.items()}
    # The unconstrained optimum lies where engines die.
    trial.set_constraint("memory", float(params["a"] - 1.5))
    trial.set_constraint("kernel", 1.0 if params["b"] == "y" else -1.0)
    return loss(**params)


def test_constraints_are_learnt_each_by_itself():
    study = make(FrontierSampler(seed=1, search_space=GRID))
    study.optimize(constrained, n_trials=16)
    fine = [t for t in study.trials if all(value <= 0 for value in t.constraints.values())]
    best = min(loss(a, b, c) for a, b, c in itertools.product((0, 1), "xz", (0, 0.25, 0.5, 0.75, 1)))
    assert min(t.value for t in fine) == pytest.approx(best)


def test_a_crash_that_is_told_as_an_infinite_loss_with_a_constraint_teaches_where_engines_die():
    study = make(FrontierSampler(seed=1, search_space=GRID))
    died = 0
    for _ in range(20):
        trial = study.ask(GRID)
        dead = trial.params["b"] == "y"
        trial.set_constraint("oom", 1.0 if dead else -1.0)
        died += dead
        study.tell(trial, math.inf if dead else loss(**trial.params))
    assert died <= 4
    assert min(t.value for t in study.trials) == pytest.approx(0.5)


@pytest.mark.parametrize("directions", [["minimize"] * 2, ["maximize", "minimize"], ["minimize"] * 3], ids="/".join)
def test_several_objectives_spread_along_their_front(directions):
    signs = [1 if each == "minimize" else -1 for each in directions]

    def objective(a, b, c):
        cost = {"x": 1.0, "y": 0.0, "z": 0.5}[b]
        return [s * v for s, v in zip(signs, (a + cost, (4 - a) + 2 * cost, c + cost), strict=False)]

    study = make(FrontierSampler(seed=1, search_space=GRID), directions=directions)
    run(study, GRID, objective, 25)
    assert {trial.params["a"] for trial in study.best_trials if trial.params["b"] == "y"} == {0, 1, 2, 3, 4}


def test_parameters_that_only_some_trials_have_are_learnt_too():
    def objective(trial):
        kind = trial.suggest_categorical("kind", ["none", "ngram"])
        depth = trial.suggest_int("depth", 1, 8) if kind == "ngram" else 0
        batch = trial.suggest_int("batch", 1, 8)
        return abs(depth - 6) + abs(batch - 5)

    study = make()
    study.optimize(objective, n_trials=35)
    assert study.best_value <= 1


def test_a_range_that_changes_is_no_obstacle():
    study = make()
    for high in (4, 8, 8, 6, 8):
        run(study, {"a": IntDistribution(0, high), "c": FloatDistribution(0, 1)}, lambda a, c: a + c, 4)
    assert study.best_value < 1


def test_only_valid_candidates_are_proposed():
    space = GRID | {"model": CategoricalDistribution(["m"])}
    sampler = FrontierSampler(
        seed=1, search_space=space, candidates=lambda p: p["model"] == "m" and (p["a"] < 2 or p["b"] != "x")
    )
    proposed = run(make(sampler), space, lambda model, **point: loss(**point) + len(model), 40)
    assert all(point["a"] < 2 or point["b"] != "x" for point in proposed)


def test_a_prior_chooses_the_first_trial_and_a_wrong_one_is_overcome():
    def predicted(points):
        return [[1 + loss(**point)] for point in points]

    def wrong(points):
        return [[10 - loss(**point)] for point in points]

    right = run(make(FrontierSampler(seed=1, search_space=GRID, prior=predicted)), GRID, loss, 1)
    assert loss(**right[0]) == 0
    misled = make(FrontierSampler(seed=1, search_space=GRID, prior=wrong))
    run(misled, GRID, lambda **point: 1 + loss(**point), 25)
    assert misled.trials[0].value > 3
    assert misled.best_value <= 1.3


def test_a_whole_curve_counts_with_all_its_rungs():
    """Both ends of the front are on the curves of one value of `b`, which the trials' own values do not show."""
    study = make(FrontierSampler(seed=1, search_space=GRID), directions=["maximize", "maximize"])
    for _ in range(20):
        trial = study.ask(GRID)
        gain = math.exp(-loss(**trial.params))
        curve = [[load, {"0": 100 * gain / load**0.5, "1": 10 * gain * load**0.5}] for load in (1, 4, 16)]
        trial.set_user_attr(CURVE, curve)
        study.tell(trial, [100 * gain, 10 * gain])
    assert {"a": 3, "b": "y", "c": 0.75} in [trial.params for trial in study.trials]


def test_a_rung_that_breaks_a_constraint_does_not_count():
    """Engines with `b` = y are best by far, but miss the bound at every load."""
    study = make(FrontierSampler(seed=1, search_space=GRID), directions=["maximize", "maximize"])
    late = []
    for number in range(24):
        trial = study.ask(GRID)
        gain = math.exp(-loss(**trial.params)) * (3 if trial.params["b"] == "y" else 1)
        slow = 1.0 if trial.params["b"] == "y" else -1.0
        trial.set_user_attr(
            CURVE, [[n, {"0": gain / n**0.5, "1": gain * n**0.5, "constraint:ttft": slow}] for n in (1, 4, 16)]
        )
        study.tell(trial, [gain, gain])
        late += [trial.params["b"]] if number >= 8 else []
    assert late.count("y") <= 4
    assert {"a": 3, "b": "z", "c": 0.75} in [trial.params for trial in study.trials]


@pytest.mark.parametrize("curve", [[[0, {"0": 1.0}]], [["many", {"0": 1.0}]], [[1, 2.0]], 7, [[1, {"0": "fast"}]]])
def test_a_curve_of_another_form_is_refused_with_the_trial_and_the_form(curve):
    study = make(FrontierSampler(seed=1, search_space=GRID))
    trial = study.ask(GRID)
    trial.set_user_attr(CURVE, curve)
    study.tell(trial, 1.0)
    with pytest.raises(ValueError, match=r"'frontier:curve' of trial 0 must be \[\[load, "):
        study.ask(GRID)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"candidates": bool}, "give search_space as well"),
        ({"prior": list}, "give search_space as well"),
        ({"n_startup_trials": -1}, "n_startup_trials must be 0 or more, not -1"),
    ],
)
def test_arguments_that_cannot_work_are_refused(over, words):
    with pytest.raises(ValueError, match=words):
        FrontierSampler(**over)


def test_a_predicate_that_refuses_everything_and_a_prior_of_another_shape_are_named():
    with pytest.raises(ValueError, match="candidates refuses every point"):
        make(FrontierSampler(search_space=GRID, candidates=lambda p: False)).ask(GRID)
    with pytest.raises(ValueError, match=r"prior must give finite numbers of shape \(75, 1\)"):
        make(FrontierSampler(search_space=GRID, prior=lambda points: [1.0] * len(points))).ask(GRID)


def test_knobs_of_one_group_are_learnt_together():
    space = {name: CategoricalDistribution(list("pqrst")) for name in "uvwx"}
    effects = np.random.default_rng(0).normal(size=(2, 5, 5))

    def objective(u, v, w, x):
        return effects[0]["pqrst".index(u), "pqrst".index(v)] + effects[1]["pqrst".index(w), "pqrst".index(x)]

    def mean_loss(groups):
        studies = [make(FrontierSampler(seed=seed, search_space=space, groups=groups)) for seed in range(3)]
        for study in studies:
            run(study, space, objective, 40)
        return np.mean([trial.value for study in studies for trial in study.trials])

    told, untold = mean_loss({"u": "one", "v": "one", "w": "two", "x": "two"}), mean_loss({})
    assert told < untold - 0.05
