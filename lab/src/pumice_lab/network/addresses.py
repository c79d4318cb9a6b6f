"""Which address each pod has."""

from __future__ import annotations

import contextlib
import ipaddress


class Addresses:
    """The addresses of a network from its ``first`` on, handed out in turn: one given back is not the next one given."""

    def __init__(self, network: ipaddress.IPv4Network, first: int = 1) -> None:
        self._network, self._first = network, first
        self._given: dict[str, str] = {}
        self._next = first

    def give(self, uid: str) -> str:
        """Empty when there are no more."""
        if uid in self._given:
            return self._given[uid]
        taken, end = set(self._given.values()), self._network.num_addresses - 1
        for _ in range(end - self._first):
            address = str(self._network[self._next])
            self._next = self._next + 1 if self._next + 1 < end else self._first
            if address not in taken:
                self._given[uid] = address
                return address
        return ""

    def keep(self, uid: str, address: str) -> str:
        """The one that it had before, or another where that is not of this network or somebody else's by now."""
        with contextlib.suppress(ValueError):  # whoever may write a pod's status may write anything there
            if ipaddress.IPv4Address(address) in self._network and address not in self._given.values():
                self._given[uid] = address
        return self.give(uid)

    def take_back(self, uid: str) -> None:
        self._given.pop(uid, None)


def loopback_addresses(node: str) -> Addresses:
    """127.x.y.z of a node's own, by the node's address."""
    own = int(ipaddress.IPv4Address(node))
    # The last ten bits of a node's address count the nodes; the five before them tell clusters apart (datadir).
    return Addresses(ipaddress.IPv4Network((127 << 24 | 1 << 23 | (own >> 10 & 31) << 18 | (own & 1023) << 8, 24)))
