"""Steps of everything but pods: nodes, PodGroups, queues, priority classes, claims, namespaces."""

from __future__ import annotations

from random import Random

from kit import objects
from kit.fake_cluster import Json
from tests.property.history import legacy_card_rules
from tests.property.history.pods import HOST, SPACES, ZONE, ZONES
from tests.property.history.registry import Op, View, anew, create, delete, kind, patch

NODES = ("n0", "n1", "n2", "n3")
QUEUES = ("q1", "q2", "q3")
CAPS: tuple[dict[str, str] | None, ...] = (
    None, None, None, {"cpu": "4"}, {"cpu": "6", "memory": "3Gi"}, {"volcano.sh/vgpu-memory": "12000"},
    {"volcano.sh/vgpu-number": "3"},
)  # fmt: skip
GUARANTEES: tuple[dict[str, str] | None, ...] = (None, None, {"cpu": "2"}, {"cpu": "3"}, {"volcano.sh/vgpu-memory": "6000"})
DESERVED: tuple[dict[str, str] | None, ...] = (
    None, {"cpu": "3", "memory": "8Gi"}, {"cpu": "4", "volcano.sh/vgpu-memory": "8000"}, {"volcano.sh/vgpu-number": "2"},
)  # fmt: skip
REGISTER = "volcano.sh/node-vgpu-register"
MIG_CARD = "NVIDIA-NVIDIA A100-SXM4-40GB"


def make_node(view: View, dice: Random, name: str) -> Json:
    labels = {ZONE: dice.choice(ZONES)} if dice.random() < 0.9 else {}
    cards, mode = dice.choice((0, 1, 2, 2, 3)), dice.random()
    register = None
    if cards and mode < 0.3:  # MIG alone, or both modes on one node
        modes = ["mig"] * cards if mode < 0.15 else [dice.choice(("mig", "hami-core")) for _ in range(cards)]
        register = "".join(f"GPU-{name}-{i},{7 if m == 'mig' else 3},40960,{MIG_CARD},true,{m}:" for i, m in enumerate(modes))
    made = objects.node(name, cards=cards, mib=8000, shares=3, cpu=dice.choice(("3", "4", "8")), memory="16Gi", labels=labels,
                        pods=dice.choice((110, 110, 5)), register=register)  # fmt: skip
    if register is not None:
        made["status"]["allocatable"] |= {"volcano.sh/vgpu-number": "21", "volcano.sh/vgpu-memory": str(cards * 40960)}
    if legacy_card_rules.MEMORY in view.sharing or legacy_card_rules.NUMBER in view.sharing or dice.random() < 0.05:
        for part in ("allocatable", "capacity"):
            made["status"][part] |= {legacy_card_rules.MEMORY: str(cards * 8000), legacy_card_rules.NUMBER: str(cards)}
    if dice.random() < 0.2:
        made["spec"] = {"taints": [_taint(dice)]}
    del made["metadata"]["uid"]
    return made


def _taint(dice: Random) -> Json:
    return {"key": "dedicated", "value": "gpu", "effect": dice.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))}


def beginning(view: View, dice: Random) -> list[Op]:
    """Where a history starts: two or three nodes, one queue or several."""
    ops = [create(objects.queue("root")), create(objects.queue("default")), create(objects.priority_class("high", 100))]
    if dice.random() < 0.5:
        ops += [create(_queue(dice, name)) for name in QUEUES[: dice.choice((2, 2, 3))]]
    for space, team in zip(SPACES, ("one", "two"), strict=True):
        ops.append(create({"kind": "Namespace", "metadata": {"name": space, "labels": {"team": team}}}))
    return ops + [create(make_node(view, dice, name)) for name in NODES[: dice.choice((2, 2, 3))]]


def _queue(dice: Random, name: str) -> Json:
    return objects.queue(name, weight=dice.choice((1, 1, 3)), priority=dice.choice((0, 0, 2)),
                         capability=dice.choice(CAPS), guarantee=dice.choice(GUARANTEES), deserved=dice.choice(DESERVED),
                         parent=dice.choice(("", "", "root", *QUEUES[:2])))  # fmt: skip


