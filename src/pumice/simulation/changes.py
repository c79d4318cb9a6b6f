"""Changes of a cluster that somebody thinks about: more nodes, another cut of cards, no queue of that name, another policy.

Objects are those of a case file, by kind. A change returns new ones and leaves those that were given as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import count, islice
from random import Random
from typing import Any

import yaml

from pumice.devices.card_policies import POLICIES
from pumice.devices.nvidia_vgpu.mig_catalogue import builtin_geometries
from pumice.model.cards import Card, Mode
from pumice.model.errors import BadInput, nearest
from pumice.model.hardware.cards import is_called, presets, presets_called
from pumice.simulation import manifests
from pumice.simulation.manifests import Json
from pumice.simulation.play import Outage
from pumice.simulation.trace import MOST_CARDS
from pumice.simulation.words import Words
from pumice.wire import names
from pumice.wire.document import safe_load
from pumice.wire.nvidia_vgpu import parse_register, render_register

Objects = dict[str, list[Json]]
MOST_OUTAGES = 1_000_000
UNCUT = "all-disabled"
"""mig-parted's word for cards that are not in MIG mode."""


def with_policy(conf: str, policy: str) -> str:
    """The configuration with another policy of cards. Raises BadInput for a policy that does not exist."""
    if policy not in POLICIES:
        raise BadInput(f"--policy {policy!r}: it is not among {', '.join(POLICIES)}{nearest(policy, POLICIES)}")
    document = safe_load(conf)
    for tier in document.get("tiers") or ():
        for plugin in tier.get("plugins") or ():
            if plugin.get("name") == "deviceshare":
                plugin["arguments"] = {**(plugin.get("arguments") or {}), "deviceshare.SchedulePolicy": policy}
                return yaml.safe_dump(document, sort_keys=False)
    raise BadInput(f"--policy {policy}: the configuration has no plugin deviceshare, which a policy is an argument of")


def added(objects: Objects, text: str) -> tuple[Objects, str]:
    """More nodes: like one of the cluster with cards of that model, or with cards that Pumice knows. Returns a sentence that says
    which were taken, where several are called so; else nothing."""
    words = Words("--add", text, ("nodes", "model", "cards", "cpu", "memory", "shares"))
    number, model = words.whole("nodes"), words.get("model", "")
    known = {node["metadata"]["name"] for node in objects.get("nodes", ())}
    fresh = islice((name for i in count(len(known)) if (name := f"added-{i}") not in known), number)
    like = next((node for node in objects.get("nodes", ()) if is_called(_models(node), model)), None)
    slices, more = objects.get("resourceSlices", []), list[Json]()
    others: tuple[str, ...] = ()
    if like is not None and not words.keys() - {"nodes", "model"}:
        made = [_copy(like, name) for name in fresh]
        there = like["metadata"]["name"]
        more = [_copied(one, node["metadata"]["name"]) for node in made for one in slices if _node_of(one) == there]
    else:
        cards, preset = 0, None
        if model:
            fitting = presets_called(model)
            if not fitting:
                there = sorted({word for node in objects.get("nodes", ()) for word in _models(node).split()} | set(presets()))
                raise words.error(f"no model {model!r} of the cluster or among {', '.join(presets())}{nearest(model, there)}")
            cards, preset = words.whole("cards", 8, MOST_CARDS), presets()[fitting[0]]
            others = fitting[1:]
        made = [
            manifests.node(name, cpu=words.quantity("cpu", str(12 * cards or 32)),
                           memory=words.quantity("memory", f"{128 * cards or 256}Gi"), cards=cards,
                           model=preset.name if preset else "", mib=preset.memory - preset.reserved if preset else 0,
                           shares=words.whole("shares", 10))
            for name in fresh
        ]  # fmt: skip
    found = {**objects, "nodes": [*objects.get("nodes", ()), *made], **({"resourceSlices": [*slices, *more]} if more else {})}
    return found, f"--add {text}: cards {fitting[0]}; {', '.join(others)} are called so, too" if others else ""


def _models(node: Json) -> str:
    meta = node["metadata"]
    register = parse_register(meta.get("annotations", {}).get(names.NODE_VGPU_REGISTER, ""))
    return " ".join({card.type for card in register.cards} | {(meta.get("labels") or {}).get(manifests.MODEL, "")})


def _copy(node: Json, name: str) -> Json:
    """A node like that one, with cards of its own."""
    found = copy.deepcopy(node)
    meta = found["metadata"]
    meta |= {"name": name, "uid": f"node-{name}", "labels": {**meta.get("labels", {}), "kubernetes.io/hostname": name}}
    _forget_pods(found)
    register = meta.get("annotations", {}).get(names.NODE_VGPU_REGISTER)
    if register:
        fresh = [_with(card, uuid=f"GPU-{name}-{card.index}") for card in parse_register(register).cards]
        meta["annotations"] = {**meta["annotations"], names.NODE_VGPU_REGISTER: render_register(fresh)}
    return found


