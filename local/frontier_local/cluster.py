"""The embedded cluster: a real control plane, Prometheus and a node agent, as processes of one machine.

A cluster lives in a directory. Starting it twice is the same as starting it once; stopping it keeps its data; a program
that only knows the directory can find, inspect and stop it.
"""

import json
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from frontier_local import addresses as address_claims
from frontier_local import lifecycle, probes
from frontier_local.addresses import Addresses
from frontier_local.assets import Asset, Resolver
from frontier_local.cache import Progress, file_lock
from frontier_local.certificates import KeyPair
from frontier_local.cluster_spec import ClusterSpec
from frontier_local.errors import ClusterError
from frontier_local.layout import Layout

__all__ = ["Cluster", "ClusterSpec", "ClusterStatus", "ComponentStatus"]

_LOCK = ".lock"


@dataclass(frozen=True)
class ComponentStatus:
    """One component.

    Attributes:
        name: Its name.
        pid: Its process id, or None if it does not run.
        log: Its log.
    """

    name: str
    pid: int | None
    log: Path


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster as it is now.

    Attributes:
        directory: Its directory.
        spec: What was wanted when it was last started, or None if it never was.
        components: Its components; empty if it never was started.
        api_server: URL of the API server, or None if it never was started.
        prometheus_url: URL of Prometheus, or None if it never was started.
        ready: Whether every component runs and the API server and Prometheus answer.
    """

    directory: Path
    spec: ClusterSpec | None
    components: tuple[ComponentStatus, ...]
    api_server: str | None
    prometheus_url: str | None
    ready: bool


class Cluster:
    """The cluster of a directory; as a context manager it runs while the block does."""

    def __init__(
        self,
        directory: Path,
        spec: ClusterSpec | None = None,
        *,
        progress: Progress = lambda _line: None,
        resolver: Resolver | None = None,
    ) -> None:
        """Take a directory; nothing is read or started yet.

        Args:
            directory: Where the cluster keeps its files.
            spec: What is wanted; None takes what was wanted last time, or the defaults.
            progress: Told what takes time.
            resolver: Finds the binaries; None takes the one of this process's environment.
        """
        self.directory = directory.absolute()
        self._layout = Layout(self.directory)
        self._spec = spec
        self._progress = progress
        self._resolver = resolver

    @property
    def spec(self) -> ClusterSpec:
        """What is wanted: as given, or as the last time, or the defaults."""
        state = self._state()
        return self._spec or (state[1] if state else ClusterSpec())

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; exists once the cluster was started."""
        return self._layout.kubeconfig

    @property
    def api_server(self) -> str:
        """URL of the API server.

        Raises:
            ClusterError: The cluster was never started.
        """
        return lifecycle.api_server_url(self._started()[0])

    @property
    def prometheus_url(self) -> str:
        """URL of Prometheus.

        Raises:
            ClusterError: The cluster was never started.
        """
        return lifecycle.prometheus_url(self._started()[0])

    @property
    def pods_directory(self) -> Path:
        """Where pods keep their files."""
        return self._layout.pods

    @property
    def volumes_directory(self) -> Path:
        """Where the content of persistent volume claims lies, as `<namespace>/<claim>/`."""
        return self._layout.volumes

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self._layout.logs / f"{component}.log"

    def up(self) -> ClusterStatus:
        """Start what does not run yet, wait until all is ready, and return how the cluster is then.

        Raises:
            LocalError: The specification cannot be used, a binary is missing, or a component failed; after a failure
                nothing of the cluster runs.
        """
        if platform.system() != "Linux":
            raise ClusterError(
                f"the embedded cluster needs Linux, this is {platform.system()}; use the context of another cluster"
            )
        spec = self.spec
        spec.check()
        self._check_directory()
        assets = (self._resolver or Resolver.default(self._progress)).resolve()
        self._layout.make()
        with self._locked():
            state, alive = self._state(), lifecycle.running(self._layout)
            if state is not None and "etcd" in alive:
                self._check_unchanged(state[1], spec)
                if alive.keys() < set(lifecycle.component_names(spec)):
                    self._start(lifecycle.Start(self._layout, spec, state[0], assets, None, self._progress))
            else:
                self._start_anew(spec, assets, state)
        return self.status()

    def down(self, *, delete: bool = False) -> None:
        """Stop every process of the cluster, pods included; nothing happens if none runs.

        Args:
            delete: Remove the directory, too.

        Raises:
            ClusterError: The directory is no cluster's.
        """
        self._started()
        with self._locked():
            lifecycle.stop(self._layout, self._progress)
        if delete:
            shutil.rmtree(self.directory)

    def status(self) -> ClusterStatus:
        """Return the cluster as it is now."""
        state = self._state()
        if state is None:
            return ClusterStatus(self.directory, None, (), None, None, ready=False)
        addresses, spec = state
        alive = lifecycle.running(self._layout)
        listed = tuple(
            ComponentStatus(name, alive[name].pid if name in alive else None, self.log(name))
            for name in lifecycle.component_names(spec)
        )
        ready = all(component.pid is not None for component in listed) and self._answers(addresses)
        return ClusterStatus(
            self.directory,
            spec,
            listed,
            lifecycle.api_server_url(addresses),
            lifecycle.prometheus_url(addresses),
            ready=ready,
        )

    def __enter__(self) -> Self:
        """Start the cluster."""
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the cluster."""
        self.down()

    def _start_anew(
        self, spec: ClusterSpec, assets: Mapping[str, Asset], state: tuple[Addresses, ClusterSpec] | None
    ) -> None:
        """Start all components, on the addresses that the cluster's data is bound to."""
        lifecycle.stop(self._layout, self._progress)
        bound = state[0].index if state is not None and (self._layout.data / "etcd").exists() else None
        addresses, claim = address_claims.claim(self.directory, bound)
        with claim:
            self._layout.state.write_text(json.dumps({"index": addresses.index, "spec": spec.to_mapping()}, indent=2))
            self._start(lifecycle.Start(self._layout, spec, addresses, assets, claim, self._progress))

    def _start(self, start: lifecycle.Start) -> None:
        """Start, or leave nothing running."""
        try:
            start.run()
        except BaseException:  # an interrupt must not leave half a cluster either
            lifecycle.stop(self._layout, self._progress)
            raise

    def _check_unchanged(self, runs: ClusterSpec, asked: ClusterSpec) -> None:
        if different := runs.differences(asked):
            raise ClusterError(
                f"{self.directory}: the cluster runs already, but {'; '.join(different)}; stop it first with "
                f"`frontier-local down --directory {self.directory}`"
            )

    def _check_directory(self) -> None:
        """Check that the directory is a cluster's, or nobody's."""
        if self._layout.state.exists() or not self.directory.exists():
            return
        if not self.directory.is_dir() or any(entry.name != _LOCK for entry in self.directory.iterdir()):
            raise ClusterError(f"directory: {self.directory} holds something else; name an empty or a new one")

    def _answers(self, addresses: Addresses) -> bool:
        """Return whether the API server and Prometheus serve requests."""
        names = (self._layout.certificates / "ca", self._layout.certificates / "admin")
        authority, admin = (KeyPair(name.with_suffix(".crt"), name.with_suffix(".key")) for name in names)
        api = probes.ApiServer(addresses.api_server_port, probes.client_context(authority, admin))
        return api.is_ready() and probes.answers("127.0.0.1", addresses.prometheus_port, "/-/ready")

    def _state(self) -> tuple[Addresses, ClusterSpec] | None:
        """Return what is remembered of the cluster, or None if it never was started."""
        try:
            text = self._layout.state.read_text()
        except FileNotFoundError:
            return None
        try:
            values = json.loads(text)
            return Addresses(int(values["index"])), ClusterSpec.from_mapping(values["spec"])
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"{self._layout.state} is damaged ({error}); stop its processes and remove {self.directory}"
            ) from error

    def _started(self) -> tuple[Addresses, ClusterSpec]:
        state = self._state()
        if state is None:
            raise ClusterError(f"{self.directory} holds no embedded cluster; start one with `frontier-local up`")
        return state

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no two programs start or stop the cluster at the same time."""
        with file_lock(self.directory / _LOCK, lambda: self._progress("waiting for another `up` or `down`")):
            yield
