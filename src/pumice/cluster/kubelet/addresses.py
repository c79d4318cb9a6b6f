"""Which address each pod of a node has."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from pumice.cluster.kubelet.settings import KubeletSettings


class PodAddresses:
    """Addresses for pods, 127.x.y.z of the node's own network; a host-network pod has the node's."""

    def __init__(self, settings: KubeletSettings) -> None:
        self.settings = settings
        own = int(ipaddress.IPv4Address(settings.address))
        # The last ten bits of a node's address count the nodes; the five before them tell clusters apart (datadir).
        default = ipaddress.IPv4Network((127 << 24 | 1 << 23 | (own >> 10 & 31) << 18 | (own & 1023) << 8, 24))
        self._network = ipaddress.IPv4Network(settings.pod_network) if settings.pod_network else default
        self._given: dict[str, str] = {}
        self._next = 1

    def give(self, pod: Mapping[str, Any]) -> str:
        if pod["spec"].get("hostNetwork"):
            return self.settings.address
        taken = set(self._given.values())
        size = self._network.num_addresses - 2
        for _ in range(size):
            address = str(self._network[self._next])
            self._next = self._next % size + 1
            if address not in taken:
                self._given[pod["metadata"]["uid"]] = address
                return address
        return self.settings.address

    def keep(self, uid: str, address: str) -> None:
        if address:
            self._given[uid] = address

    def take_back(self, uid: str) -> None:
        self._given.pop(uid, None)
