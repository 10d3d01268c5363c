import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from click.testing import CliRunner

from frontier_tuner import cli
from frontier_tuner.durations import format_duration, parse_duration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.metrics import MEASURE, WARM_UP, LoadMetrics, bucket_edges
from frontier_tuner.load.options import LoadOptions, format_slo, parse_slo
from frontier_tuner.load.summary import LoadSummary, parse_summary
from frontier_tuner.measurement import Ending, Load
from frontier_tuner.objectives import SLO

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def make_summary(**over):
    values = {
        "load": Load("Concurrency", 8),
        "begin": NOW - timedelta(seconds=5),
        "start": NOW,
        "end": NOW + timedelta(seconds=30),
        "scraped_at": NOW + timedelta(seconds=32),
        "sent": 100,
        "ok": 97,
        "failed": 2,
        "cut": 1,
        "input_tokens": 25600,
        "output_tokens": 6400,
        "lag_p99_seconds": 0.004,
        "late_seconds": 0.0,
        "scraped": True,
        "first_error": "HTTP 500",
        "lag_max_seconds": 0.007,
        "unsent": 3,
        "malformed": 1,
        "cpu_percent": 40,
        "shared_tokens": 12_800,
        "ended": Ending("TimeUp", ("TTFT/95",), "the time of 30 s is up; TTFT/95: not known"),
    }
    return LoadSummary(**{**values, **over})


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400), ("500ms", 0.5), ("2m0.5s", 120.5), ("0", 0), ("0s", 0), ("1us", 1e-6)]
)
def test_durations_are_read_as_kubernetes_writes_them(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "five seconds", "5 s", "1d", "s"])
def test_what_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400.5, "1h30m500ms"), (0, "0s"), (30.012, "30s12ms"), (-1.5, "-1s500ms")]
)
def test_durations_are_written_in_whole_milliseconds(seconds, text):
    assert format_duration(seconds) == text
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["TTFT/95<=2s", "ITL/99<=30ms", "E2E/50<=1m30s", "UserTokensPerSecond/5>=40", "UserTokensPerSecond/5>=1234.5678"],
)
def test_an_slo_survives_the_command_line(text):
    assert format_slo(parse_slo(text)) == text


@pytest.mark.parametrize(
    "text",
    ["TTFT<=2s", "TTFT/95>=2s", "UserTokensPerSecond/5<=40", "TTFT/0<=2s", "X/95<=2s", "TTFT/95<=2", "TTFT/95<=0s"],
)
def test_what_is_not_an_slo_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=text.split("/", maxsplit=1)[0]):
        parse_slo(text)


def test_a_summary_survives_its_json_and_is_small():
    summary = make_summary(first_error="x" * 10_000)
    text = summary.encode()
    assert len(text) < 4096
    assert parse_summary(text) == make_summary(first_error="x" * 500)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '"x"', make_summary().encode()[:-30]])
def test_a_truncated_summary_is_an_error_and_never_zeros(text):
    with pytest.raises(MeasurementError, match="summary is incomplete"):
        parse_summary(text)


def test_an_older_load_generator_does_not_say_why_it_ended_and_an_unknown_reason_is_an_error():
    older = json.loads(make_summary().encode())
    del older["ended"]
    assert parse_summary(json.dumps(older)) == make_summary(ended=None)
    with pytest.raises(MeasurementError, match="summary is incomplete"):
        parse_summary(json.dumps({**older, "ended": {"reason": "Bored"}}))


def test_a_long_reason_is_cut():
    text = make_summary(first_error="x" * 10_000, ended=Ending("TimeUp", ("ITL/95",) * 3, "y" * 10_000)).encode()
    assert len(text) < 4096
    assert parse_summary(text).ended == Ending("TimeUp", ("ITL/95",) * 3, "y" * 300)


def test_buckets_lie_on_and_tightly_around_every_threshold():
    edges = bucket_edges(0.001, 600, [0.5, 2.0])
    assert edges == sorted(set(edges))
    for threshold in (0.5, 2.0):
        assert {threshold, threshold * 0.99, threshold * 1.01} <= set(edges)
    assert edges[0] == 0.001
    assert edges[-1] >= 600
    assert all(high / low < 1.13 for low, high in pairwise(edges))


def test_every_series_is_exported_at_zero_before_the_load():
    metrics = LoadMetrics([])
    registry = metrics.registry()
    for phase in (WARM_UP, MEASURE):
        for result in ("ok", "failed", "cut"):
            labels = {"phase": phase, "result": result}
            assert registry.get_sample_value("frontier_load_requests_total", labels) == 0
        assert registry.get_sample_value("frontier_load_output_tokens_total", {"phase": phase}) == 0
        assert registry.get_sample_value("frontier_load_ttft_seconds_bucket", {"phase": phase, "le": "+Inf"}) == 0


