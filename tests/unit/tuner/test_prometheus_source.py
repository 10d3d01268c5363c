from datetime import UTC, datetime

import pytest
import requests

from frontier_tuner.errors import MeasurementError
from frontier_tuner.prometheus import Empty, NotANumber, PrometheusSource, Value

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


class Response:
    def __init__(self, body, status=200):
        self.status_code = status
        self.content = str(body)
        self._body = body

    def json(self):
        if isinstance(self._body, Exception):
            raise self._body
        return self._body


def vector(*values):
    return {"status": "success", "data": {"result": [{"metric": {"pod": "p"}, "value": [1, v]} for v in values]}}


@pytest.fixture
def ask(monkeypatch):
    """A source whose Prometheus answers with what it is given; the requests it got are kept."""
    source = PrometheusSource("http://prometheus.test/base/")

    def answer(response, expression="up"):
        def request(_, **sent):
            answer.sent = sent
            if isinstance(response, Exception):
                raise response
            return response

        monkeypatch.setattr(requests.Session, "request", request)
        return source.query(expression, AT)

    answer.source = source
    yield answer
    source.close()


@pytest.mark.parametrize(
    ("values", "want"),
    [(["1.5"], Value(1.5)), ([], Empty()), (["NaN"], NotANumber()), (["+Inf"], NotANumber()), (["0"], Value(0.0))],
)
def test_an_answer_is_a_value_or_empty_or_not_a_number(ask, values, want):
    assert ask(Response(vector(*values))) == want
    assert ask.sent["params"] == {"query": "up", "time": f"{AT.timestamp():.3f}"}
    assert ask.sent["url"] == "http://prometheus.test/base/api/v1/query"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Response(vector("1", "2")), "2 series"),
        (Response({"data": {"result": [{"metric": {}, "values": [[1, "2"]]}]}}), "instant vector"),
        (Response({"data": {"result": [1, "2"]}}), "instant vector"),
        (Response({"status": "error"}), "does not answer like Prometheus"),
        (Response(ValueError("not JSON")), "does not answer like Prometheus"),
        (Response({"error": "parse error"}, status=400), "refused up.*parse error"),
        (requests.ConnectionError("no such host"), "prometheus.test/base cannot be reached: no such host"),
        (requests.Timeout("late"), "cannot be reached"),
    ],
)
def test_anything_else_is_an_error_with_the_address_or_the_query(ask, response, words):
    with pytest.raises(MeasurementError, match=words):
        ask(response)


def test_a_rotated_token_is_read_anew(monkeypatch, tmp_path):
    token, seen = tmp_path / "token", []

    def request(_, **sent):
        seen.append(sent["headers"]["Authorization"])
        return Response(vector("1"))

    monkeypatch.setattr(requests.Session, "request", request)
    with PrometheusSource("https://prometheus.test", bearer_token_file=token) as source:
        for text in ("one\n", "two"):
            token.write_text(text)
            source.query("up", AT)
        token.unlink()
        with pytest.raises(MeasurementError, match="token"):
            source.query("up", AT)
    assert seen == ["Bearer one", "Bearer two"]
