"""What goes wrong around Optuna studies, by the numbers of the catalogue of known failures."""

import fcntl
import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from frontier_tuner import journal
from frontier_tuner.errors import JournalError
from frontier_tuner.frontier import points
from frontier_tuner.measurement import Estimate
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.search.sampler import FrontierSampler
from frontier_tuner.selection import select
from frontier_tuner.stopping import Budget, Stability, Stop
from frontier_tuner.trial import Failure
from frontier_tuner.tuner import propose
from support.tuner_builders import make_measurement, make_objectives, make_record, make_space

SPACE = make_space()
GRID = {"a": IntDistribution(0, 4), "b": CategoricalDistribution(["x", "y", "z"])}
OOM = Failure("EngineOutOfMemory", "CUDA out of memory")
UNREACHABLE = Objectives((SLO("ttft", "TTFT", 95, maximum=1e-6),))


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def ask(records=(), pending=(), **over):
    arguments = {
        "objectives": make_objectives(), "target": Target(), "budget": Budget(max_trials=None), "spent_seconds": 0.0,
        "seed": 1, "stability": Stability(minimum=10**6),
    }  # fmt: skip
    return propose(SPACE, records, pending, **arguments | over)


def make(directions=("minimize",), **over):
    return optuna.create_study(directions=directions, sampler=FrontierSampler(seed=1, search_space=GRID), **over)


def loss(a, b):
    return float((a - 3) ** 2) + {"x": 1.0, "y": 0.0, "z": 0.5}[b]


def records_of(count):
    found = []
    for number in range(count):
        found.append(make_record(number, ask(found).configuration, make_measurement(speed=20 + number)))
    return found


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_case_65_what_is_not_a_number_never_becomes_an_estimate_nor_a_line_of_the_journal(bad):
    with pytest.raises(ValueError, match=r"nan|inf"):
        Estimate(bad, 1.0, 2.0, 10, "")
    document = journal.encode_measurement(make_measurement())
    document["metrics"][0]["value"] = str(bad)
    with pytest.raises(JournalError, match="cannot be read"):
        journal.decode_measurement(json.loads(json.dumps(document)))


@pytest.mark.filterwarnings("ignore:The value nan is not acceptable:UserWarning")
def test_case_65_a_trial_that_told_nan_is_failed_and_the_sampler_goes_on():
    study = make(["maximize", "minimize"])
    for number in range(10):
        trial = study.ask(GRID)
        study.tell(trial, [math.nan if number == 4 else trial.params["a"], loss(**trial.params)])
    assert study.trials[4].state == TrialState.FAIL
    assert 4 not in {trial.number for trial in study.best_trials}


