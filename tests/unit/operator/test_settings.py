"""How the operator comes into its Prometheus: settings from the environment, and what they make of a request."""

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from frontier_operator.settings import Settings
from frontier_operator.wiring import prometheus_of
from frontier_tuner.prometheus.answers import MeasurementError
from support.scripted_server import Reply, ScriptedServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PREFIX = "FRONTIER_PROMETHEUS_"
SCALAR = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}}


@pytest.fixture
def settings(monkeypatch):
    def make(**given):
        for name, value in given.items():
            monkeypatch.setenv(PREFIX + name, str(value))
        return Settings()

    return make


def headers_of(settings):
    with ScriptedServer(Reply(SCALAR)) as server:
        with prometheus_of(settings.model_copy(update={"prometheus_url": server.url})) as source:
            source.query("vector(1)", NOW)
        return server.asked[0].headers


def test_a_user_with_a_password_from_a_file_and_a_tenant_go_with_every_request(settings, tmp_path):
    password = tmp_path / "password"
    password.write_text("let-me-in\n")
    sent = headers_of(settings(USER="tuner", PASSWORD_FILE=password, TENANT="team-a"))
    assert sent["Authorization"] == "Basic " + b64encode(b"tuner:let-me-in").decode()
    assert sent["X-Scope-OrgID"] == "team-a"


def test_a_token_from_a_file_goes_with_every_request(settings, tmp_path):
    token = tmp_path / "token"
    token.write_text("abc\n")
    sent = headers_of(settings(TOKEN_FILE=token))
    assert sent["Authorization"] == "Bearer abc"
    assert "X-Scope-OrgID" not in sent


def test_a_client_certificate_that_is_not_there_is_named(settings, tmp_path):
    files = {"CLIENT_CERTIFICATE_FILE": tmp_path / "tls.crt", "CLIENT_KEY_FILE": tmp_path / "tls.key"}
    given = settings(URL="https://127.0.0.1:1", **files)
    with prometheus_of(given) as source, pytest.raises(MeasurementError, match=r"cannot be read: .*tls\.crt"):
        source.query("vector(1)", NOW)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"USER": "tuner"}, "FRONTIER_PROMETHEUS_PASSWORD_FILE is not set: a user and the file with the password"),
        ({"PASSWORD_FILE": "/p"}, "FRONTIER_PROMETHEUS_USER is not set"),
        (
            {"USER": "u", "PASSWORD_FILE": "/p", "TOKEN_FILE": "/t"},
            "_USER and FRONTIER_PROMETHEUS_TOKEN_FILE are both set",
        ),
        ({"CLIENT_KEY_FILE": "/k"}, "belong together: set both or neither"),
        ({"TENANT": "a b"}, "FRONTIER_PROMETHEUS_TENANT 'a b' does not fit into a header"),
        ({"URL": "prometheus:9090"}, "prometheus_url"),
    ],
)
def test_settings_that_cannot_work_name_the_variable_and_the_way_out(settings, given, words):
    with pytest.raises(ValidationError, match=words):
        settings(**given)
