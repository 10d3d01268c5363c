"""The command lines of the cluster's components. Pure: nothing is started here."""

import sys
from collections.abc import Mapping

from frontier_local.addresses import Addresses
from frontier_local.assets import Asset
from frontier_local.layout import Credentials, Layout

ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259

_DISABLED_CONTROLLERS = "*,-nodelifecycle,-node-ipam-controller,-cloud-node-lifecycle-controller"
_CLIENT_RATE = ("--kube-api-qps=200", "--kube-api-burst=400")
# Endpoints of the `kubernetes` Service cannot be loopback addresses, so nobody writes them; any other address will do.
_ADVERTISED = "192.0.2.1"


def etcd(layout: Layout, addresses: Addresses, credentials: Credentials, asset: Asset) -> list[str]:
    """Return the command of etcd."""
    client = f"https://{addresses.control_plane}:{ETCD_PORT}"
    peer = f"https://{addresses.control_plane}:{ETCD_PEER_PORT}"
    return [
        str(asset.path),
        "--name=local",
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={credentials.etcd.certificate}",
        f"--key-file={credentials.etcd.key}",
        f"--trusted-ca-file={credentials.etcd_authority.certificate}",
        "--client-cert-auth",
        f"--peer-cert-file={credentials.etcd.certificate}",
        f"--peer-key-file={credentials.etcd.key}",
        f"--peer-trusted-ca-file={credentials.etcd_authority.certificate}",
        "--peer-client-cert-auth",
        # The cluster is for trying out: losing the last second after a power cut is worth the speed.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(layout: Layout, addresses: Addresses, credentials: Credentials, asset: Asset) -> list[str]:
    """Return the command of the API server."""
    certificates = credentials
    return [
        str(asset.path),
        f"--etcd-servers=https://{addresses.control_plane}:{ETCD_PORT}",
        f"--etcd-cafile={certificates.etcd_authority.certificate}",
        f"--etcd-certfile={certificates.etcd.certificate}",
        f"--etcd-keyfile={certificates.etcd.key}",
        "--bind-address=127.0.0.1",
        f"--secure-port={addresses.api_server_port}",
        f"--advertise-address={_ADVERTISED}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.data / 'kube-apiserver'}",
        f"--tls-cert-file={certificates.api_server.certificate}",
        f"--tls-private-key-file={certificates.api_server.key}",
        f"--client-ca-file={certificates.authority.certificate}",
        "--authorization-mode=RBAC",
        f"--kubelet-client-certificate={certificates.kubelet_client.certificate}",
        f"--kubelet-client-key={certificates.kubelet_client.key}",
        f"--kubelet-certificate-authority={certificates.authority.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificates.service_accounts.certificate}",
        f"--service-account-signing-key-file={certificates.service_accounts.key}",
        f"--service-cluster-ip-range={addresses.service_network}",
        "--profiling=false",
    ]


def controller_manager(layout: Layout, addresses: Addresses, credentials: Credentials, asset: Asset) -> list[str]:
    """Return the command of the controller manager, without the controllers that need real nodes."""
    return [
        *_client_of_api_server(layout, addresses, credentials, asset, CONTROLLER_MANAGER_PORT),
        f"--controllers={_DISABLED_CONTROLLERS}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={credentials.service_accounts.key}",
        f"--root-ca-file={credentials.authority.certificate}",
        f"--cluster-signing-cert-file={credentials.authority.certificate}",
        f"--cluster-signing-key-file={credentials.authority.key}",
    ]


def scheduler(layout: Layout, addresses: Addresses, credentials: Credentials, asset: Asset) -> list[str]:
    """Return the command of the scheduler."""
    return _client_of_api_server(layout, addresses, credentials, asset, SCHEDULER_PORT)


def prometheus(layout: Layout, addresses: Addresses, asset: Asset) -> list[str]:
    """Return the command of Prometheus."""
    return [
        str(asset.path),
        f"--config.file={layout.configuration / 'prometheus.yaml'}",
        f"--storage.tsdb.path={layout.data / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{addresses.prometheus_port}",
        # New pods are scraped at once; by default targets are taken over every five seconds only.
        "--scrape.discovery-reload-interval=100ms",
        "--log.level=warn",
    ]


def agent(layout: Layout) -> list[str]:
    """Return the command of the node agent."""
    return [sys.executable, "-m", "frontier_local.agent", "--config", str(layout.agent)]


def commands(
    layout: Layout, addresses: Addresses, credentials: Credentials, assets: Mapping[str, Asset], *, with_agent: bool
) -> dict[str, list[str]]:
    """Return the command of every component by its name, in the order in which they start."""
    lines = {
        "etcd": etcd(layout, addresses, credentials, assets["etcd"]),
        "kube-apiserver": api_server(layout, addresses, credentials, assets["kube-apiserver"]),
        "kube-controller-manager": controller_manager(
            layout, addresses, credentials, assets["kube-controller-manager"]
        ),
        "kube-scheduler": scheduler(layout, addresses, credentials, assets["kube-scheduler"]),
        "prometheus": prometheus(layout, addresses, assets["prometheus"]),
    }
    return lines | {"agent": agent(layout)} if with_agent else lines


def _client_of_api_server(
    layout: Layout, addresses: Addresses, credentials: Credentials, asset: Asset, port: int
) -> list[str]:
    """Return what controller manager and scheduler have in common."""
    kubeconfig = layout.component_kubeconfig(asset.name)
    return [
        str(asset.path),
        f"--kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--client-ca-file={credentials.authority.certificate}",
        "--authentication-skip-lookup=true",
        "--leader-elect=false",
        f"--bind-address={addresses.control_plane}",
        f"--secure-port={port}",
        f"--tls-cert-file={credentials.components.certificate}",
        f"--tls-private-key-file={credentials.components.key}",
        "--profiling=false",
        *_CLIENT_RATE,
    ]
