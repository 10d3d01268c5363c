"""Settings of the operator's process, from environment variables with the prefix `FRONTIER_`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What differs between installations.

    Attributes:
        prometheus_url: Base address of the Prometheus that scrapes engines and load generators.
        scrape_seconds: How often that Prometheus scrapes engines and load generators.
        namespaces: Comma-separated namespaces to serve; empty for all.
        load_image: The image of the load generator, normally the operator's own.
        poll_seconds: Time between two looks at an object while something is under way.
        idle_seconds: Time between two looks while nothing is under way.
        scheduling_seconds: How long a trial's pod may stay unscheduled before the trial is given back.
        load_deadline_seconds: What a load Job may take beyond its warm-up and duration.
        health_host: Address on which `/healthz` answers.
        health_port: Port on which `/healthz` answers.
    """

    model_config = SettingsConfigDict(env_prefix="FRONTIER_", frozen=True)

    prometheus_url: str = "http://prometheus-operated.monitoring.svc:9090"
    scrape_seconds: float = Field(default=5.0, gt=0)
    namespaces: str = ""
    load_image: str = "frontier-operator:latest"
    poll_seconds: float = Field(default=5.0, gt=0)
    idle_seconds: float = Field(default=30.0, gt=0)
    scheduling_seconds: float = Field(default=600.0, gt=0)
    load_deadline_seconds: float = Field(default=180.0, gt=0)
    health_host: str = "0.0.0.0"
    health_port: int = Field(default=8080, ge=1, le=65535)

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """The namespaces to serve, empty for all."""
        return tuple(part.strip() for part in self.namespaces.split(",") if part.strip())