def test_a_histogram_counts_weights_and_puts_a_value_on_an_edge_below_it():
    metrics = LoadMetrics([SLO("itl", "ITL", 95, maximum=0.03)])
    metrics.itl[MEASURE].observe(0.03, 4)
    metrics.itl[MEASURE].observe(0.0301)
    registry = metrics.registry()
    value = registry.get_sample_value
    assert value("frontier_load_itl_seconds_bucket", {"phase": MEASURE, "le": "0.03"}) == 4
    assert value("frontier_load_itl_seconds_count", {"phase": MEASURE}) == 5
    assert value("frontier_load_itl_seconds_sum", {"phase": MEASURE}) == pytest.approx(0.1501)


@pytest.fixture
def run(monkeypatch):
    """Run `frontier load` without a load; return the options that it understood and what it printed."""

    def run_(*arguments):
        seen, rules = [], []

        async def remember(options, rule):
            seen.append(options)
            rules.append(rule)
            return make_summary()

        monkeypatch.setattr("frontier_tuner.load.generator.generate", remember)
        result = CliRunner().invoke(cli.main, ["load", *arguments])
        assert [rule is not None for rule in rules] == [options.precision_percent > 0 for options in seen]
        return (seen[0] if seen else None), result

    return run_


PROFILE = {"profile": {"inputTokens": {"mean": 8}, "outputTokens": {"mean": 4}}}


@pytest.mark.parametrize("load", [Load("Concurrency", 8), Load("RequestRate", 2.5), Load("RequestRate", 1 / 3)])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"precision_percent": 7.5, "min_window_seconds": 50.0, "min_requests": 20},
        {"burstiness": 0.5, "arrivals": "Gamma", "records": "r.jsonl", "api_key_file": "k", "new_connections": True},
    ],
)
def test_the_options_are_the_command_line(run, load, more):
    slos = (parse_slo("TTFT/95<=2s"), parse_slo("UserTokensPerSecond/5>=40"))
    options = LoadOptions("http://h:1", "m", load, PROFILE, duration_seconds=1.5, slos=slos, **more)
    understood, result = run(*options.arguments())
    assert result.exit_code == 0, result.output
    assert understood == options
    assert parse_summary(result.output) == make_summary()


def test_a_replay_in_its_own_time_reports_the_rate_that_it_comes_to(run, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp": {1000 * n}, "input_length": 5, "output_length": 5}}\n' for n in range(10)))
    workload = {"trace": {"path": str(path), "format": "Mooncake"}}
    options = LoadOptions("http://h:1", "m", Load("RequestRate", 3), workload, time_scale=3.0)
    understood, result = run(*options.arguments())
    assert result.exit_code == 0, result.output
    assert understood == options


def test_a_workload_may_be_a_file(run, tmp_path):
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(PROFILE))
    understood, _ = run("--url", "http://h:1", "--model", "m", "--concurrency", "1", "--workload", f"@{path}")
    assert understood.workload == PROFILE


BASE = ("--url", "http://h:1", "--model", "m", "--workload", json.dumps(PROFILE))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (BASE, "give exactly one of"),
        ((*BASE, "--concurrency", "1", "--request-rate", "1"), "give exactly one of"),
        (("--model", "m", "--concurrency", "1"), "Missing option '--url'"),
        ((*BASE, "--time-scale", "2"), "only a trace"),
        ((*BASE[:-1], "{", "--concurrency", "1"), "Expecting property name"),
        ((*BASE[:-1], "[]", "--concurrency", "1"), "must be a JSON object"),
        ((*BASE, "--concurrency", "1", "--metrics-listen", "here"), "need an address"),
        ((*BASE, "--concurrency", "1", "--slo", "TTFT<1"), "is not an SLO"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_sent(run, arguments, words):
    understood, result = run(*arguments)
    assert understood is None
    assert result.exit_code == 2
    assert words in result.output


def test_given_arrivals_replace_the_workloads():
    workload = {**PROFILE, "arrivals": {"pattern": "Constant"}}
    options = LoadOptions("http://h:1", "m", Load("RequestRate", 1), workload)
    assert options.resolved_workload == workload
    assert replace(options, burstiness=0.5).resolved_workload["arrivals"] == {"burstiness": "0.5"}
    assert replace(options, arrivals="Poisson").resolved_workload["arrivals"] == {"pattern": "Poisson"}


@pytest.mark.parametrize("name", ["precision_percent", "min_window_seconds", "min_requests"])
def test_what_ends_a_window_is_not_below_zero(name):
    with pytest.raises(ValueError, match="must not be below 0"):
        replace(LoadOptions("http://h:1", "m", Load("RequestRate", 1), PROFILE), **{name: -1})


@pytest.mark.parametrize("over", [{"time_scale": 0.0}, {"time_scale": 1.0, "load": Load("Concurrency", 1)}])
def test_a_time_scale_is_above_zero_and_for_an_open_loop(over):
    with pytest.raises(ValueError, match="time scale"):
        replace(LoadOptions("http://h:1", "m", Load("RequestRate", 1), PROFILE), **over)
