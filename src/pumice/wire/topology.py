"""HyperNodes, the tree of a cluster's network, and what PodGroups ask of it (docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.wire.objects import Meta

TOPOLOGY: Final = "topology.volcano.sh"
TOPOLOGY_API: Final = f"{TOPOLOGY}/v1alpha1"
MODE: Final = "volcano.sh/network-topology-mode"
HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier"
HARD: Final = "hard"
SOFT: Final = "soft"
NODE: Final = "Node"
HYPER_NODE: Final = "HyperNode"


class ExactMatch(Struct, gc=False):
    name: str = ""


class RegexMatch(Struct, gc=False):
    pattern: str = ""


class LabelExpression(Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelExpression] | None = None

    @property
    def written(self) -> dict[str, Any]:
        """As it stands in an object."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class MemberSelector(Struct, rename="camel", gc=False):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class Member(Struct, rename="camel", gc=False):
    type: str = ""
    selector: MemberSelector = msgspec.field(default_factory=MemberSelector)


class HyperNodeSpec(Struct, rename="camel", gc=False):
    tier: int = 0
    tier_name: str = ""
    members: list[Member] = []


class Condition(Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    def same(self, other: Condition) -> bool:
        """Equal apart from the fields that every cycle would change (Volcano pkg/scheduler/framework/job_updater.go)."""
        return (self.type, self.status, self.reason, self.message) == (other.type, other.status, other.reason, other.message)


class HyperNodeStatus(Struct, rename="camel", gc=False):
    node_count: int = 0
    conditions: list[Condition] = []


class HyperNode(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: HyperNodeSpec = msgspec.field(default_factory=HyperNodeSpec)
    status: HyperNodeStatus = msgspec.field(default_factory=HyperNodeStatus)


class NetworkTopology(Struct, rename="camel", gc=False, frozen=True):
    """The network topology that a job requests: ``hard``, the default, is a requirement."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""

    @property
    def hard(self) -> bool:
        return self.mode in ("", HARD)

    @property
    def problem(self) -> str:
        """Return why it cannot be meant as it is written."""
        if self.mode not in ("", HARD, SOFT):
            return f"networkTopology.mode {self.mode!r} is neither {HARD} nor {SOFT}"
        if self.highest_tier_allowed is not None and self.highest_tier_name:
            return "networkTopology.highestTierAllowed and .highestTierName exclude each other"
        return ""


class SubGroupPolicy(Struct, rename="camel", gc=False):
    """The pods of a PodGroup that are one sub-group: those that the selector takes and whose labels have the same values."""

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    sub_group_size: int = 1
    min_sub_groups: int = 0
    network_topology: NetworkTopology | None = None


def annotated(annotations: Mapping[str, str]) -> NetworkTopology | None:
    """Return the topology that annotations of an owner or a pod request, as Volcano's controller reads them: one of both is
    enough, no other word than soft is a wish, and a tier that is no number is none."""
    mode, tier = annotations.get(MODE, "").lower(), annotations.get(HIGHEST_TIER, "")
    if not mode and not tier:
        return None
    return NetworkTopology(mode if mode == SOFT else HARD, int(tier) if tier.isdecimal() and len(tier) < 10 else None)


def written(requested: NetworkTopology) -> dict[str, Any]:
    """As it stands in a PodGroup."""
    found: dict[str, Any] = {"mode": requested.mode or HARD}
    if requested.highest_tier_allowed is not None:
        found["highestTierAllowed"] = requested.highest_tier_allowed
    if requested.highest_tier_name:
        found["highestTierName"] = requested.highest_tier_name
    return found
