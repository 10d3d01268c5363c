"""Starting and stopping a cluster's processes. The caller holds the cluster's lock."""

import datetime as dt
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from frontier_local import components, probes, processes
from frontier_local.addresses import Addresses
from frontier_local.assets import Asset
from frontier_local.cache import Progress
from frontier_local.cluster_spec import ClusterSpec
from frontier_local.errors import ClusterError
from frontier_local.layout import Credentials, Layout, write_kubeconfigs
from frontier_local.node_spec import AgentConfig
from frontier_local.processes import ProcessRecord
from frontier_local.prometheus import write_configuration

DIRECTORY_VARIABLE = "FRONTIER_LOCAL_DIRECTORY"
"""Every process of a cluster carries it, so that none can be lost."""

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1
_AGENT_GRACE_SECONDS = 40.0
_GRACE_SECONDS = 15.0
# Pods go first, while the API server still takes their last status; the database goes last.
_STOP_ORDER = (("agent", "prometheus"), ("kube-scheduler", "kube-controller-manager"), ("kube-apiserver",), ("etcd",))


def api_server_url(addresses: Addresses) -> str:
    """Return the URL of the API server."""
    return f"https://127.0.0.1:{addresses.api_server_port}"


def prometheus_url(addresses: Addresses) -> str:
    """Return the URL of Prometheus."""
    return f"http://127.0.0.1:{addresses.prometheus_port}"


