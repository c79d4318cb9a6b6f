"""Shards of nodes on the wire: Volcano's NodeShard (volcano.sh/apis pkg/apis/shard/v1alpha1), and labels of ours where the API
server has no such kind."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.ports.cluster import Resource
from pumice.wire.names import OUR_DOMAIN
from pumice.wire.objects import Meta

NODE_SHARDS: Final = Resource("shard.volcano.sh", "v1alpha1", "nodeshards", namespaced=False)
SHARD: Final = f"{OUR_DOMAIN}/shard"
"""A node's label: the name of its shard."""
USED_BY: Final = f"{OUR_DOMAIN}/used-by-shard"
"""A node's annotation: the shard whose scheduler may place pods there, until that one takes it off."""


class Mode(StrEnum):
    """Upstream's words (Volcano pkg/util/util.go)."""

    NONE = "none"
    HARD = "hard"
    """Only nodes of the own shard."""
    SOFT = "soft"
    """Those first; then others, for pods without devices."""


class Source(StrEnum):
    """The place where it is said which nodes a shard has."""

    AUTO = "auto"
    """NodeShards where the API server knows the kind when the scheduler begins, else labels."""
    NODESHARDS = "nodeshards"
    LABELS = "labels"


class NodeShardSpec(Struct, rename="camel", gc=False):
    nodes_desired: list[str] = msgspec.field(default_factory=list)


class NodeShardStatus(Struct, rename="camel", gc=False):
    nodes_in_use: list[str] | None = None


class NodeShard(Struct, gc=False):
    metadata: Meta
    spec: NodeShardSpec = msgspec.field(default_factory=NodeShardSpec)
    status: NodeShardStatus = msgspec.field(default_factory=NodeShardStatus)

    @property
    def in_use(self) -> frozenset[str]:
        return frozenset(self.status.nodes_in_use or ())


def status_of(desired: frozenset[str], in_use: frozenset[str], now: str) -> dict[str, Any]:
    """Return the status of a NodeShard; all three lists follow from the first two arguments, as upstream writes them."""
    return {
        "lastUpdateTime": now, "nodesInUse": sorted(in_use), "nodesToAdd": sorted(desired - in_use),
        "nodesToRemove": sorted(in_use - desired),
    }  # fmt: skip
