"""The client against a real HTTP server; a real Prometheus is asked in the integration tests."""

import math
import re
import socket
from datetime import UTC, datetime, timedelta

import pytest

from frontier_tuner.errors import MeasurementError
from frontier_tuner.prometheus import Empty, NotANumber, PrometheusSource, Value
from frontier_tuner.prometheus.answers import (
    MalformedAnswerError,
    NativeHistogram,
    PartialAnswerError,
    RefusedError,
    Series,
    UnreachableError,
)
from frontier_tuner.prometheus.retries import RetryBudget, attempts
from support.scripted_server import Reply, ScriptedServer

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def answer(result, kind="vector", **over):
    return {"status": "success", "data": {"resultType": kind, "result": result}, **over}


def vector(*values):
    return answer([{"metric": {"pod": "p"}, "value": [1, value]} for value in values])


def ask(*replies, expression="up", **options):
    with ScriptedServer(*replies) as server, PrometheusSource(f"{server.url}/base/", **options) as source:
        return source.query(expression, AT), server.asked


@pytest.mark.parametrize(
    ("values", "want"),
    [(["1.5"], Value(1.5)), ([], Empty()), (["NaN"], NotANumber()), (["+Inf"], NotANumber()), (["0"], Value(0.0))],
    ids=["a number", "case 47: no series", "NaN", "infinite", "a real zero"],
)
def test_an_answer_is_a_value_or_empty_or_not_a_number(values, want):
    got, (asked,) = ask(Reply(vector(*values)))
    assert got == want
    assert (asked.method, asked.path) == ("GET", "/base/api/v1/query")
    assert asked.parameters["query"] == "up"
    assert asked.parameters["time"] == f"{AT.timestamp():.3f}"


def test_the_server_is_told_how_long_it_has_and_that_a_part_is_no_answer():
    _, (asked,) = ask(Reply(vector("1")), timeout_seconds=7.0)
    assert asked.parameters["timeout"] in ("7s", "6s999ms")
    assert asked.parameters["partial_response"] == "false"
    assert asked.parameters["deny_partial_response"] == "1"


def test_a_long_expression_is_posted():
    expression = "+".join(["up"] * 1000)
    _, (asked,) = ask(Reply(vector("1")), expression=expression)
    assert (asked.method, asked.parameters["query"]) == ("POST", expression)


def test_a_range_is_asked_with_its_times_and_a_matrix_read_with_its_own():
    body = answer([{"metric": {"pod": "p"}, "values": [[1.5, "2"], [2.5, "NaN"]]}], kind="matrix")
    with ScriptedServer(Reply(body)) as server, PrometheusSource(server.url) as source:
        (series,) = source.range("up", AT, AT + timedelta(seconds=60), 7.5)
        raw = source.matrix("up[1m]", AT)
    asked = server.asked[0]
    assert asked.path == "/api/v1/query_range"
    assert asked.parameters["start"] == f"{AT.timestamp():.3f}"
    assert asked.parameters["end"] == f"{AT.timestamp() + 60:.3f}"
    assert asked.parameters["step"] == "7.500"
    assert (series.times, series.values[0]) == ((1.5, 2.5), 2.0)
    assert math.isnan(series.values[1])
    assert raw[0].times == series.times
    assert isinstance(raw[0], Series)