def component_names(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the names of the components in the order in which they start."""
    agent = ("agent",) if spec.nodes else ()
    return ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "prometheus", *agent)


def running(layout: Layout) -> dict[str, ProcessRecord]:
    """Return the components that run now, by name."""
    records = {path.stem: ProcessRecord.read(path) for path in layout.run.glob("*.json")}
    return {name: record for name, record in records.items() if record is not None and record.is_alive()}


def stop(layout: Layout, progress: Progress) -> None:
    """Stop every component that runs, and whatever a killed node agent left behind."""
    alive = running(layout)
    for group in _STOP_ORDER:
        records = [alive[name] for name in group if name in alive]
        stubborn = processes.stop(records, _AGENT_GRACE_SECONDS if "agent" in group else _GRACE_SECONDS)
        for name in group:
            if alive.get(name) in stubborn:
                progress(f"{name} did not stop in time and was killed")
            (layout.run / f"{name}.json").unlink(missing_ok=True)
        if "agent" in group:
            kept = set(alive.values())
            orphans = [record for record in _carrying(layout) if record not in kept]
            processes.stop(orphans, _GRACE_SECONDS)


def _carrying(layout: Layout) -> list[ProcessRecord]:
    return list(processes.carrying(DIRECTORY_VARIABLE, str(layout.root)))


@dataclass(frozen=True)
class Start:
    """One start of a cluster.

    Attributes:
        layout: Where its files are.
        spec: What is wanted.
        addresses: Its addresses.
        assets: The binaries.
        claim: The socket that holds the claim on the addresses, for etcd to inherit; None if etcd runs already.
        progress: Told what takes time.
    """

    layout: Layout
    spec: ClusterSpec
    addresses: Addresses
    assets: Mapping[str, Asset]
    claim: socket.socket | None
    progress: Progress

    def run(self) -> None:
        """Start the components that do not run, and wait until all are ready.

        Raises:
            ClusterError: A component ended or was not ready in time; the message holds the end of its log.
        """
        now = dt.datetime.now(dt.UTC)
        nodes = self.spec.node_specs(self.addresses)
        credentials = Credentials.sign(self.layout, self.addresses, nodes, now)
        write_kubeconfigs(self.layout, self.spec.name, api_server_url(self.addresses), credentials, now)
        write_configuration(
            self.layout.configuration / "prometheus.yaml",
            targets=self.layout.targets,
            scrape_interval=self.spec.scrape_interval,
        )
        self.layout.agent.write_text(self._agent_config(credentials).to_json())
        commands = components.commands(
            self.layout, self.addresses, credentials, self.assets, with_agent=bool(self.spec.nodes)
        )
        api = probes.ApiServer(
            self.addresses.api_server_port, probes.client_context(credentials.authority, credentials.admin)
        )
        begun = time.monotonic()
        self._forget_the_dead()
        for name in ("etcd", "kube-apiserver"):
            self._start(name, commands)
        self._wait("kube-apiserver", api.is_ready)
        for name in component_names(self.spec)[2:]:
            self._start(name, commands)
        self._wait_for_the_rest(api)
        self.progress(f"cluster {self.spec.name} is ready after {time.monotonic() - begun:.1f} s")

    def _forget_the_dead(self) -> None:
        """Remove the records of components that ended before this start, so that only this start's failures count."""
        alive = running(self.layout)
        for record in self.layout.run.glob("*.json"):
            if record.stem not in alive:
                record.unlink()

    def _start(self, name: str, commands: Mapping[str, list[str]]) -> None:
        """Start a component unless it runs."""
        if name in running(self.layout):
            return
        keep_open = [self.claim.fileno()] if name == "etcd" and self.claim is not None else []
        environment = {**os.environ, DIRECTORY_VARIABLE: str(self.layout.root)}
        record = processes.start(commands[name], environment, self.log(name), keep_open)
        record.write(self.layout.run / f"{name}.json")

    def _wait_for_the_rest(self, api: probes.ApiServer) -> None:
        control_plane, context = self.addresses.control_plane, api.context
        for name, port in (
            ("kube-controller-manager", components.CONTROLLER_MANAGER_PORT),
            ("kube-scheduler", components.SCHEDULER_PORT),
        ):
            self._wait(name, partial(probes.answers, control_plane, port, "/healthz", context))
        # Without it the first pod of a user would be refused.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("kube-controller-manager", lambda: api.exists(account))
        self._wait("kube-apiserver", lambda: api.exists("/api/v1/namespaces/default/services/kubernetes"))
        prometheus = self.addresses.prometheus_port
        self._wait("prometheus", lambda: probes.answers("127.0.0.1", prometheus, "/-/ready"))
        wanted = {node.name for node in self.spec.node_specs(self.addresses)}
        if wanted:
            self._wait("agent", lambda: wanted <= {name for name, ready in api.nodes().items() if ready})
        for surplus in api.nodes().keys() - wanted:
            api.delete_node(surplus)

    def _wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Wait until a component is ready."""
        deadline = time.monotonic() + _START_SECONDS
        while not is_ready():
            alive = running(self.layout)
            for started in self.layout.run.glob("*.json"):
                if started.stem not in alive:
                    raise ClusterError(f"{started.stem} ended; its last words:\n{self._last_words(started.stem)}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{name} was not ready after {_START_SECONDS:.0f} s; its last words:\n{self._last_words(name)}"
                )
            time.sleep(_POLL_SECONDS)

    def log(self, name: str) -> Path:
        """Return the log of a component."""
        return self.layout.logs / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return f"{processes.last_lines(self.log(name))}\n(all of it: {self.log(name)})"

    def _agent_config(self, credentials: Credentials) -> AgentConfig:
        image_map = self.spec.image_map
        return AgentConfig(
            kubeconfig=self.layout.component_kubeconfig("agent"),
            api_server=api_server_url(self.addresses),
            nodes=self.spec.node_specs(self.addresses),
            pod_network=self.addresses.pod_network,
            service_network=self.addresses.service_network,
            service_host=self.addresses.service_host,
            certificate_authority=credentials.authority.certificate,
            kubelet_certificate=credentials.kubelet.certificate,
            kubelet_key=credentials.kubelet.key,
            client_ca=credentials.authority.certificate,
            targets_directory=self.layout.targets,
            pods_directory=self.layout.pods,
            volumes_directory=self.layout.volumes,
            image_map=None if image_map is None else Path(image_map),
        )
