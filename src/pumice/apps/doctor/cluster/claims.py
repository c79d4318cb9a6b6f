"""Claims of devices: the API that serves them, whole classes and pools, cards in one world, and why pods wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pumice.apps.doctor.cluster.facts import ClusterFacts, unread
from pumice.audit.claim_rules import overbooked
from pumice.claims.objects import ResourceSlice, slice_of
from pumice.claims.slices import Node, Slices
from pumice.model.errors import BadInput
from pumice.node.findings import Finding, State
from pumice.wire import names
from pumice.wire.kubernetes import DEVICES
from pumice.wire.objects import condition
from pumice.wire.our_devices import CARD_CLAIMS, CLAIM_DRIVERS
from pumice.wire.programs import Maker, Role

BAD, WARNING = State.BAD, State.WARNING
PLURALS: Final = ("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates")
DRIVERS: Final = {driver.names[0]: f"kubectl apply -f {driver.manifest}" for driver in CLAIM_DRIVERS.values()}
"""Ours, and how each is installed with its classes; the one for all of a device has the driver's name."""
CLASS: Final = CARD_CLAIMS.names[0]
MANIFEST: Final = DRIVERS[CLASS]
SHOWN: Final = 3
CLOSED: Final = {f"{driver}/{key}": why for driver in DRIVERS for key, why in (
    ("device-plugin", "pods with annotated shares are there"), ("unhealthy", "they are sick, or cannot be cut"))}  # fmt: skip
"""Taints of our drivers, and what they say."""


def claims(facts: ClusterFacts) -> Iterator[Finding]:
    """Nothing is wrong with claims where nobody makes use of them."""
    metas = [node["metadata"] for node in facts.nodes]
    marked = [meta["name"] for meta in metas if (meta.get("labels") or {}).get(names.CLAIMS) == "on"]
    if not facts.claims.served:
        if marked:
            text = f"nodes {_some(marked)} give their cards by claim, and this API server does not serve {DEVICES}/v1"
            mend = f"Kubernetes has it from 1.34 on; until then take the label {names.CLAIMS} from the nodes"
            yield Finding(BAD, text, mend)
        return
    yield from unread(facts, *PLURALS)
    if any(plural in facts.unread for plural in PLURALS):
        return
    slices, problems = _read(facts)
    yield from problems
    yield from _classes(facts, slices)
    yield from _pools(facts, slices, marked)
    yield from _worlds(facts, slices)
    for text in overbooked(facts.claims.claims, facts.claims.slices):
        yield Finding(BAD, f"{text}: two schedulers allocate, or one has counted wrongly",
                      "delete one of the pods; let one scheduler allocate")  # fmt: skip
    yield from _waiting(facts)


def _read(facts: ClusterFacts) -> tuple[list[ResourceSlice], list[Finding]]:
    found, problems = list[ResourceSlice](), list[Finding]()
    for one in facts.claims.slices:
        try:
            found.append(slice_of(one))
        except BadInput as error:
            driver = str((one.get("spec") or {}).get("driver"))
            problems.append(Finding(WARNING, f"{error}: nothing of it is given", f"look at the log of the driver {driver}"))
    return found, problems


def _classes(facts: ClusterFacts, slices: list[ResourceSlice]) -> Iterator[Finding]:
    there = {one["metadata"]["name"] for one in facts.claims.classes}
    for driver, manifest in DRIVERS.items():
        if driver not in there and any(one.spec.driver == driver for one in slices):
            text = f"slices of {driver} are there, and no DeviceClass {driver}: nobody can claim a share of a card"
            yield Finding(WARNING, text, manifest)
    wanted: dict[str, list[str]] = defaultdict(list)
    for one in (*facts.claims.claims, *facts.claims.templates):
        for name in _classes_of(one) - there:
            wanted[name].append(_key(one))
    for name, users in sorted(wanted.items()):
        yield Finding(WARNING, f"there is no DeviceClass {name}, which {_some(users)} ask for",
                      f"make it: {MANIFEST} has those of {CLASS}")  # fmt: skip


