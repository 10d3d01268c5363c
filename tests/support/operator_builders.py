"""Builders of observations for tests of the operator's core."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec, parse
from frontier_operator.core.observation import Observation, PodView, ServingView, TrialView, Tunables
from frontier_operator.core.render import command_line, revision
from frontier_operator.core.study import trial_name
from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import Estimate, Load, Measurement, Validity, Window, key
from frontier_tuner.study import fingerprint, ladder_of, space_of
from frontier_tuner.trial import TrialRecord

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TUNABLES = Tunables(poll_seconds=1, idle_seconds=30, scheduling_seconds=60, load_deadline_seconds=60)

SPEC = {
    "model": {"servedName": "m", "variants": [{"name": "bf16", "source": "hf://Qwen/Qwen3-8B"}]},
    "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    "hardware": {"gpusPerNode": 4, "pricePerGPUHour": "2.00"},
    "objectives": {"slos": [{"name": "itl", "metric": "ITL", "percentile": 95, "max": "50ms"}]},
    "target": {"policy": "MinCost", "headroomPercent": 0},
    "search": {
        "parameters": [
            {"name": "maxNumSeqs", "values": ["16", "64", "256"]},
            {"name": "maxNumBatchedTokens", "values": ["2048", "8192"]},
            {"name": "numSpeculativeTokens", "value": "0"},
            {"name": "enablePrefixCaching", "value": "true"},
            {"name": "tensorParallelSize", "value": "1"},
        ],
        "ladder": {"levels": ["4", "16", "64"]},
        "maxTrialGPUs": 2,
        "budget": {"maxTrials": 3},
    },
    "rollout": {"canary": {"steps": [20, 50], "stepDuration": "10s", "minRequests": 50, "analysisDeadline": "2m"}},
}


def make_body(**over):
    spec = deepcopy(SPEC)
    for path, value in over.items():
        part = spec
        *parents, last = path.split("__")
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value
    return {
        "metadata": {"name": "chat", "namespace": "ml", "uid": "u1", "generation": 1},
        "spec": spec,
    }


def make_spec(**over) -> InferenceDeploymentSpec:
    parsed = parse(make_body(**over))
    assert not isinstance(parsed, list), parsed
    return parsed


def make_observation(spec: InferenceDeploymentSpec | None = None, **over) -> Observation:
    spec = spec or make_spec()
    base = Observation(
        now=NOW,
        name="chat",
        namespace="ml",
        uid="u1",
        generation=1,
        annotations={},
        spec=spec,
        problems=(),
        status={},
        space=space_of(spec),
        fingerprint=fingerprint(spec),
        tunables=TUNABLES,
        service="Ours",
    )
    return replace(base, **over)


def make_pod(name="pod", **over) -> PodView:
    base = PodView(
        name=name,
        phase="Running",
        ready=True,
        ip="10.0.0.1",
        created=NOW - timedelta(seconds=30),
        scheduled_at=NOW - timedelta(seconds=30),
        started_at=NOW - timedelta(seconds=29),
        ready_at=NOW - timedelta(seconds=20),
    )
    return replace(base, **over)


def make_measurement(
    level=16.0, *, throughput=1000.0, itl=0.02, speed=50.0, ok=200, gpus=1, valid=True, reason="", at=0
):
    def near(value):
        return Estimate(value, value * 0.95, value * 1.05, ok, "q")

    metrics = {
        key("OutputTokensPerSecond"): near(throughput),
        key("OutputTokensPerSecondPerGPU"): near(throughput / gpus),
        key("RequestsPerSecond"): near(throughput / 50),
        key("CostPerMillionOutputTokens"): near(2.0 * gpus / 3600 / throughput * 1e6),
        key("ITL", 95): near(itl),
        key("TTFT", 95): near(0.2),
        key("UserTokensPerSecond", 50): near(speed),
        key("UserTokensPerSecond", 5): near(speed * 0.8),
    }
    start = NOW + timedelta(seconds=at)
    return Measurement(
        load=Load("Concurrency", level),
        window=Window(start, start + timedelta(seconds=10)),
        sent=ok,
        ok=ok,
        failed=0,
        metrics=metrics,
        validity=Validity(valid, reason, "m" if reason else ""),
    )


def make_record(number, configuration, *, purpose="Search", outcome="Complete", failure=None, factor=1.0):
    rungs = ()
    if outcome == "Complete":
        rungs = tuple(
            make_measurement(level, throughput=factor * t, itl=i / factor, speed=1 / i, at=number * 100)
            for level, t, i in ((4.0, 400.0, 0.010), (16.0, 1000.0, 0.020), (64.0, 2000.0, 0.040))
        )
    return TrialRecord(number, configuration, purpose, outcome, 1, rungs, failure, 60.0, 9.0, "because")


def make_trial(number, configuration, spec=None, **over) -> TrialView:
    spec = spec or make_spec()
    mark = fingerprint(spec)
    base = TrialView(
        name=trial_name("chat", mark, number),
        number=number,
        purpose="Baseline" if number == 0 else "Search",
        configuration=configuration,
        gpus=1,
        levels=tuple(load.value for load in ladder_of(spec)),
        kind="Concurrency",
        fingerprint=mark,
        reason="because",
        created=NOW - timedelta(seconds=60),
    )
    return replace(base, **over)


def make_serving(configuration: Configuration, replicas=1, ready=None, spec=None, **over) -> ServingView:
    spec = spec or make_spec()
    ready = replicas if ready is None else ready
    mark = revision(spec, configuration)
    view = ServingView(
        name=f"chat-{mark}",
        configuration=configuration,
        revision=mark,
        image=spec.engine.image,
        args=tuple(command_line(spec, configuration)),
        replicas=replicas,
        ready_replicas=ready,
        pods=tuple(make_pod(f"serve-{mark}-{i}", ready=i < ready) for i in range(replicas)),
    )
    return replace(view, **over)


def finished_trials(spec=None, factors=None):
    """Return the trials of a study that has used up its budget of three, the last one the best."""
    spec = spec or make_spec()
    space = space_of(spec)
    chosen = [space.baseline, *(c for c in space.configurations() if c != space.baseline)][:3]
    trials = []
    for number, (configuration, factor) in enumerate(zip(chosen, factors or (1.0, 1.1, 1.5), strict=True)):
        purpose = "Baseline" if number == 0 else "Search"
        record = make_record(number, configuration, purpose=purpose, factor=factor)
        trials.append(make_trial(number, configuration, spec, record=record, purpose=purpose))
    return tuple(trials)


def confirmed_trials(spec=None, factors=None):
    """Return the trials of a finished study with its confirmations: the last search trial's configuration is best."""
    trials = finished_trials(spec, factors)
    more = []
    for offset, trial in enumerate((trials[2], trials[1], trials[0])):
        number = 3 + offset
        factor = (factors or (1.0, 1.1, 1.5))[trial.number]
        record = make_record(number, trial.configuration, purpose="Confirmation", factor=factor)
        more.append(make_trial(number, trial.configuration, spec, record=record, purpose="Confirmation"))
    return (*trials, *more)
