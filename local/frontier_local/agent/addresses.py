"""Loopback addresses for pods: handed out in a circle, so that one is not used again soon after its pod is gone."""

import ipaddress
from pathlib import Path


class NoAddressError(Exception):
    """Every address of the pod network is in use."""


class PodAddresses:
    """Hands out the addresses of a network; where it stands is kept in a file, across restarts of the agent."""

    def __init__(self, network: ipaddress.IPv4Network, state: Path) -> None:
        """Take the network and the file that remembers the last address."""
        self._network = network
        self._state = state
        self._last = int(state.read_text()) if state.exists() else 0
        self._used: dict[str, str] = {}

    def take(self, uid: str, known: str | None = None) -> str:
        """Return an address for the pod: the one that it is known to have already, or the next free one.

        Raises:
            NoAddressError: Every address of the network is in use.
        """
        if known and ipaddress.IPv4Address(known) in self._network and known not in self._used:
            self._used[known] = uid
            return known
        hosts = self._network.num_addresses - 2
        for _ in range(hosts):
            self._last = self._last % hosts + 1
            address = str(self._network.network_address + self._last)
            if address not in self._used:
                self._used[address] = uid
                self._state.write_text(str(self._last))
                return address
        raise NoAddressError(f"pod network {self._network}: all {hosts} addresses are in use; configure a larger one")

    def release(self, uid: str) -> None:
        """Give back the address of a pod."""
        self._used = {address: owner for address, owner in self._used.items() if owner != uid}
