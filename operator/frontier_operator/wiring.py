"""The composition root: settings in, everything that runs out."""

from dataclasses import dataclass

from kubernetes import client, config

from frontier_operator.adapters.clock import SystemClock
from frontier_operator.adapters.events import KubeEvents
from frontier_operator.adapters.kube import KubeObjects
from frontier_operator.adapters.metrics import PrometheusMetrics
from frontier_operator.app.loop import Loops
from frontier_operator.app.reconcile import Reconciler
from frontier_operator.core.observation import Tunables
from frontier_operator.core.render import LoadSettings
from frontier_operator.ports import Ports
from frontier_operator.settings import Settings
from frontier_tuner.prometheus.source import PrometheusSource


@dataclass(frozen=True)
class Context:
    """What handlers need."""

    settings: Settings
    loops: Loops


def build(settings: Settings) -> Context:
    """Return the running parts for these settings; reads the service account or the kubeconfig."""
    clock = SystemClock()
    objects = KubeObjects(_client())
    ports = Ports(
        clock=clock,
        objects=objects,
        logs=objects,
        metrics=PrometheusMetrics(prometheus_of(settings), clock, settings.scrape_seconds),
        events=KubeEvents(objects, clock),
    )
    tunables = Tunables(
        poll_seconds=settings.poll_seconds,
        idle_seconds=settings.idle_seconds,
        scheduling_seconds=settings.scheduling_seconds,
        load_deadline_seconds=settings.load_deadline_seconds,
        scrape_seconds=settings.scrape_seconds,
    )
    load = LoadSettings(settings.load_image, settings.load_deadline_seconds, scrape_seconds=settings.scrape_seconds)
    return Context(settings, Loops(Reconciler(ports, tunables, load, settings.policy)))


def prometheus_of(settings: Settings) -> PrometheusSource:
    """Return the Prometheus that the settings name, with all that it asks for before it answers."""
    certificate, key = settings.prometheus_client_certificate_file, settings.prometheus_client_key_file
    password = settings.prometheus_password_file
    return PrometheusSource(
        settings.prometheus_url,
        bearer_token_file=settings.prometheus_token_file,
        basic_auth=None if password is None else (settings.prometheus_user, password),
        client_certificate=None if certificate is None or key is None else (certificate, key),
        ca_file=settings.prometheus_ca_file,
        tenant=settings.prometheus_tenant or None,
    )


def _client() -> client.ApiClient:
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # has no types
    except config.ConfigException:
        config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # has no types
    return client.ApiClient(configuration)