def _forget_pods(node: Json) -> None:
    """Drop what a node's annotations say of pods, which have no place on it any more."""
    for key in (names.HANDED_OUT, names.HELD_PLACES, names.HELD_FOR_MOVES):
        node["metadata"].get("annotations", {}).pop(key, None)


def _node_of(slice_: Json) -> str:
    return str((slice_.get("spec") or {}).get("nodeName", ""))


def _copied(slice_: Json, node: str) -> Json:
    """The devices of a node as another one has them, of a pool of its own."""
    found = copy.deepcopy(slice_)
    found["metadata"] |= {"name": f"{node}-{found['metadata']['name']}", "uid": f"slice-{node}-{found['metadata']['name']}"}
    found["spec"] |= {"nodeName": node, "pool": {**found["spec"]["pool"], "name": node}}
    for device in found["spec"].get("devices") or ():
        for name, value in (device.get("attributes") or {}).items():
            if name.rpartition("/")[2] in ("uuid", "parentUUID") and "string" in value:
                value["string"] = f"{value['string']}-{node}"
    return found


def _with(card: Card, **changes: Any) -> Card:
    facts = {"index": card.index, "uuid": card.uuid, "type": card.type, "total": card.total, "shares": card.shares,
             "healthy": card.healthy, "mode": card.mode, "places": card.places}  # fmt: skip
    return Card(**{**facts, **changes})


def recut(objects: Objects, device_config: str, text: str) -> tuple[Objects, str]:
    """A node whose cards are cut in another way, as mig-parted names it: all-1g, all-2g.20gb, all-disabled. Its pods lose their
    places and wait. The scheduler learns the cut as the only geometry of a card type of its own."""
    name, _, cut = text.partition("=")
    node = next((node for node in objects.get("nodes", ()) if node["metadata"]["name"] == name), None)
    if node is None:
        known = [node["metadata"]["name"] for node in objects.get("nodes", ())]
        raise BadInput(f"--recut {text!r}: no node {name!r}{nearest(name, known)}")
    cards = parse_register(node["metadata"].get("annotations", {}).get(names.NODE_VGPU_REGISTER, "")).cards
    if not cards:
        raise BadInput(f"--recut {text!r}: node {name} has registered no vGPUs")
    kind = cards[0].type
    changed = copy.deepcopy(node)
    have = changed["status"]["allocatable"]
    if cut == UNCUT:
        fresh = [_with(card, mode=Mode.HAMI_CORE, shares=card.shares if card.mode is not Mode.MIG else 10) for card in cards]
    else:
        known_cuts = builtin_geometries(kind)
        groups = {f"all-{group.instances[0].name}": group for group in (known_cuts.groups if known_cuts else ())
                  if len(group.instances) == 1}  # fmt: skip
        chosen = next((key for key in groups if cut in (key, key.partition(".")[0])), None)
        if chosen is None:
            cuts = ", ".join((*groups, UNCUT))
            raise BadInput(f"--recut {text!r}: {kind} has no cut {cut!r} among {cuts}{nearest(cut, groups)}")
        instances = groups[chosen].instances
        own = f"{kind} {chosen}"
        fresh = [_with(card, type=own, mode=Mode.MIG, shares=instances[0].count) for card in cards]
        document = safe_load(device_config) or {} if device_config else {}
        section = document.setdefault("nvidia", None) or {}
        entry = {"models": [own], "allowedGeometries": [{"group": "only", "geometries": [
            {"name": one.name, "memory": one.memory, "count": one.count} for one in instances]}]}  # fmt: skip
        section["knownMigGeometries"] = [entry, *(section.get("knownMigGeometries") or ())]
        device_config = yaml.safe_dump({**document, "nvidia": section}, sort_keys=False)
    have[names.VGPU_NUMBER] = str(sum(card.shares for card in fresh))
    changed["metadata"]["annotations"][names.NODE_VGPU_REGISTER] = render_register(fresh)
    _forget_pods(changed)
    nodes = [changed if one is node else one for one in objects["nodes"]]
    return {**objects, "nodes": nodes, "pods": _off(objects.get("pods", ()), name)}, device_config


def _off(pods: Iterable[Json], node: str) -> list[Json]:
    """The pods, of which those of a node have lost their places and wait."""
    return [manifests.unplaced(pod) if pod.get("spec", {}).get("nodeName") == node else pod for pod in pods]


