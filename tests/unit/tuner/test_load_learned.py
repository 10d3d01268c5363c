import json
import random
import shutil
import statistics
import subprocess
from itertools import pairwise

import pytest

from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.learned import learn, learning_queries
from frontier_tuner.load.workload import parse_workload
from frontier_tuner.prometheus.source import Sample
from frontier_tuner.spec import StudySpec

MINIMAL = {"model": {"variants": [{"name": "bf16", "source": "hf://org/name"}]}, "engine": {"image": "engine:1"}}
EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def one(value):
    return [Sample({}, value)]


def buckets(lengths):
    cumulative = [Sample({"le": f"{edge}.0"}, float(sum(length <= edge for length in lengths))) for edge in EDGES]
    return [*cumulative, Sample({"le": "+Inf"}, float(len(lengths)))]


def make_answers(**over):
    generator = random.Random(1)
    inputs = [round(generator.lognormvariate(6.5, 0.6)) for _ in range(20_000)]
    outputs = [generator.randint(40, 60) for _ in range(20_000)]
    answers = {
        "requestRate": one(4.0),
        "busyRate": one(7.5),
        "bins": one(1438.0),
        "perBin": one(240.0),
        "twoSampleVariance": one(480.0),
        "cached": one(0.634),
        "inputBuckets": buckets(inputs),
        "inputMean": one(statistics.fmean(inputs)),
        "outputBuckets": buckets(outputs),
        "outputMean": one(statistics.fmean(outputs)),
    }
    return {**answers, **over}, inputs, outputs


