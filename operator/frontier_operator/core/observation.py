"""Everything that a decision may know about one InferenceDeployment, as frozen values.

An observation is built by the shell and read by the core. It holds the time, so that a decision needs no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from frontier_operator.api.v1alpha1 import FieldError, InferenceDeploymentSpec
from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import Measurement
from frontier_tuner.space import SearchSpace
from frontier_tuner.trial import Purpose, TrialRecord


@dataclass(frozen=True)
class PodView:
    """What matters of a pod.

    Attributes:
        name: Its name.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        ready: Whether its Ready condition is True.
        ip: Its address, empty until it has one.
        created: When it was created.
        scheduled_at: When a node took it, or None.
        unschedulable: The scheduler's message while no node takes it, else empty.
        waiting_reason: Why its container waits, for example `ErrImagePull`; empty where it does not.
        waiting_message: The message beside it.
        started_at: When the container's process started, or None.
        ready_at: When it became ready, or None.
        finished_at: When the container ended, or None.
        exit_code: The container's exit code, or None while it runs.
        termination_reason: `Completed`, `Error`, `OOMKilled`, or the pod's own reason such as `Evicted`.
        last_words: The termination message.
        restarts: How often the container was started again.
        terminating: Whether it is being deleted.
    """

    name: str
    phase: str
    ready: bool
    ip: str
    created: datetime
    scheduled_at: datetime | None = None
    unschedulable: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    termination_reason: str = ""
    last_words: str = ""
    restarts: int = 0
    terminating: bool = False


@dataclass(frozen=True)
class LoadView:
    """One load Job: a rung under way or just finished.

    Attributes:
        index: Position of the rung in its trial.
        name: Name of the Job.
        state: How far it is.
        message: Why it failed, else empty.
        measurement: What Prometheus said of its window, once it succeeded; None before.
        metrics_error: Why Prometheus could not be asked, else empty.
    """

    index: int
    name: str
    state: Literal["Running", "Succeeded", "Failed"]
    message: str = ""
    measurement: Measurement | None = None
    metrics_error: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True)
class LiveView:
    """What real traffic shows of a live trial's engine and, in the same window, of the incumbent's engines.

    Attributes:
        engine: The trial's engine, or None where Prometheus did not say.
        incumbent: The incumbent's engines together, their load that of one of them; None where it is unknown.
        engines: How many of the incumbent's engines that are.
        over: Whether this is the window to record, and not all since the engine joined the Service.
        error: Why the engine's window is unknown, else empty.
    """

    engine: Measurement | None
    incumbent: Measurement | None
    engines: int
    over: bool
    error: str = ""


@dataclass(frozen=True)
class TrialView:
    """A TuningTrial with what runs for it.

    Attributes:
        name: Its name.
        number: Position in the study.
        purpose: Why it was proposed.
        configuration: What its engine runs.
        gpus: GPUs that it holds.
        levels: Its ladder, ascending.
        kind: Kind of the ladder's levels.
        fingerprint: The study it belongs to.
        reason: Why it was proposed, as a sentence.
        created: When it was created.
        measurements: Rungs recorded so far.
        record: The journal's record once it is finished, else None.
        engine: The engine's pod, or None.
        loads: Its load Jobs, by index.
        started_at: When its engine was first seen started, from the status.
        ready_at: When its engine was first seen ready, from the status.
        live: Whether its engine takes real traffic instead of load Jobs.
        watched: What real traffic shows of it, where it is live and its engine was ready.
        expected_gain: What it was expected to add when it was proposed, or None.
    """

    name: str
    number: int
    purpose: Purpose
    configuration: Configuration
    gpus: int
    levels: tuple[float, ...]
    kind: Literal["Concurrency", "RequestRate"]
    fingerprint: str
    reason: str
    created: datetime
    measurements: tuple[Measurement, ...] = ()
    record: TrialRecord | None = None
    engine: PodView | None = None
    loads: tuple[LoadView, ...] = ()
    started_at: datetime | None = None
    ready_at: datetime | None = None
    live: bool = False
    watched: LiveView | None = None
    expected_gain: float | None = None

    @property
    def finished(self) -> bool:
        """Whether its outcome is recorded."""
        return self.record is not None


@dataclass(frozen=True)
class ServingView:
    """A Deployment that serves users, one per revision.

    Attributes:
        name: Its name.
        configuration: What its engines run.
        revision: What its pods are made of.
        image: The engine's image, as it is in the cluster.
        args: The engine's arguments, as they are in the cluster.
        replicas: Replicas asked for.
        ready_replicas: Replicas that are ready.
        pods: Its pods.
        message: Why it does not progress, else empty.
    """

    name: str
    configuration: Configuration
    revision: str
    image: str
    args: tuple[str, ...]
    replicas: int
    ready_replicas: int
    pods: tuple[PodView, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Tunables:
    """What the operator's settings let a decision know."""

    poll_seconds: float
    idle_seconds: float
    scheduling_seconds: float
    load_deadline_seconds: float
    scrape_seconds: float = 5.0


@dataclass(frozen=True)
class Observation:
    """One look at one InferenceDeployment.

    Attributes:
        now: When it was taken.
        name: Name of the object.
        namespace: Its namespace.
        uid: Its UID.
        generation: Generation of its spec.
        annotations: Its annotations.
        spec: The parsed spec, or None where it is invalid.
        problems: Why it is invalid.
        status: Its status as last written.
        space: The search space, or None where the spec is invalid.
        fingerprint: Names the study; trials of another fingerprint are not used.
        trials: Trials of this fingerprint, by number.
        stale_trials: Unfinished trials of other fingerprints.
        serving: Deployments that serve.
        service: Whether the stable Service is there and belongs to the object.
        live: Live windows by revision, where they were asked for.
        live_errors: Why a live window is unknown, by revision.
        learned: The learned workload as `status.study.workload` holds or is to hold it, or None.
        unlearned: Reason and sentence while trials wait for a workload to be learned, or None.
        tunables: Time limits.
    """

    now: datetime
    name: str
    namespace: str
    uid: str
    generation: int
    annotations: Mapping[str, str]
    spec: InferenceDeploymentSpec | None
    problems: tuple[FieldError, ...]
    status: Mapping[str, Any]
    space: SearchSpace | None
    fingerprint: str
    tunables: Tunables
    trials: tuple[TrialView, ...] = ()
    stale_trials: tuple[TrialView, ...] = ()
    serving: tuple[ServingView, ...] = ()
    service: Literal["Missing", "Ours", "Foreign"] = "Missing"
    live: Mapping[str, Measurement] = field(default_factory=dict)
    live_errors: Mapping[str, str] = field(default_factory=dict)
    learned: Mapping[str, Any] | None = None
    unlearned: tuple[str, str] | None = None

    def serving_of(self, revision: str) -> ServingView | None:
        """Return the Deployment of a revision, or None."""
        for view in self.serving:
            if view.revision == revision:
                return view
        return None
