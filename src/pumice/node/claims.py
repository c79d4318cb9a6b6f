"""The shares of a node's cards that claims hold (Dynamic Resource Allocation), as their driver books them, and what every such
driver asks of claims and pods, whatever its devices. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pumice.claims.objects import Result, results_of
from pumice.model.errors import BadInput
from pumice.node.mps import Bounds
from pumice.wire.kubernetes import DEVICES

Json = dict[str, Any]
DEVICES_MOST, SETS_MOST = 64, 8
"""Of one slice: devices where some have taints or counters, and counter sets."""
LONGEST: Final = 200
"""Characters of a node's name in the names of its slices."""


class ClaimSlice(msgspec.Struct, frozen=True):
    """A MIG slice's place on its card, and the slice's UUID once it is cut. ``size``: memory slices under it."""

    profile: str
    start: int
    size: int
    uuid: str = ""

    @property
    def cover(self) -> int:
        """The memory slices under it, as a mask."""
        return (1 << self.size) - 1 << self.start

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


class ClaimShare(msgspec.Struct, frozen=True):
    """A device of a claim: bytes and percent of a card, a MIG ``slice``, or ``whole``. ``share`` is the allocation's shareID.
    ``admin``: the card is only looked at (adminAccess), beside whoever has it, and nothing of it is held. ``mps``: the card's MPS
    server holds each program to that."""

    request: str
    device: str
    card: str
    memory: int = 0
    cores: int = 0
    whole: bool = False
    share: str = ""
    slice: ClaimSlice | None = None
    admin: bool = False
    mps: Bounds | None = None

    @property
    def visible(self) -> str:
        """The UUID of what a container is given."""
        return self.slice.uuid if self.slice is not None else self.card

    @property
    def limited(self) -> bool:
        """Return whether the library holds its containers to it: a whole card has none, a slice is held by the hardware, another
        card by MPS, and who looks at a card runs nothing there."""
        return not (self.whole or self.admin) and self.slice is None and self.mps is None


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim with its devices. ``checked``: its cards were found free after it was booked; until then nobody was answered."""

    uid: str
    namespace: str
    name: str
    shares: tuple[ClaimShare, ...]
    checked: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """Names the claim with its devices in the journal of MIG slices: allocated anew it is another, and old ones may go."""
        return f"{self.uid}/{','.join(share.device for share in self.shares if share.slice is not None)}"


@dataclass(frozen=True, slots=True)
class Holdings:
    """The other holders of the node's cards: claims that are prepared, and by UUID the shares of annotated pods and programs of
    `pumice run`, in words."""

    claims: Sequence[PreparedClaim] = ()
    others: Mapping[str, str] = field(default_factory=dict)


# -- What a claim says -----------------------------------------------------------------------------------------------


def asked_of(claim: Json, uid: str, node: str, driver: str) -> list[Result] | str:
    """Return what the claim was allocated of this node's driver, or why it is refused."""
    meta = claim["metadata"]
    key = f"{meta['namespace']}/{meta['name']}"
    if meta.get("uid") != uid:
        return f"claim {key} is another one now: its uid is {meta.get('uid')}, and {uid} was asked for"
    try:
        results = _results(claim, node, driver)
    except BadInput as error:
        return str(error)
    return results or f"claim {key} is allocated nothing of {driver} on node {node}"


def asks_to_look(claim: Json, result: Result) -> bool:
    """Return whether a result with adminAccess is what the specification asks for. The API server lets labelled namespaces alone
    ask for it there; a status has more writers."""
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    return any(one.get("name") == result.request and (one.get("exactly") or {}).get("adminAccess") is True for one in requests)


def _results(claim: Json, node: str, driver: str) -> list[Result]:
    """Raises BadInput."""
    return [one for one in results_of(claim) if (one.driver, one.pool) == (driver, node)]


def stands(claim: Json, mine: PreparedClaim, node: str, driver: str) -> bool:
    """Return whether the claim is still allocated what was prepared for it."""
    try:
        results = _results(claim, node, driver)
    except BadInput:
        return False
    there = {(one.request, one.device, one.share_id) for one in results}
    return claim["metadata"].get("uid") == mine.uid and there == {(one.request, one.device, one.share) for one in mine.shares}


def uses(claim: PreparedClaim, pods: Iterable[Json]) -> bool:
    """Return whether one of these pods names the claim and has not ended."""
    return (claim.namespace, claim.name) in users(pods)