def without(objects: Objects, text: str) -> tuple[Objects, str]:
    """The cluster without a queue and its pods, a namespace's pods, or a node, whose pods wait. Returns the queue that is gone:
    whoever is yet to arrive for it does not."""
    words = Words("--without", text, ("queue", "node", "namespace"))
    if len(words) != 1:
        raise words.error("write one of queue=…, node=…, namespace=…")
    ((what, name),) = words.items()
    pods = objects.get("pods", [])
    known = {
        "queue": {queue["metadata"]["name"] for queue in objects.get("queues", ())} | {queue_of(pod) for pod in pods},
        "node": {node["metadata"]["name"] for node in objects.get("nodes", ())},
        "namespace": {pod["metadata"].get("namespace", "default") for pod in pods},
    }[what]
    if name not in known:
        raise words.error(f"no {what} {name!r}{nearest(name, known)}")
    if what == "node":
        rest = {kind: [one for one in found if kind != "resourceSlices" or _node_of(one) != name]
                for kind, found in objects.items()}  # fmt: skip
        return {**rest, "nodes": [node for node in objects["nodes"] if node["metadata"]["name"] != name],
                "pods": _off(pods, name)}, ""  # fmt: skip
    if what == "namespace":
        return _with_pods(objects, [pod for pod in pods if pod["metadata"].get("namespace", "default") != name]), ""
    groups = objects.get("podGroups", [])
    gone = {_key(group) for group in groups if (group.get("spec") or {}).get("queue", names.DEFAULT_QUEUE) == name}
    left = [pod for pod in pods if not (_group(pod) in gone or (not _group(pod) and queue_of(pod) == name))]
    return {**_with_pods(objects, left), "podGroups": [group for group in groups if _key(group) not in gone],
            "queues": [queue for queue in objects.get("queues", ()) if queue["metadata"]["name"] != name]}, name  # fmt: skip


def _with_pods(objects: Objects, left: list[Json]) -> Objects:
    """Only these pods, and claims that hold nothing for the others."""
    gone = {pod["metadata"].get("uid") for pod in objects.get("pods", ())} - {pod["metadata"].get("uid") for pod in left}
    claims: list[Json] = []
    for claim in objects.get("resourceClaims", ()):
        users = (claim.get("status") or {}).get("reservedFor") or []
        used = [user for user in users if user.get("uid") not in gone]
        if any(owner.get("uid") in gone for owner in claim["metadata"].get("ownerReferences") or ()):
            continue
        if len(used) < len(users):
            claim = {key: value for key, value in claim.items() if key != "status"} | (
                {"status": {**claim["status"], "reservedFor": used}} if used else {})  # fmt: skip
        claims.append(claim)
    return {**objects, "pods": left, **({"resourceClaims": claims} if "resourceClaims" in objects else {})}


def queue_of(pod: Mapping[str, Any]) -> str:
    """The queue that a pod names itself."""
    return str((pod["metadata"].get("annotations") or {}).get(names.QUEUE_NAME, names.DEFAULT_QUEUE))


def _key(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"


def _group(pod: Json) -> str:
    name = (pod["metadata"].get("annotations") or {}).get(names.GROUP_NAME)
    return f"{pod['metadata'].get('namespace', 'default')}/{name}" if name else ""


def outages(objects: Objects, text: str, until: float, rng: Random) -> list[Outage]:
    """One node that fails at a time, or all of them now and then: with exponential times between the failures of a node."""
    words = Words("--fail", text, ("node", "at", "every", "for"))
    known = [node["metadata"]["name"] for node in objects.get("nodes", ())]
    down = words.seconds("for") or float("inf")
    if "node" in words and "every" not in words:
        if words["node"] not in known:
            raise words.error(f"no node {words['node']!r}{nearest(words['node'], known)}")
        return [Outage(words["node"], words.seconds("at"), down)]
    mean = words.seconds("every")
    if "node" in words or "at" in words or mean <= 0 or down == float("inf"):
        raise words.error("write node=NAME,at=1h,for=10m, or for all nodes every=720h,for=4h")
    if until <= 0:
        raise words.error("no time passes in which a node could fail: pods come at once and stay; write node=NAME,at=1h,for=10m")
    if len(known) * until / (mean + down) > MOST_OUTAGES:
        raise words.error(f"that is more than {MOST_OUTAGES:,} failures in {until:,.0f} s")
    found: list[Outage] = []
    for name in known:
        at = rng.expovariate(1 / mean)
        while at < until:
            found.append(Outage(name, at, down))
            at += down + rng.expovariate(1 / mean)
    return found
