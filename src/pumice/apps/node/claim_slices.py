"""The ResourceSlices of one node's cards: published as the cards are, and again when somebody has taken them away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pumice.node.claims import owner_of, slice_object
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import NODES, RESOURCE_SLICES

log = logging.getLogger("pumice.node")

_LAST: Final = 2**63 - 1
"""The largest generation that the API server stores: an int64."""


async def publish(cluster: Cluster, node: str, specs: Callable[[int], Sequence[Any]], driver: str) -> None:
    """Make the slices of this node's driver what ``specs`` (of a generation) says. A pool that was half written when its driver
    was killed, or changed by somebody else, is written anew as a whole. Raises ApiError."""
    selector = f"spec.nodeName={node},spec.driver={driver}"
    there = (await cluster.list(RESOURCE_SLICES, field_selector=selector))["items"]
    newest = max((one["spec"]["pool"]["generation"] for one in there), default=0)
    current = [one for one in there if one["spec"]["pool"]["generation"] == newest]
    current.sort(key=lambda one: str(one["metadata"]["name"]))
    if [plain(one["spec"]) for one in current] == [plain(spec) for spec in specs(newest)]:
        await _delete(cluster, [one for one in there if one not in current])
        return
    if newest == _LAST:  # nothing counts as newer than these: they go first
        await _delete(cluster, there)
        there, newest = [], 0
    owner = owner_of(node, (await cluster.get(NODES, node))["metadata"]["uid"])
    wanted = specs(newest + 1)
    for at, spec in enumerate(wanted):
        made = await cluster.create(RESOURCE_SLICES, slice_object(spec, at, owner, newest + 1))
        if plain(made["spec"]) != plain(spec):
            log.error("the API server has dropped fields of slice %s: are its gates of Dynamic Resource Allocation on?",
                      made["metadata"]["name"])  # fmt: skip
    await _delete(cluster, there)
    log.info("published generation=%d slices=%d", newest + 1, len(wanted))


async def _delete(cluster: Cluster, slices: Sequence[Any]) -> None:
    for one in slices:
        with suppress(ApiError):
            await cluster.delete(RESOURCE_SLICES, one["metadata"]["name"], uid=one["metadata"]["uid"])


def plain(spec: Mapping[str, Any]) -> Any:
    """A spec without what the API server adds."""
    devices = [{**one, "taints": [{"key": taint["key"], "effect": taint["effect"]} for taint in one.get("taints") or ()]}
               for one in spec.get("devices") or ()]  # fmt: skip
    return {**{key: value for key, value in spec.items() if key != "devices"}, "devices": devices}


def taints_of(cards: Sequence[str], *reasons: tuple[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the taints of cards by UUID. ``reasons``: keys with their cards; all cards where the UUID is empty."""
    return {uuid: [key for key, of in reasons if uuid in of or "" in of] for uuid in cards}