def test_a_workload_is_learned_with_its_lengths_rate_burstiness_and_hit_rate():
    answers, inputs, _ = make_answers()
    learned = learn(answers)
    assert (learned.request_rate, learned.busy_rate, learned.requests, learned.notes) == (4.0, 7.5, 20_000, ())
    assert learned.arrivals == {"pattern": "Gamma", "burstiness": "0.50"}
    assert learned.profile["session"] == {"turns": 1, "sharedPrefixPercent": 63}
    workload = parse_workload({"profile": learned.profile, "arrivals": learned.arrivals})
    generator = random.Random(2)
    drawn = [workload.inputs.draw(generator) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(statistics.fmean(inputs), rel=0.02)
    for edge in (200, 500, 1000, 2000):
        share = sum(length <= edge for length in inputs) / len(inputs)
        assert sum(length <= edge for length in drawn) / len(drawn) == pytest.approx(share, abs=0.01)


def test_a_learned_profile_is_one_that_a_spec_may_hold():
    learned = learn(make_answers()[0])
    workload = {"profile": learned.profile, "arrivals": learned.arrivals, "requestRate": f"{learned.busy_rate:.3f}"}
    spec = StudySpec.parse({**MINIMAL, "workload": workload}).workload
    assert spec.profile.output_tokens.mean == pytest.approx(50, abs=1)
    assert parse_workload(spec.resolve()) == parse_workload({k: workload[k] for k in ("profile", "arrivals")})


def test_lengths_beyond_the_last_bucket_end_at_the_models_context():
    answers, _, _ = make_answers(inputBuckets=buckets([6000, 9000] * 100), inputMean=one(7500.0))
    assert learn(answers, max_tokens=8192).profile["inputTokens"]["histogram"][-1]["upTo"] == 8192
    histogram = learn(answers).profile["inputTokens"]["histogram"]
    assert [bucket["upTo"] for bucket in histogram] == [5000, 7500, 10_000]


@pytest.mark.parametrize(
    "over",
    [
        {"requestRate": []},
        {"requestRate": one(float("nan"))},
        {"inputBuckets": []},
        {"outputBuckets": [Sample({"le": "+Inf"}, float("nan"))]},
        {"inputBuckets": buckets([50] * 99)},
    ],
)
def test_nothing_is_learned_from_too_little_and_never_a_zero(over):
    with pytest.raises(MeasurementError, match=r"at least 100 requests, and \d+ were seen: look back further"):
        learn(make_answers(**over)[0])


@pytest.mark.parametrize(
    ("over", "arrivals", "note"),
    [
        ({"bins": one(12.0)}, {}, "too few requests"),
        ({"perBin": one(0.5)}, {}, "too few requests"),
        ({"twoSampleVariance": []}, {}, "too few requests"),
        ({"cached": one(float("nan"))}, {"pattern": "Gamma", "burstiness": "0.50"}, "no prefix cache"),
        ({"cached": []}, {"pattern": "Gamma", "burstiness": "0.50"}, "no prefix cache"),
    ],
)
def test_what_cannot_be_learned_is_said_with_what_stands_in(over, arrivals, note):
    learned = learn(make_answers(**over)[0])
    assert learned.arrivals == arrivals
    assert note in learned.notes[0]


def test_burstiness_is_that_of_the_arrivals_whatever_the_time_of_day():
    generator = random.Random(3)
    counts = []
    for minute in range(1440):
        rate = 60 if minute < 720 else 240
        moment, count = 0.0, 0
        while (moment := moment + generator.gammavariate(0.25, 4.0 / rate)) < 1.0:
            count += 1
        counts.append(count)
    differences = [(later - earlier) ** 2 for earlier, later in pairwise(counts)]
    answers, _, _ = make_answers(
        perBin=one(statistics.fmean(counts)), twoSampleVariance=one(statistics.fmean(differences) / 2)
    )
    assert float(learn(answers).arrivals["burstiness"]) == pytest.approx(0.25, rel=0.2)


def test_queries_name_exactly_the_pods_and_need_one():
    queries = learning_queries("ml", ["a-1", "b.2"], 86_400)
    assert all('namespace="ml",pod=~"a-1|b\\\\.2"' in text.replace("a\\\\-1", "a-1") for text in queries.values())
    assert all("[24h" in text for name, text in queries.items() if name != "busyRate")
    with pytest.raises(ValueError, match="at least one pod"):
        learning_queries("ml", [], 60)
    with pytest.raises(ValueError, match="holds nothing"):
        learning_queries("ml", ["a"], 0)


def series(name, values, **labels):
    text = ",".join(f'{label}="{value}"' for label, value in {"namespace": "ml", "pod": "a", **labels}.items())
    return {"series": f"{name}{{{text}}}", "values": values if isinstance(values, str) else " ".join(map(str, values))}


def rising(steps):
    total, values = 0, [0]
    for step in steps:
        total += step
        values.append(total)
    return values


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
def test_the_queries_say_what_they_mean_on_a_real_promql_engine(tmp_path):
    """An hour of samples a minute apart, scraped by two jobs; another pod must not count."""
    bins = [10, 30] * 60
    ttft = "vllm:time_to_first_token_seconds_count"
    lengths = "vllm:request_prompt_tokens"
    both = [{"job": "one"}, {"job": "two"}]
    given = [series(ttft, rising(bins), engine="0", **job) for job in both]
    given += [
        series(ttft, "0+500x120", pod="other"),
        series(f"{lengths}_bucket", "0+6x120", le="100.0"),
        series(f"{lengths}_bucket", "0+20x120", le="+Inf"),
        series(f"{lengths}_sum", "0+3000x120"),
        series(f"{lengths}_count", "0+20x120"),
        series("vllm:gpu_prefix_cache_hits_total", "0+900x120"),
        series("vllm:gpu_prefix_cache_queries_total", "0+3000x120"),
    ]
    queries = learning_queries("ml", ["a"], 3600)
    expected = {
        "requestRate": 20 / 60,
        "perBin": 20,
        "twoSampleVariance": 200,
        "inputMean": 150,
        "cached": 0.3,
        "busyRate": 22 / 60,
    }
    tests = [near(queries[name], value) for name, value in expected.items()]
    tests.append(near(queries["bins"], 60))
    low, high = '{le="100.0"} 360', '{le="+Inf"} 1200'
    samples = [{"labels": text.split()[0], "value": float(text.split()[1])} for text in (low, high)]
    tests.append({"expr": queries["inputBuckets"], "eval_time": "120m", "exp_samples": samples})
    run_promtool(tmp_path, given, tests)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
def test_an_engine_that_began_anew_is_not_taken_for_a_burst(tmp_path):
    values = rising([20] * 60) + rising([20] * 60)
    queries = learning_queries("ml", ["a"], 3600)
    given = [series("vllm:time_to_first_token_seconds_count", values)]
    run_promtool(tmp_path, given, [near(queries["twoSampleVariance"], 0), near(queries["perBin"], 20)])


def near(expression, value):
    """A subquery has one point more or less at its left end, depending on Prometheus's version."""
    expression = f"abs(({expression}) - {value}) <= bool {0.02 * value + 0.001}"
    return {"expr": expression, "eval_time": "120m", "exp_samples": [{"labels": "{}", "value": 1}]}


def run_promtool(directory, given, tests):
    path = directory / "tests.json"
    group = {"interval": "1m", "input_series": given, "promql_expr_test": tests}
    path.write_text(json.dumps({"evaluation_interval": "1m", "tests": [group]}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