def _classes_of(obj: Mapping[str, Any]) -> set[str]:
    spec = obj.get("spec") or {}
    found = set[str]()
    for request in ((spec.get("spec") or spec).get("devices") or {}).get("requests") or ():
        asks = [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
        found |= {str(ask["deviceClassName"]) for ask in asks if ask.get("deviceClassName")}
    return found


def _pools(facts: ClusterFacts, slices: list[ResourceSlice], marked: list[str]) -> Iterator[Finding]:
    """Of each pool its newest generation, as a scheduler sees it from each node."""
    index, seen = Slices(slices), set[tuple[str, str]]()
    for node in facts.nodes:
        meta = node["metadata"]
        for pool in index.pools_of(Node(meta["name"], meta.get("labels") or {})):
            if pool.problem and (pool.name, pool.problem) not in seen:
                seen.add((pool.name, pool.problem))
                mend = f"the driver writes it anew; else look at the log of {pool.id[0]} on node {meta['name']}"
                yield Finding(BAD, f"pool {pool.name} is {pool.problem}: no device of it is given", mend)
    publishing = {one.spec.node_name for one in slices if one.spec.driver in DRIVERS}
    if silent := [name for name in marked if name not in publishing]:
        yield Finding(BAD, f"nodes {_some(silent)} are to give their cards by claim, and no slice of {CLASS} is there",
                      f"{MANIFEST}; kubectl -n kube-system logs ds/pumice-dra-driver")  # fmt: skip


def _worlds(facts: ClusterFacts, slices: list[ResourceSlice]) -> Iterator[Finding]:
    ours = [one for one in slices if one.spec.driver in DRIVERS]
    for taint, why in CLOSED.items():
        closed = {one.spec.node_name: count for one in ours
                  if (count := sum(any(each.key == taint for each in device.taints) for device in one.spec.devices))}  # fmt: skip
        if closed:
            yield Finding(WARNING, f"devices of nodes {_some(sorted(closed))} are closed to claims: {why} (taint {taint})",
                          "let these pods end, or give the node back to annotations" if taint.endswith("plugin") else
                          "look at the log of pumice-dra-driver there")  # fmt: skip
    if not has_both(facts.claims.slices):
        return
    mine = {name for one in facts.of(Role.SCHEDULER, Maker.OURS) for name in one.program.names}
    others = sorted(_key(pod) for pod in facts.claims.pods if (pod.get("spec") or {}).get("schedulerName") not in mine)
    if others and mine:
        text = f"cards are published both as shared and as whole or in parts, and another scheduler places {_some(others)}"
        yield Finding(BAD, f"{text}: up to Kubernetes 1.36.1 it gives such a card away twice",
                      f"write schedulerName: {min(mine)} into these pods, or take --worlds=both from the driver")  # fmt: skip


def has_both(slices: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether our driver publishes a card as a shared device and otherwise, on one counter set."""
    ways: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for one in slices:
        spec = one.get("spec") or {}
        for device in (spec.get("devices") or ()) if spec.get("driver") == CLASS else ():
            for drawn in device.get("consumesCounters") or ():
                pool = str((spec.get("pool") or {}).get("name"))
                ways[pool, str(drawn.get("counterSet"))].add(bool(device.get("allowMultipleAllocations")))
    return any(len(found) > 1 for found in ways.values())


def _waiting(facts: ClusterFacts) -> Iterator[Finding]:
    """Pods without a node, by what keeps them."""
    claims = {_key(one): one for one in facts.claims.claims}
    templates = {_key(one) for one in facts.claims.templates}
    why: dict[str, list[str]] = defaultdict(list)
    for pod in facts.claims.pods:
        spec = pod.get("spec") or {}
        if not spec.get("nodeName"):
            why[_reason(pod, claims, templates)].append(_key(pod))
    for reason, pods in sorted(why.items(), key=lambda one: (-len(one[1]), one[0]))[:SHOWN]:
        who = f"{len(pods)} {'pods wait' if len(pods) > 1 else 'pod waits'} for claims ({_some(sorted(pods))})"
        space, _, name = min(pods).partition("/")
        yield Finding(WARNING, f"{who}: {reason}", f"pumice explain pod {name} -n {space}")
    if len(why) > SHOWN:
        yield Finding(WARNING, f"pods wait for claims for {len(why) - SHOWN} more reasons",
                      "kubectl get pods -A --field-selector spec.nodeName=")  # fmt: skip


def _reason(pod: Mapping[str, Any], claims: Mapping[str, Mapping[str, Any]], templates: set[str]) -> str:
    """The first claim that is not there, else what the scheduler says."""
    space, spec = pod["metadata"].get("namespace", ""), pod.get("spec") or {}
    made = {one.get("name"): one.get("resourceClaimName") for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for one in spec.get("resourceClaims") or ():
        template = one.get("resourceClaimTemplateName")
        if template and one.get("name") not in made:
            return (f"no claim is made of the template {template} yet" if f"{space}/{template}" in templates
                    else f"there is no ResourceClaimTemplate {template}")  # fmt: skip
        name = one.get("resourceClaimName") or made.get(one.get("name"))
        if name and f"{space}/{name}" not in claims:
            return f"there is no ResourceClaim {name}"
    scheduler = spec.get("schedulerName") or "default-scheduler"
    return str(condition(pod, "PodScheduled").get("message") or f"the scheduler {scheduler} has said nothing of it so far")


def _key(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _some(found: list[str]) -> str:
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