CHILD = """
import os, signal, sys, optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from frontier_tuner.search.sampler import FrontierSampler
space = {"a": IntDistribution(0, 4), "b": CategoricalDistribution(["x", "y", "z"])}
study = optuna.load_study(study_name="s", storage=sys.argv[1], sampler=FrontierSampler(seed=1, search_space=space))
study.ask(space)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_case_68_a_trial_whose_process_was_killed_is_under_way_until_it_is_told(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = make(study_name="s", storage=storage)
    for _ in range(6):
        trial = study.ask(GRID)
        study.tell(trial, loss(**trial.params))
    killed = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, storage], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()

    again = optuna.load_study(study_name="s", storage=storage, sampler=FrontierSampler(seed=1, search_space=GRID))
    orphan = again.trials[-1]
    assert orphan.state == TrialState.RUNNING
    following = again.ask(GRID)
    assert following.params != orphan.params
    again.tell(orphan.number, state=TrialState.FAIL)
    again.tell(following, loss(**following.params))
    assert [trial.state for trial in again.trials].count(TrialState.RUNNING) == 0
    assert again.ask(GRID).params not in [trial.params for trial in again.trials[:-1]]


def test_case_68_a_proposal_that_was_lost_is_made_again_and_one_that_is_alive_is_adopted():
    known = records_of(7)
    lost = ask(known)
    assert ask(known) == lost
    assert ask(known, [lost.configuration]).configuration != lost.configuration
    limited = Budget(max_trials=8)
    assert ask(known, [lost.configuration], budget=limited).reason == "BudgetExhausted"
    assert ask(known, budget=limited) == lost


def test_case_69_a_result_that_is_told_twice_counts_once():
    study = make()
    trial = study.ask(GRID)
    study.tell(trial, 1.0)
    before = study.ask(GRID).params
    with pytest.raises(ValueError, match="Cannot tell a COMPLETE trial"):
        study.tell(trial.number, 2.0)
    assert (len(study.trials), study.trials[0].value) == (2, 1.0)
    study.tell(1, state=TrialState.FAIL)
    assert study.ask(GRID).params != before


def test_case_69_a_trial_that_is_written_twice_counts_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    records = records_of(3)
    for record in [*records, records[-1]]:
        journal.append(path, record)
    assert journal.read(path, SPACE) == tuple(records)

    journal.append(path, make_record(2, records[0].configuration))
    with pytest.raises(JournalError, match="line 5 is another trial with the number 2"):
        journal.read(path, SPACE)


def test_case_72_workers_at_one_database_lose_no_result(tmp_path):
    study = make(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")

    def objective(trial):
        return loss(trial.suggest_int("a", 0, 4), trial.suggest_categorical("b", ["x", "y", "z"]))

    study.optimize(objective, n_trials=12, n_jobs=4)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 12
    assert all(trial.value == loss(**trial.params) for trial in study.trials)
    # Two workers that ask in the same moment may meet at one point; most do not.
    assert len({tuple(sorted(trial.params.items())) for trial in study.trials}) >= 6


def test_case_72_a_second_writer_of_a_journal_waits_and_cuts_nothing_off(tmp_path):
    path = tmp_path / "journal.jsonl"
    first, second = (make_record(number, SPACE.baseline) for number in range(2))
    journal.append(path, first)
    line = path.read_bytes()
    path.unlink()
    with path.open("ab") as file, ThreadPoolExecutor(1) as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line[:40])
        file.flush()
        waiting = pool.submit(journal.append, path, second)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        file.write(line[40:])
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
        waiting.result(10)
    assert journal.read(path, SPACE) == (first, second)


def test_case_73_without_a_feasible_trial_the_search_goes_on_towards_feasibility():
    study = make()
    for _ in range(12):
        trial = study.ask(GRID)
        trial.set_constraint("slo", 1.0 + loss(**trial.params))
        study.tell(trial, -loss(**trial.params))
    assert study.best_trials == []
    assert min(trial.constraints["slo"] for trial in study.trials) <= 1.5


def test_case_73_without_a_feasible_trial_a_study_proposes_and_selects_nothing():
    known = records_of(7)
    assert not any(point.feasible for point in points(known, UNREACHABLE))
    assert ask(known, objectives=UNREACHABLE).configuration not in {record.configuration for record in known}
    assert select(points(known, UNREACHABLE), UNREACHABLE, Target()).point is None


def test_case_74_a_constraint_that_is_not_a_number_is_refused_before_the_trial_is_told():
    study = make()
    trial = study.ask(GRID)
    with pytest.raises(ValueError, match="NaN is not allowed"):
        trial.set_constraint("slo", math.nan)
    assert study.trials[0].state == TrialState.RUNNING
    study.tell(trial, state=TrialState.FAIL)
    assert study.best_trials == []
    assert study.ask(GRID).params != trial.params


def test_case_74_a_rung_whose_slo_is_unknown_is_not_feasible_and_does_not_stop_the_study():
    known = [make_record(n, r.configuration, make_measurement(ttft=None)) for n, r in enumerate(records_of(7))]
    assert not any(point.feasible for point in points(known, UNREACHABLE))
    assert not isinstance(ask(known, objectives=UNREACHABLE), Stop)


def test_case_75_objectives_are_read_anew_and_not_kept_with_the_trials(tmp_path):
    path = tmp_path / "journal.jsonl"
    for record in records_of(7):
        journal.append(path, record)
    known = journal.read(path, SPACE)
    assert all(point.feasible for point in points(known, make_objectives()))
    assert not any(point.feasible for point in points(known, UNREACHABLE))
    assert "objective" not in path.read_text().lower()


def test_case_75_an_optuna_study_keeps_its_directions_and_the_sampler_follows_them(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    make(["maximize"], study_name="s", storage=storage)
    study = make(["minimize"], study_name="s", storage=storage, load_if_exists=True)
    for _ in range(14):
        trial = study.ask(GRID)
        study.tell(trial, loss(**trial.params))
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert study.best_params == {"a": 0, "b": "x"}


def test_case_76_engines_that_do_not_start_stop_the_study_and_are_not_suggested_again():
    known = []
    for number in range(3):
        known.append(make_record(number, ask(known, max_failed=3).configuration, outcome="Infeasible", failure=OOM))
    assert ask(known, max_failed=3).reason == "TooManyFailures"
    assert ask(known, max_failed=4).configuration not in {record.configuration for record in known}


def test_case_76_the_sampler_does_not_suggest_a_failed_point_again():
    study = make()
    for _ in range(15):
        study.tell(study.ask(GRID), state=TrialState.FAIL)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 15