def _some(view: View, dice: Random, kind_: str) -> Json | None:
    found = view.all(kind_)
    return dice.choice(found) if found else None


# -- nodes ----------------------------------------------------------------------------------------------------------


@kind("a node comes", 3)
def node_comes(view: View, dice: Random) -> list[Op] | None:
    free = [name for name in NODES if name not in view.tables["Node"]]
    return [create(make_node(view, dice, dice.choice(free)))] if free else None


@kind("a node goes before its pods", 3)
def node_goes(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    return None if found is None else [delete(found)]


@kind("pods of nodes that are gone go", 4)
def orphans_go(view: View, dice: Random) -> list[Op] | None:
    found = [p for p in view.pods(bound=True, ours=False) if p["spec"]["nodeName"] not in view.tables["Node"]]
    return [delete(p) for p in found] or None


@kind("a node comes anew under its name", 2)
def node_anew(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    return None if found is None else [delete(found), anew(found)]


@kind("a node is cordoned or let", 3)
def cordoned(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    if found is None:
        return None
    return [patch(found, {"spec": {"unschedulable": None if found["spec"].get("unschedulable") else True}})]


@kind("a node is tainted or freed", 3)
def tainted(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    if found is None:
        return None
    return [patch(found, {"spec": {"taints": None if found["spec"].get("taints") else [_taint(dice)]}})]


@kind("a node moves to another zone", 3)
def moved(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    return None if found is None else [patch(found, {"metadata": {"labels": {ZONE: dice.choice((*ZONES, None))}}})]


@kind("a node has more or less room", 2)
def room_changes(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    return None if found is None else [patch(found, {"status": {"allocatable": {"cpu": dice.choice(("2", "4", "8"))}}})]


@kind("cards vanish and return", 2)
def cards_flap(view: View, dice: Random) -> list[Op] | None:
    """The device plugin restarts: the registration goes and comes back, at once or later."""
    found = _some(view, dice, "Node")
    if found is None:
        return None
    text = found["metadata"]["annotations"].get(REGISTER)
    if text is None:
        return None
    return [patch(found, {"metadata": {"annotations": {REGISTER: None}}}),
            *([] if dice.random() < 0.5 else [{"do": "wait", "seconds": 1.0}]),
            patch(found, {"metadata": {"annotations": {REGISTER: text}}})]  # fmt: skip


@kind("a card fails or recovers", 2)
def card_health(view: View, dice: Random) -> list[Op] | None:
    found = [n for n in view.all("Node") if n["metadata"]["annotations"].get(REGISTER)]
    if not found:
        return None
    node = dice.choice(found)
    entries = node["metadata"]["annotations"][REGISTER].rstrip(":").split(":")
    at = dice.randrange(len(entries))
    old, new = (",true,", ",false,") if ",true," in entries[at] else (",false,", ",true,")
    entries[at] = entries[at].replace(old, new)
    return [patch(node, {"metadata": {"annotations": {REGISTER: ":".join(entries) + ":"}}})]


@kind("legacy cards fail or recover", 1)
def legacy_health(view: View, dice: Random) -> list[Op] | None:
    found = [n for n in view.all("Node") if legacy_card_rules.NUMBER in n["status"]["capacity"]]
    sick = {legacy_card_rules.SICK: dice.choice(("0", "1", "0,2", "", None))}
    return [patch(dice.choice(found), {"metadata": {"annotations": sick}})] if found else None


@kind("images are pulled", 1)
def images(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Node")
    image = {"names": [dice.choice(("busybox:latest", "other:1"))], "sizeBytes": dice.choice((10, 800)) << 20}
    return None if found is None else [patch(found, {"status": {"images": [image]}})]


# -- groups, queues, classes ----------------------------------------------------------------------------------------


@kind("a PodGroup goes", 1)
def group_goes(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "PodGroup")
    return None if found is None else [delete(found)]


@kind("a PodGroup comes anew under its name", 3)
def group_anew(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "PodGroup")
    return None if found is None else [delete(found), anew(found)]


@kind("a PodGroup wants fewer or more", 2)
def minimum(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "PodGroup")
    return None if found is None else [patch(found, {"spec": {"minMember": dice.randint(1, 4)}})]


@kind("a queue comes anew under its name", 2)
def queue_anew(view: View, dice: Random) -> list[Op] | None:
    found = [q for q in view.all("Queue") if q["metadata"]["name"] != "root"]
    if not found:
        return None
    queue = dice.choice(found)
    return [delete(queue), anew(queue)]


@kind("a queue comes", 1)
def queue_comes(view: View, dice: Random) -> list[Op] | None:
    free = [name for name in QUEUES if name not in view.tables["Queue"]]
    return [create(_queue(dice, dice.choice(free)))] if free else None


@kind("a queue closes or opens", 1)
def closes(view: View, dice: Random) -> list[Op] | None:
    found = [q for q in view.all("Queue") if q["metadata"]["name"] not in ("root", "default")]
    if not found:
        return None
    queue = dice.choice(found)
    return [patch(queue, {"status": {"state": "Open" if queue["status"].get("state") == "Closed" else "Closed"}})]


@kind("a queue's share changes", 2)
def share(view: View, dice: Random) -> list[Op] | None:
    found = [q for q in view.all("Queue") if q["metadata"]["name"] != "root"]
    if not found:
        return None
    queue, part = dice.choice(found), dice.choice(("capability", "guarantee", "deserved", "weight"))
    if part == "weight":
        return [patch(queue, {"spec": {"weight": dice.choice((1, 4))}})]
    amounts = dice.choice({"capability": CAPS, "guarantee": GUARANTEES, "deserved": DESERVED}[part])
    written = {"resource": amounts} if part == "guarantee" and amounts else amounts
    return [patch(queue, {"spec": {part: None}}), patch(queue, {"spec": {part: written}})]  # a merge patch would join two


@kind("a queue moves under another", 1)
def moves(view: View, dice: Random) -> list[Op] | None:
    """A queue may become its own ancestor by it."""
    found = [q for q in view.all("Queue") if q["metadata"]["name"] in QUEUES]
    return [patch(dice.choice(found), {"spec": {"parent": dice.choice((None, "root", *QUEUES))}})] if found else None


@kind("a priority class comes anew under its name", 1)
def class_anew(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "PriorityClass")
    return None if found is None else [delete(found), anew(found, {"value": dice.choice((1, 100))})]


@kind("a namespace changes sides", 1)
def namespace(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "Namespace")
    return None if found is None else [patch(found, {"metadata": {"labels": {"team": dice.choice(("one", "two"))}}})]


# -- claims ---------------------------------------------------------------------------------------------------------


def _claim(dice: Random, number: int) -> list[Op]:
    """A claim and the volume that is bound to it, which some nodes reach."""
    name, space = f"claim-{number}", dice.choice(SPACES)
    where = dice.choice(({"key": ZONE, "operator": "In", "values": [dice.choice(ZONES)]},
                         {"key": HOST, "operator": "In", "values": list(NODES[:3])}))  # fmt: skip
    volume = {"kind": "PersistentVolume", "metadata": {"name": f"pv-{space}-{number}"},
              "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "s",
                       "claimRef": {"kind": "PersistentVolumeClaim", "namespace": space, "name": name},
                       "hostPath": {"path": "/x"},
                       "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}}}  # fmt: skip
    claim = {"kind": "PersistentVolumeClaim",
             "metadata": {"name": name, "namespace": space, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
             "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s",
                      "volumeName": f"pv-{space}-{number}"}}  # fmt: skip
    return [create(volume), create(claim)]


@kind("a claim comes with its volume", 1)
def claim_comes(view: View, dice: Random) -> list[Op]:
    return _claim(dice, dice.randrange(2))


@kind("a claim comes anew under its name", 1)
def claim_anew(view: View, dice: Random) -> list[Op] | None:
    found = _some(view, dice, "PersistentVolumeClaim")
    return None if found is None else [delete(found), anew(found)]
