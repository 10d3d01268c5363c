"""Which loopback addresses and ports a cluster uses, and how it makes sure that no other cluster uses them.

Every cluster has an index. All of its addresses follow from it, so a claim on the index is a claim on all of them. The
claim is an abstract Unix socket that the cluster's etcd inherits: it lives exactly as long as the cluster does, nothing
has to be cleaned up after a crash, and it is visible exactly as far as the loopback addresses are.
"""

import errno
import ipaddress
import socket
import zlib
from dataclasses import dataclass
from pathlib import Path

from frontier_local.errors import ClusterError

INDEXES = 100
MAX_NODES = 254


@dataclass(frozen=True)
class Addresses:
    """Everything that follows from a cluster's index.

    Attributes:
        index: 0 to 99.
    """

    index: int

    @property
    def pod_network(self) -> ipaddress.IPv4Network:
        """Addresses of pods."""
        return ipaddress.IPv4Network(f"127.{10 + self.index}.0.0/16")

    @property
    def service_network(self) -> ipaddress.IPv4Network:
        """Addresses of Services; the API server accepts a loopback range, so a proxy can listen on them."""
        return ipaddress.IPv4Network(f"127.{130 + self.index}.0.0/24")

    @property
    def service_host(self) -> str:
        """Address of the `kubernetes` Service."""
        return str(self.service_network[1])

    @property
    def control_plane(self) -> str:
        """Address of etcd, the controller manager and the scheduler."""
        return f"127.{130 + self.index}.2.1"

    @property
    def api_server_port(self) -> int:
        """Port of the API server on 127.0.0.1, which every proxy exemption covers."""
        return 16443 + self.index

    @property
    def prometheus_port(self) -> int:
        """Port of Prometheus on 127.0.0.1."""
        return 19090 + self.index

    def node(self, number: int) -> str:
        """Return the address of the node with this number, counted from 1."""
        return f"127.{130 + self.index}.1.{number}"


def claim(directory: Path, index: int | None) -> tuple[Addresses, socket.socket]:
    """Claim an index for the cluster in a directory; returns its addresses and the socket that holds the claim.

    Args:
        directory: Directory of the cluster; it decides where the search begins, so that a cluster tends to get its
            index again.
        index: The index to claim, for a cluster whose data is bound to it; None takes a free one.

    Raises:
        ClusterError: The index, or every index, is taken.
    """
    begin = zlib.crc32(str(directory).encode()) % INDEXES
    candidates = [index] if index is not None else [(begin + step) % INDEXES for step in range(INDEXES)]
    for candidate in candidates:
        addresses = Addresses(candidate)
        held = _hold(candidate)
        if held is None:
            continue
        if _is_free(addresses.api_server_port) and _is_free(addresses.prometheus_port):
            return addresses, held
        held.close()
    if index is None:
        raise ClusterError(
            f"all {INDEXES} address ranges for embedded clusters are taken; stop one with `frontier-local down`"
        )
    wanted = Addresses(index)
    raise ClusterError(
        f"{directory}: its data is bound to the ranges {wanted.pod_network} and {wanted.service_network} and the ports "
        f"{wanted.api_server_port} and {wanted.prometheus_port}, which another program uses now; stop that one, or "
        "give up the data with `frontier-local down --delete`"
    )


def _hold(index: int) -> socket.socket | None:
    """Return a socket that holds the claim on an index, or None if another program holds it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0frontier-local/{index}")
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return held


def _is_free(port: int) -> bool:
    """Return whether a server could listen on the port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