def test_a_native_histogram_is_read_with_its_buckets_and_never_as_a_number():
    histogram = {"count": "4", "sum": "1.5", "buckets": [[0, "0", "0.5", "3"], [0, "0.5", "+Inf", "1"]]}
    body = answer([{"metric": {}, "histogram": [1, histogram]}])
    with ScriptedServer(Reply(body)) as server, PrometheusSource(server.url) as source:
        (sample,) = source.vector("h", AT)
        assert sample.histogram == NativeHistogram(4.0, 1.5, ((0.0, 0.5, 3.0), (0.5, math.inf, 1.0)))
        assert math.isnan(sample.value)
        with pytest.raises(MalformedAnswerError, match="gives a histogram"):
            source.query("h", AT)


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply(vector("1", "2")), MalformedAnswerError, "2 series"),
        (Reply(answer([], kind="matrix")), MalformedAnswerError, "with a matrix, not a vector"),
        (Reply(answer([{"metric": {}, "values": [[1, "2"]]}])), MalformedAnswerError, "instant vector"),
        (Reply(answer([1, "2"])), MalformedAnswerError, "instant vector"),
        (Reply(answer("2")), MalformedAnswerError, "instant vector"),
        (Reply(answer([{"metric": {}, "value": [1, "two"]}])), MalformedAnswerError, "instant vector"),
        (Reply({"status": "error"}), MalformedAnswerError, "does not answer like Prometheus"),
        (Reply("<html>not JSON"), MalformedAnswerError, "does not answer like Prometheus.*not JSON"),
        (Reply({"error": "parse error"}, status=400), RefusedError, "refused up: HTTP 400 parse error"),
        (Reply({"error": "too many samples"}, status=422), RefusedError, "too many samples"),
        (Reply("Forbidden", status=403), RefusedError, "HTTP 403 Forbidden"),
        (
            Reply(status=302, headers={"Location": "https://login.test/"}),
            RefusedError,
            "redirect to https://login.test/",
        ),
        (Reply(vector("1") | {"warnings": ["store a is down"]}), PartialAnswerError, "up: store a is down"),
        (Reply(vector("1") | {"isPartial": True}), PartialAnswerError, "storage nodes is missing"),
        (Reply(vector() | {"warnings": ["PromQL warning: bad bucket label"]}), PartialAnswerError, "bad bucket label"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_else_is_an_error_of_its_own_kind_with_the_address_or_the_query(reply, kind, words):
    with pytest.raises(kind, match=words):
        ask(reply)


@pytest.mark.parametrize(
    "extra",
    [{"infos": ["PromQL info: might not be a counter"]}, {"warnings": ["PromQL info: might not be a counter"]}],
    ids=["as an info", "as versions 2.48 to 2.53 list it"],
)
def test_a_hint_is_no_partial_answer(extra):
    assert ask(Reply(vector("1") | extra))[0] == Value(1.0)


class Clock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_asked_again(status):
    clock = Clock()
    got, asked = ask(Reply("busy", status=status), Reply(vector("1")), clock=clock, sleep=clock.sleep)
    assert (got, len(asked)) == (Value(1.0), 2)
    assert 0.1 <= clock.slept[0] <= 0.2


def test_a_lasting_trouble_ends_after_three_attempts_with_what_the_server_said():
    clock = Clock()
    with ScriptedServer(Reply({"error": "overloaded"}, status=503)) as server:
        source = PrometheusSource(server.url, clock=clock, sleep=clock.sleep)
        with pytest.raises(UnreachableError, match="HTTP 503 overloaded"):
            source.query("up", AT)
        source.close()
    assert len(server.asked) == 3
    assert 0.3 <= sum(clock.slept) <= 0.6


def test_the_server_says_when_to_come_back_and_is_not_waited_for_beyond_the_deadline():
    clock = Clock()
    busy = Reply("busy", status=429, headers={"Retry-After": "4"})
    ask(busy, Reply(vector("1")), clock=clock, sleep=clock.sleep, timeout_seconds=2.0)
    assert clock.slept == [4.0]
    late = Reply("busy", status=429, headers={"Retry-After": "600"})
    with pytest.raises(UnreachableError):
        ask(late, Reply(vector("1")), clock=clock, sleep=clock.sleep, timeout_seconds=2.0)
    assert clock.slept == [4.0]


def test_a_wrong_question_is_asked_once():
    with ScriptedServer(Reply("no", status=400)) as server, PrometheusSource(server.url) as source:
        with pytest.raises(RefusedError):
            source.query("up{", AT)
        assert len(server.asked) == 1


def test_a_failing_server_is_asked_less_and_less():
    clock = Clock()
    with ScriptedServer(Reply("down", status=503)) as server:
        source = PrometheusSource(server.url, clock=clock, sleep=clock.sleep)
        counts = []
        for _ in range(5):
            before = len(server.asked)
            with pytest.raises(UnreachableError):
                source.query("up", AT)
            counts.append(len(server.asked) - before)
        server.replies = [Reply(vector("1"))]
        for _ in range(60):
            source.query("up", AT)
        server.replies = [Reply("down", status=503), Reply(vector("1"))]
        assert source.query("up", AT) == Value(1.0)
        source.close()
    assert counts == [3, 2, 1, 1, 1]


def test_attempts_never_outlast_the_deadline():
    clock, begun = Clock(), 100.0
    for attempt in attempts(9, 10.0, 4.0, RetryBudget(), clock, clock.sleep, lambda: 1.0):
        assert attempt.ends_at <= begun + 10.0
        clock.now = attempt.ends_at
        attempt.failed(None)
    assert clock.now <= begun + 10.0


def test_case_46_an_address_that_does_not_resolve_is_named_with_the_error():
    source = PrometheusSource("http://prometheus.invalid:9090", max_attempts=1)
    words = r"http://prometheus\.invalid:9090 cannot be reached: .*prometheus\.inv"
    with source, pytest.raises(UnreachableError, match=words):
        source.query("up", AT)


def test_a_server_that_says_nothing_and_one_that_drips_are_late():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        source = PrometheusSource(url, timeout_seconds=0.2, max_attempts=1)
        with source, pytest.raises(UnreachableError, match=r"cannot be reached.*timed out"):
            source.query("up", AT)
    drip = Reply(vector(*["1"] * 10), drip=0.02)
    with pytest.raises(UnreachableError, match=r"not complete within 0\.2"):
        ask(drip, timeout_seconds=0.2, max_attempts=1)


def test_a_rotated_token_is_read_anew(tmp_path):
    token = tmp_path / "token"
    with ScriptedServer(Reply(vector("1"))) as server, PrometheusSource(server.url, bearer_token_file=token) as source:
        for text in ("one\n", "two"):
            token.write_text(text)
            source.query("up", AT)
        token.unlink()
        with pytest.raises(MeasurementError, match=r"credential for Prometheus cannot be read.*token"):
            source.query("up", AT)
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer one", "Bearer two"]


def test_a_password_may_stand_in_a_file_and_a_netrc_file_replaces_nothing(tmp_path, monkeypatch):
    netrc, password = tmp_path / "netrc", tmp_path / "password"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    password.write_text("secret\n")
    assert "Authorization" not in ask(Reply(vector("1")))[1][0].headers
    for secret in ("secret", password):
        _, (asked,) = ask(Reply(vector("1")), basic_auth=("user", secret))
        assert asked.headers["Authorization"] == "Basic dXNlcjpzZWNyZXQ="


def test_tenant_and_further_headers_go_with_every_request():
    _, (asked,) = ask(Reply(vector("1")), tenant="team-a", headers={"THANOS-TENANT": "b"})
    assert (asked.headers["X-Scope-OrgID"], asked.headers["THANOS-TENANT"]) == ("team-a", "b")


def test_a_token_and_a_user_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match="not both"):
        PrometheusSource("http://prometheus", bearer_token_file=tmp_path / "t", basic_auth=("u", "p"))


def test_an_error_names_no_secret(tmp_path):
    token = tmp_path / "token"
    token.write_text("very-secret")
    with pytest.raises(RefusedError) as caught:
        ask(Reply("denied", status=401), bearer_token_file=token)
    assert not re.search("very-secret", str(caught.value))