def users(pods: Iterable[Json]) -> dict[tuple[str, str], list[str]]:
    """Return the pods that have not ended by the claims that they name, by namespace and name."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        for name in _claims_of(pod).values() if not _ended(pod) else ():
            if name:
                found.setdefault((pod["metadata"]["namespace"], name), []).append(pod["metadata"]["name"])
    return found


def annotated(
    pods: Iterable[Json], cards_of: Callable[[Json], Collection[str]], holders: Collection[str]
) -> dict[str, str]:
    """Return by UUID the pods with annotated shares of a card; under the empty UUID those of ``holders``, the kubelet's record,
    whose cards are unknown."""
    found: dict[str, list[str]] = {}
    unnamed = []
    for pod in pods:
        if _ended(pod):
            continue
        meta, cards = pod["metadata"], cards_of(pod)
        if meta["uid"] in holders and not cards:
            unnamed.append(f"{meta['namespace']}/{meta['name']}")
        for uuid in cards:
            found.setdefault(uuid, []).append(f"{meta['namespace']}/{meta['name']}")
    said = {uuid: f"shared by annotated pods ({', '.join(sorted(who))})" for uuid, who in found.items()}
    if unnamed:
        said[""] = f"pods {', '.join(unnamed)} hold cards of this node that no annotation names"
    return said


def asks_for_devices(pod: Json) -> bool:
    """Return whether a container is limited in a resource of somebody's domain, as all are that device plugins serve."""
    containers = (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    return any("/" in name for one in containers for name in (one.get("resources") or {}).get("limits") or ())


def _ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _claims_of(pod: Json) -> dict[str, str | None]:
    """The claims of a pod by the names that it has for them; None where one is not made yet."""
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    statuses = {one["name"]: one.get("resourceClaimName") for one in made}
    return {one["name"]: one.get("resourceClaimName") or statuses.get(one["name"])
            for one in pod["spec"].get("resourceClaims") or ()}  # fmt: skip


def crowded(
    claim: Json, mine: PreparedClaim, pods: Sequence[Json], others: Sequence[PreparedClaim], served: Callable[[str], bool]
) -> str:
    """Return the container that would get two requests, or one beside an annotated share (``served``: which resources are): it is
    told of one. Empty where there is none."""
    consumers = {one["uid"] for one in (claim.get("status") or {}).get("reservedFor") or ()}
    requests = {share.request.partition("/")[0] for share in mine.shares}
    held = {(one.namespace, one.name): {share.request.partition("/")[0] for share in one.shares} for one in others}
    held[mine.namespace, mine.name] = requests
    for pod in (one for one in pods if one["metadata"]["uid"] in consumers):
        of_pod = _claims_of(pod)
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            got = set()
            for used in (container.get("resources") or {}).get("claims") or ():
                name = of_pod.get(used["name"])
                there = held.get((pod["metadata"]["namespace"], str(name)), set())
                got |= {f"{name}/{one}" for one in there if used.get("request") in (None, "", one)}
            share = _share_asked(pod, container, served) if got else ""
            annotated = f" and asks for {share}" if share else ""
            if len(got) > 1 or annotated:
                where = f"container {container['name']} of pod {pod['metadata']['name']}"
                return (f"{where} names requests {', '.join(sorted(got))}{annotated}: "
                        "a container is held to one; ask for several cards by count")  # fmt: skip
    return ""


def _share_asked(pod: Json, container: Json, served: Callable[[str], bool]) -> str:
    """Return the resource by which a container asks the node's device plugin for cards, unless a class of devices stands for
    it."""
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    if any(one.get("containerName") == container["name"] for one in extended.get("requestMappings") or ()):
        return ""
    limits = (container.get("resources") or {}).get("limits") or {}
    return next((name for name, amount in limits.items() if served(name) and str(amount) != "0"), "")


# -- Its slices ------------------------------------------------------------------------------------------------------


def pool_specs(driver: str, node: str, generation: int, sets: Sequence[Json], devices: Sequence[Json]) -> list[Json]:
    """Return the specs of the slices of a node's pool, in parts that the API server takes."""
    slices: list[Json] = [{"sharedCounters": sets[at : at + SETS_MOST]} for at in range(0, len(sets), SETS_MOST)]
    slices += [{"devices": devices[at : at + DEVICES_MOST]} for at in range(0, len(devices), DEVICES_MOST)]
    pool = {"name": node, "generation": generation, "resourceSliceCount": max(1, len(slices))}
    return [{"driver": driver, "nodeName": node, "pool": pool, **part} for part in slices or [{"devices": []}]]


def owner_of(node: str, uid: str) -> Json:
    """Return the reference by which a node's slices go with it."""
    return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}


def slice_object(spec: Json, at: int, owner: Json, generation: int) -> Json:
    """Return a slice. Its name begins with its place: first fit goes by names, and a new generation has new ones."""
    node = str(spec["nodeName"])
    if len(node) > LONGEST:  # a name has at most 253 characters
        node = f"{node[: LONGEST - 9].rstrip('.-')}-{zlib.crc32(node.encode()):08x}"
    name = f"{at:05x}-{spec['driver']}-{node}-{generation:x}"
    return {"apiVersion": f"{DEVICES}/v1", "kind": "ResourceSlice", "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": spec}  # fmt: skip
