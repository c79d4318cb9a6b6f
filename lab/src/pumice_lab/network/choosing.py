"""Which network the pods of a cluster get, and what a person is told about it."""

from __future__ import annotations

import os

from pumice.model.errors import Unavailable
from pumice_lab.network.pod_network import RoutedNetwork

SHARED = ("pods share this machine's network (two that listen on all addresses of one port collide, and cluster addresses of "
          "Services lead nowhere)")


async def choose_network(wanted: str, name: str) -> tuple[RoutedNetwork | None, str]:
    """``wanted``: auto, none, or a range. Raises Unavailable where a range was asked for and cannot be had."""
    if wanted == "none":
        return None, f"{SHARED}, as was asked for"
    try:
        if os.geteuid() != 0:
            raise PermissionError("a network of their own needs root")
        network = await RoutedNetwork.launch(name, "" if wanted == "auto" else wanted)
    except OSError as error:
        if wanted != "auto":
            raise Unavailable(f"--pod-network {wanted}: {error}") from error
        return None, f"{SHARED}: {error}"
    beyond = f"; nothing leads out of it: {network.no_way_out}" if network.no_way_out else ""
    return network, f"pods have addresses of {network.range}{beyond}"
