"""The doors of the operator to the world, as small protocols; adapters stand behind them, tests may too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from frontier_tuner.configuration import Configuration
from frontier_tuner.load.learned import Learned
from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Measurement, Window
from frontier_tuner.objectives import Objectives

Manifest = dict[str, Any]


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the aware UTC time."""
        ...


class Objects(Protocol):
    """Reads and writes API objects of the kinds that the operator owns."""

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None where there is none."""
        ...

    def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects that carry these labels, read from the store and not from a cache."""
        ...

    def create(self, manifest: Manifest) -> Manifest | None:
        """Create an object and return it; return None where one of that name exists already."""
        ...

    def apply(self, manifest: Manifest) -> Manifest:
        """Create or change an object by server-side apply under the operator's field manager."""
        ...

    def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        """Change nothing but the replicas; an object that is gone is no error."""
        ...

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object with all it owns; one that is gone already is no error."""
        ...

    def write_status(self, manifest: Manifest) -> Manifest:
        """Replace the status; raises ConflictError where the object changed since it was read."""
        ...


class Logs(Protocol):
    """Reads what containers have said."""

    def tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """Return the last lines of a container's log, empty where it has none any more."""
        ...


@dataclass(frozen=True)
class Pricing:
    """What turns throughput into throughput per GPU and into money."""

    gpus: int
    price_per_gpu_hour: float | None
    cached_input_percent: float = 100.0


@dataclass(frozen=True)
class RungRequest:
    """The window of one load Job: who served, who asked, and the load generator's summary.

    What is known beforehand is what the engine was asked for, how much of its prompts the workload repeats (None where
    it does not say), and which arguments its pod was created without.
    """

    namespace: str
    engine_pod: str
    load_pod: str
    summary: LoadSummary
    objectives: Objectives
    pricing: Pricing
    min_requests: int
    configuration: Configuration
    declared_hit_percent: float | None = None
    mismatches: tuple[str, ...] = ()


@dataclass(frozen=True)
class LiveRequest:
    """A window of live traffic on an exact set of pods.

    With `up_to_now` its last scrape need not have landed: what is known by now is enough, and waiting costs users.
    """

    namespace: str
    pods: tuple[str, ...]
    window: Window
    objectives: Objectives
    pricing: Pricing
    min_requests: int
    up_to_now: bool = False


class Metrics(Protocol):
    """Asks Prometheus about windows; all raise MeasurementError where it does not answer."""

    def rung(self, request: RungRequest) -> Measurement:
        """Return what Prometheus says of a load Job's window."""
        ...

    def live(self, request: LiveRequest) -> Measurement:
        """Return what Prometheus says of live traffic."""
        ...

    def learn(self, namespace: str, pods: tuple[str, ...], window_seconds: float) -> Learned:
        """Return the workload that these pods have seen in the last seconds.

        Raises:
            TooFewRequestsError: They have seen too little of it.
        """
        ...


class Events(Protocol):
    """Writes Kubernetes events."""

    def emit(self, regarding: Manifest, reason: str, message: str, *, warning: bool) -> None:
        """Write an event on an object."""
        ...


@dataclass(frozen=True)
class Ports:
    """Everything that a pass may talk to."""

    clock: Clock
    objects: Objects
    logs: Logs
    metrics: Metrics
    events: Events
