"""`workload.fromMetrics`: learnt once for a study, kept in the status, and never guessed."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.adapters.metrics import PrometheusMetrics
from frontier_operator.api.v1alpha1 import InferenceDeploymentStatus
from frontier_operator.app.learning import observe_workload
from frontier_operator.core import render
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import CreateTrial, StartLoad
from frontier_operator.core.report import report
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.learned import LENGTHS_AND_RATE, learning_queries
from frontier_tuner.measurement import Load
from frontier_tuner.prometheus.source import Sample
from frontier_tuner.study import fingerprint, traffic_of
from support.in_memory import FixedClock, MemoryObjects, make_ports
from support.operator_builders import NOW, make_observation, make_serving, make_spec

SPEC = make_spec(workload={"fromMetrics": {"window": "24h"}})
BASELINE = make_observation(SPEC).space.baseline


def buckets(total):
    return [
        Sample({"le": edge}, total * share) for edge, share in (("50", 0.0), ("100", 0.5), ("200", 1.0), ("+Inf", 1.0))
    ]


def answers(requests=4000.0):
    one = {
        "requestRate": 4.0,
        "busyRate": 7.5,
        "bins": 900.0,
        "perBin": 240.0,
        "twoSampleVariance": 480.0,
        "cached": 0.63,
        "inputMean": 110.0,
        "outputMean": 110.0,
    }
    return {
        **{name: [Sample({}, value)] for name, value in one.items()},
        "inputBuckets": buckets(requests),
        "outputBuckets": buckets(requests),
    }


class Answers:
    """A Prometheus that gives prepared answers to the queries of learning, and counts them."""

    def __init__(self, given, seconds):
        self.given, self.asked = given, []
        self.names = {}
        for pods in (("chat-a",), ("chat-a", "chat-b")):
            queries = learning_queries("ml", pods, seconds)
            self.names |= {query: name for name, query in queries.items()}

    def vector(self, expression, at):
        assert at == NOW
        name = self.names[expression]
        self.asked.append(name)
        if isinstance(self.given, Exception):
            raise self.given
        return self.given.get(name, [])


def observed(given, *, hours=30.0, status=None, spec=SPEC):
    serving = make_serving(BASELINE, spec=spec)
    pods = tuple(replace(pod, name="chat-a", started_at=NOW - timedelta(hours=hours)) for pod in serving.pods[:1])
    observation = make_observation(spec, serving=(replace(serving, pods=pods),), status=status or {})
    source = Answers(given, min(24.0, hours) * 3600)
    ports = replace(make_ports(MemoryObjects()), metrics=PrometheusMetrics(source, FixedClock(), 5.0))
    return observe_workload(observation, ports), source


def created(decision):
    return [action for action in decision.actions if isinstance(action, CreateTrial)]


def test_a_workload_is_learned_and_kept_in_the_status_before_a_trial_begins():
    observation, source = observed(answers())
    decision = decide(observation)
    assert created(decision) == []
    assert decision.study.message == "the workload was learned from 4000 requests; trials begin"
    status = report(observation, decision)
    InferenceDeploymentStatus.model_validate(status)
    kept = status["study"]["workload"]
    assert {name: value for name, value in kept.items() if not name.endswith("Tokens")} == {
        "learnedAt": "2026-01-01T12:00:00Z",
        "window": "86400s",
        "requests": 4000,
        "requestRate": "4",
        "busyRate": "7.5",
        "burstiness": "0.50",
        "sharedPrefixPercent": 63,
    }
    assert len(source.asked) == len(learning_queries("ml", ["chat-a"], 1.0))

    later, silent = observed(MeasurementError("down"), status=status)
    assert silent.asked == []
    assert later.unlearned is None
    assert len(created(decide(later))) == 2
    assert report(later, decide(later))["study"]["workload"] == kept
    assert later.fingerprint == observation.fingerprint == fingerprint(SPEC)


def test_load_jobs_send_what_was_learned():
    first, _ = observed(answers())
    status = report(first, decide(first))
    spec = observed(answers(), status=status)[0].spec
    owner, settings = render.Owner("TuningTrial", "t", "u"), render.LoadSettings("frontier-operator:1", 60)
    job = render.load_job(StartLoad("t", 0, Load("Concurrency", 4), "10.0.0.1", 1), spec, "ml", "chat", owner, settings)
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    workload = json.loads(arguments[arguments.index("--workload") + 1])
    assert workload["arrivals"] == {"pattern": "Gamma", "burstiness": "0.50"}
    assert workload["profile"]["session"]["sharedPrefixPercent"] == 63
    assert workload["profile"]["inputTokens"] == {"histogram": status["study"]["workload"]["inputTokens"]}
    assert float(spec.workload.request_rate) == 7.5
    assert traffic_of(spec).input_tokens == pytest.approx(110.0, rel=0.02)


def test_what_the_spec_says_of_arrivals_and_rate_stands():
    given = {"fromMetrics": {}, "requestRate": "3", "arrivals": {"pattern": "Constant"}}
    spec = make_spec(workload=given)
    first, _ = observed(answers(), spec=spec)
    workload = observed(answers(), spec=spec, status=report(first, decide(first)))[0].spec.workload
    assert (float(workload.request_rate), workload.arrivals.pattern) == (3.0, "Constant")


def test_a_new_study_learns_anew():
    first, _ = observed(answers())
    status = report(first, decide(first))
    status["study"]["fingerprint"] = "another"
    again, source = observed(answers(2000.0), status=status)
    assert source.asked
    assert again.learned["requests"] == 2000


def test_no_further_back_is_looked_than_the_engines_have_run():
    observation, _ = observed(answers(), hours=0.5)
    assert observation.learned["window"] == "1800s"


@pytest.mark.parametrize(
    ("given", "hours", "reason", "words"),
    [
        (
            answers(99.0),
            30.0,
            "InsufficientSamples",
            "at least 100 requests.*in the last 24h: send them traffic, look back",
        ),
        (answers(), 0.003, "InsufficientSamples", "or give spec.workload.profile"),
        ({}, 30.0, "MetricsMissing", "cannot be read from Prometheus: .* give spec.workload.profile"),
        (MeasurementError("down"), 30.0, "MetricsMissing", "cannot be read from Prometheus"),
    ],
)
def test_without_enough_traffic_no_trial_begins_and_the_condition_says_what_to_do(given, hours, reason, words):
    observation, source = observed(given, hours=hours)
    decision = decide(observation)
    assert created(decision) == []
    status = report(observation, decision)
    (converged,) = [each for each in status["conditions"] if each["type"] == "Converged"]
    assert (converged["status"], converged["reason"]) == ("False", reason)
    assert re.search(words, converged["message"]), converged["message"]
    assert "workload" not in status["study"]
    assert set(source.asked) <= set(LENGTHS_AND_RATE)


def test_a_workload_waits_for_an_engine_that_serves():
    ports = make_ports(MemoryObjects())
    observation = observe_workload(make_observation(SPEC), ports)
    assert observation.unlearned == ("WaitingForBaseline", "the workload is learned once the baseline serves")
    assert observe_workload(make_observation(), ports).unlearned is None
