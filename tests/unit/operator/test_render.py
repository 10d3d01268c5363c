import json

from frontier_operator.core import render
from frontier_operator.core.decision import CreateTrial, StartLoad
from frontier_operator.core.merge import strategic_merge
from frontier_tuner.measurement import Load
from frontier_tuner.study import space_of
from support.operator_builders import make_spec

SPEC = make_spec()
CONFIGURATION = space_of(SPEC).baseline
OWNER = render.Owner("TuningTrial", "chat-abc-000", "u2")


def test_what_was_measured_is_what_serves():
    trial = render.trial_engine("chat-abc-000", SPEC, CONFIGURATION, "ml", "chat", OWNER)
    serving = render.serving_deployment("chat", SPEC, CONFIGURATION, 2, "ml", OWNER)

    measured = trial["spec"]["containers"][0]
    served = serving["spec"]["template"]["spec"]["containers"][0]
    assert {k: v for k, v in served.items() if k != "lifecycle"} == measured


def test_a_trial_holds_the_whole_command_line():
    action = CreateTrial("chat-abc-000", 0, "Baseline", CONFIGURATION, (4.0, 16.0), "first")

    manifest = render.trial(action, SPEC, "ml", OWNER, "f" * 10)

    engine = render.trial_engine("chat-abc-000", SPEC, CONFIGURATION, "ml", "chat", OWNER)
    assert manifest["spec"]["command"] == engine["spec"]["containers"][0]["args"]
    assert manifest["spec"]["ladder"] == {"kind": "Concurrency", "levels": ["4", "16"]}


def test_a_trial_engine_never_restarts_and_a_load_job_never_retries():
    engine = render.trial_engine("t", SPEC, CONFIGURATION, "ml", "chat", OWNER)
    action = StartLoad("t", 2, Load("Concurrency", 16.0), "10.0.0.7", 5)
    job = render.load_job(action, SPEC, "ml", "chat", OWNER, render.LoadSettings("frontier-operator:1", 60))

    assert engine["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0
    assert job["metadata"]["name"] == "t-r2"
    assert job["spec"]["activeDeadlineSeconds"] > 150


def test_a_load_job_says_exactly_what_to_send():
    action = StartLoad("t", 0, Load("RequestRate", 2.5), "fd00::7", 5)
    job = render.load_job(action, SPEC, "ml", "chat", OWNER, render.LoadSettings("frontier-operator:1", 60))

    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    pairs = dict(zip(args[::2], args[1::2], strict=True))
    assert pairs["--url"] == "http://[fd00::7]:8000"
    assert pairs["--request-rate"] == "2.5"
    assert pairs["--slo"] == "ITL/95<=50ms"
    assert pairs["--duration"] == "2m"
    assert (pairs["--precision-percent"], pairs["--min-window"], pairs["--min-requests"]) == ("15", "50s", "100")
    assert json.loads(pairs["--workload"])["profile"]["inputTokens"]["mean"] == 1024


def test_a_window_lasts_ten_scrapes_or_where_nothing_may_end_it_its_time():
    action = StartLoad("t", 0, Load("Concurrency", 4), "10.0.0.7", 5)

    def arguments(spec, scrape_seconds):
        settings = render.LoadSettings("i", 1, scrape_seconds=scrape_seconds)
        job = render.load_job(action, spec, "ml", "chat", OWNER, settings)
        return job["spec"]["template"]["spec"]["containers"][0]["args"]

    args = arguments(make_spec(measurement={"precisionPercent": 20, "minRequests": 30}), 0.5)
    pairs = dict(zip(args[::2], args[1::2], strict=True))
    assert (pairs["--precision-percent"], pairs["--min-window"], pairs["--min-requests"]) == ("20", "5s", "30")
    assert "--precision-percent" not in arguments(make_spec(measurement={"precisionPercent": 0}), 0.5)


def test_a_trace_is_mounted_from_its_config_map():
    trace = {"configMapRef": {"name": "azure", "key": "conv.csv"}, "format": "AzureLLMInference"}
    spec = make_spec(workload={"trace": trace})
    job = render.load_job(
        StartLoad("t", 0, Load("Concurrency", 4.0), "10.0.0.7", 5),
        spec,
        "ml",
        "chat",
        OWNER,
        render.LoadSettings("i", 1),
    )

    pod = job["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    assert pod["volumes"][0]["configMap"] == {"name": "azure"}
    assert json.loads(args[args.index("--workload") + 1])["trace"]["path"] == "/trace/conv.csv"


def test_a_checkpoint_on_a_claim_is_mounted():
    spec = make_spec(model__variants=[{"name": "a", "source": "pvc://models/tiny/v1"}])
    engine = render.trial_engine("t", spec, space_of(spec).baseline, "ml", "chat", OWNER)

    container = engine["spec"]["containers"][0]
    assert container["args"][:2] == ["--model", "/models/tiny/v1"]
    assert engine["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "models"


def test_a_pod_template_is_merged_by_the_names_of_its_lists():
    spec = make_spec(
        engine__podTemplate={
            "spec": {
                "tolerations": [{"key": "gpu"}],
                "containers": [{"name": "engine", "resources": {"limits": {"cpu": "2"}}}],
            }
        }
    )
    engine = render.trial_engine("t", spec, CONFIGURATION, "ml", "chat", OWNER)

    container = engine["spec"]["containers"][0]
    assert [item["name"] for item in container["env"]] == ["POD_IP"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "cpu": "2"}
    assert engine["spec"]["tolerations"] == [{"key": "gpu"}]


def test_strategic_merge_changes_neither_side_and_null_removes():
    base = {"a": {"x": 1, "y": 2}, "containers": [{"name": "c", "image": "i"}]}
    patch = {"a": {"y": None}, "containers": [{"name": "d"}]}

    merged = strategic_merge(base, patch)

    assert merged == {"a": {"x": 1}, "containers": [{"name": "c", "image": "i"}, {"name": "d"}]}
    assert base == {"a": {"x": 1, "y": 2}, "containers": [{"name": "c", "image": "i"}]}
