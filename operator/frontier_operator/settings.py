"""Settings of the operator's process, from environment variables with the prefix `FRONTIER_`."""

import re
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from frontier_operator.api.policy import Policy


class Settings(BaseSettings):
    """What differs between installations.

    Attributes:
        prometheus_url: Base address of the Prometheus that scrapes engines and load generators.
        prometheus_token_file: File with a bearer token for it; read anew for every request, because tokens rotate.
        prometheus_user: User for it; needs `prometheus_password_file` and excludes a token.
        prometheus_password_file: File with that user's password; read anew for every request.
        prometheus_client_certificate_file: File with a certificate for mutual TLS.
        prometheus_client_key_file: File with that certificate's key.
        prometheus_tenant: Value of the header `X-Scope-OrgID`, which Mimir, Cortex and Thanos' receivers ask for.
        prometheus_ca_file: File with the certificates to trust for it instead of the system's.
        scrape_seconds: How often that Prometheus scrapes engines and load generators.
        namespaces: Comma-separated namespaces to serve; empty for all.
        load_image: The image of the load generator, normally the operator's own.
        poll_seconds: Time between two looks at an object while something is under way.
        idle_seconds: Time between two looks while nothing is under way.
        scheduling_seconds: How long a trial's pod may stay unscheduled before the trial is given back.
        load_deadline_seconds: What a load Job may take beyond its warm-up and duration.
        listen_host: Address on which health and metrics are served.
        health_port: Port of `/healthz`.
        metrics_port: Port of the operator's own `/metrics`.
        allowed_arguments: Comma-separated engine flags that are refused by default and allowed here.
        allowed_service_accounts: Comma-separated service accounts that pod templates may name.
        allow_privileged: Whether pod templates may ask for what the Pod Security Standard `baseline` forbids.
    """

    model_config = SettingsConfigDict(env_prefix="FRONTIER_", frozen=True)

    prometheus_url: str = Field(default="http://prometheus-operated.monitoring.svc:9090", pattern=r"^https?://[^\s/]+")
    prometheus_token_file: Path | None = None
    prometheus_user: str = ""
    prometheus_password_file: Path | None = None
    prometheus_client_certificate_file: Path | None = None
    prometheus_client_key_file: Path | None = None
    prometheus_tenant: str = ""
    prometheus_ca_file: Path | None = None
    scrape_seconds: float = Field(default=5.0, gt=0)
    namespaces: str = ""
    load_image: str = "frontier-operator:latest"
    poll_seconds: float = Field(default=5.0, gt=0)
    idle_seconds: float = Field(default=30.0, gt=0)
    scheduling_seconds: float = Field(default=600.0, gt=0)
    load_deadline_seconds: float = Field(default=180.0, gt=0)
    listen_host: str = "0.0.0.0"
    health_port: int = Field(default=8080, ge=1, le=65535)
    metrics_port: int = Field(default=9090, ge=1, le=65535)
    allowed_arguments: str = ""
    allowed_service_accounts: str = ""
    allow_privileged: bool = False

    @model_validator(mode="after")
    def _access(self) -> Self:
        user, password = bool(self.prometheus_user), self.prometheus_password_file is not None
        if user != password:
            missing = "FRONTIER_PROMETHEUS_PASSWORD_FILE" if user else "FRONTIER_PROMETHEUS_USER"
            raise ValueError(f"{missing} is not set: a user and the file with the password belong together")
        if user and self.prometheus_token_file is not None:
            raise ValueError("FRONTIER_PROMETHEUS_USER and FRONTIER_PROMETHEUS_TOKEN_FILE are both set: unset one")
        if (self.prometheus_client_certificate_file is None) != (self.prometheus_client_key_file is None):
            raise ValueError(
                "FRONTIER_PROMETHEUS_CLIENT_CERTIFICATE_FILE and FRONTIER_PROMETHEUS_CLIENT_KEY_FILE belong together: "
                "set both or neither"
            )
        if not re.fullmatch(r"[\x21-\x7e]*", self.prometheus_tenant):
            raise ValueError(
                f"FRONTIER_PROMETHEUS_TENANT {self.prometheus_tenant!r} does not fit into a header: "
                "give printable ASCII without blanks"
            )
        return self

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """The namespaces to serve, empty for all."""
        return _parts(self.namespaces)

    @property
    def policy(self) -> Policy:
        """What users may pass through to engines and pods."""
        return Policy(
            allowed_arguments=frozenset(_parts(self.allowed_arguments)),
            allowed_service_accounts=frozenset(_parts(self.allowed_service_accounts)),
            allow_privileged=self.allow_privileged,
        )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
