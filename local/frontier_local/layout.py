"""Where a cluster keeps its files, and which of them identify its components."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from frontier_local.addresses import Addresses
from frontier_local.certificates import Authority, KeyPair, ensure_service_account_keys
from frontier_local.kubeconfig import write_kubeconfig
from frontier_local.node_spec import NodeSpec


@dataclass(frozen=True)
class Layout:
    """Where a cluster keeps its files.

    Attributes:
        root: The cluster's directory.
    """

    root: Path

    @property
    def state(self) -> Path:
        """What is remembered of the cluster: its specification and its index."""
        return self.root / "cluster.json"

    @property
    def certificates(self) -> Path:
        """Authorities, certificates and keys."""
        return self.root / "certificates"

    @property
    def configuration(self) -> Path:
        """Kubeconfigs of the components and Prometheus's configuration."""
        return self.root / "configuration"

    @property
    def data(self) -> Path:
        """Databases of etcd and Prometheus."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """One log per component."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """One process record per component."""
        return self.root / "run"

    @property
    def targets(self) -> Path:
        """Prometheus targets that the agent writes."""
        return self.root / "targets"

    @property
    def pods(self) -> Path:
        """Working directories of pods."""
        return self.root / "pods"

    @property
    def volumes(self) -> Path:
        """Contents of persistent volume claims."""
        return self.root / "volumes"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def agent(self) -> Path:
        """What the node agent is told."""
        return self.root / "agent.json"

    def component_kubeconfig(self, name: str) -> Path:
        """Return the kubeconfig of a component."""
        return self.configuration / f"{name}.kubeconfig"

    def make(self) -> None:
        """Make the directories; only their owner can enter."""
        self.root.mkdir(parents=True, exist_ok=True)
        for directory in (
            self.certificates,
            self.configuration,
            self.data,
            self.logs,
            self.run,
            self.targets,
            self.pods,
            self.volumes,
        ):
            directory.mkdir(exist_ok=True)
        self.root.chmod(0o700)


@dataclass(frozen=True)
class Credentials:
    """The files that identify the components.

    Attributes:
        authority: The cluster's certificate authority.
        etcd_authority: The authority of etcd alone.
        etcd: etcd's serving certificate and the API server's client certificate for it.
        api_server: The API server's serving certificate.
        components: Serving certificate of controller manager and scheduler.
        kubelet_client: How the API server identifies itself to kubelets.
        kubelet: Serving certificate of the nodes.
        service_accounts: Keys of service-account tokens.
        admin: The administrator's client certificate.
    """

    authority: KeyPair
    etcd_authority: KeyPair
    etcd: KeyPair
    api_server: KeyPair
    components: KeyPair
    kubelet_client: KeyPair
    kubelet: KeyPair
    service_accounts: KeyPair
    admin: KeyPair

    @classmethod
    def sign(cls, layout: Layout, addresses: Addresses, nodes: tuple[NodeSpec, ...], now: dt.datetime) -> "Credentials":
        """Sign every certificate anew; authorities and service-account keys are kept if they exist."""
        authority = Authority(layout.certificates, "ca", now)
        etcd_authority = Authority(layout.certificates, "etcd-ca", now)
        local = ("localhost", "127.0.0.1")
        service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        node_hosts = tuple(host for node in nodes for host in (node.name, node.address))
        # Group names with `system:` are what the API server's built-in roles are bound to.
        return cls(
            authority=authority.ensure(),
            etcd_authority=etcd_authority.ensure(),
            etcd=etcd_authority.sign("etcd", common_name="etcd", hosts=(addresses.control_plane,)),
            api_server=authority.sign(
                "kube-apiserver", common_name="kube-apiserver", hosts=(*local, addresses.service_host, *service)
            ),
            components=authority.sign("components", common_name="components", hosts=(addresses.control_plane,)),
            kubelet_client=authority.sign(
                "kubelet-client", common_name="kube-apiserver-kubelet-client", organization="system:masters"
            ),
            kubelet=authority.sign(
                "kubelet", common_name="frontier-local-agent", organization="system:nodes", hosts=(*local, *node_hosts)
            ),
            service_accounts=ensure_service_account_keys(layout.certificates),
            admin=authority.sign("admin", common_name="admin", organization="system:masters"),
        )


def write_kubeconfigs(layout: Layout, cluster: str, server: str, credentials: Credentials, now: dt.datetime) -> None:
    """Write the kubeconfigs of the administrator, the agent, the controller manager and the scheduler."""
    authority = Authority(layout.certificates, "ca", now)
    files = {layout.kubeconfig: ("admin", credentials.admin)}
    users = {
        "agent": ("frontier-local-agent", "system:masters"),
        "kube-controller-manager": ("system:kube-controller-manager", None),
        "kube-scheduler": ("system:kube-scheduler", None),
    }
    for name, (user, group) in users.items():
        pair = authority.sign(name, common_name=user, organization=group)
        files[layout.component_kubeconfig(name)] = (user, pair)
    for path, (user, client) in files.items():
        write_kubeconfig(
            path,
            cluster=cluster,
            server=server,
            authority=credentials.authority.certificate,
            user=user,
            client=client,
        )
