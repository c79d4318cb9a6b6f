"""StatefulSet: pods with a number, a name and claims of their own, made one after the other.

Sources: Kubernetes "StatefulSets" (sections "Pod Identity", "Deployment and Scaling Guarantees", "Update strategies",
"PersistentVolumeClaim retention") and pkg/controller/statefulset of its source, for the order of the steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pumice.effects.vocabulary import Create, Delete, Patch, Requeue
from pumice.ports.cluster import Resource
from pumice.wire.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from pumice.wire.objects import is_ready, selects
from pumice_lab.controllers.common import (
    BURST,
    Action,
    Json,
    View,
    available_in,
    controller_of,
    delete_pod,
    is_deleting,
    owned_by,
    owner_reference,
    phase,
    pod_from,
    selector_of,
    share_of,
    status_patch,
    template_hash,
)

HASH = "controller-revision-hash"
REVISIONS = Resource("apps", "v1", "controllerrevisions")
_KEPT = 10


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of a StatefulSet. ``current``, ``update``: the names of the template that pods had so far, and of the one
    that they are to have. ``made``: the latter has yet to be written, by ``actions``."""

    current: str
    update: str
    made: bool
    actions: tuple[Action, ...]
    _templates: dict[str, Json] = field(default_factory=dict)

    def template(self, name: str) -> tuple[Json, str]:
        """And the name under which it is found: the newest, where that one is lost."""
        found = name if name in self._templates else self.update
        return self._templates[found], found


def revisions_of(owner: View, known: Sequence[View], kind: str) -> Revisions:
    """``known``: those that it owns. That of its template is made, or becomes the newest again; the oldest go."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    living = sorted((each for each in known if not is_deleting(each)), key=lambda each: int(each.get("revision") or 0))
    name, last = f"{meta['name']}-{template_hash(template)}", int(living[-1].get("revision") or 0) if living else 0
    same = next((each for each in living if each["metadata"]["name"] == name), None)
    actions: list[Action] = []
    if same is None:
        actions.append(Create(REVISIONS, {
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": last + 1,
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "metadata": {"name": name, "namespace": meta["namespace"], "labels": _labels(owner, name),
                         "ownerReferences": [owner_reference(owner, "apps/v1", kind)]}}))  # fmt: skip
    elif int(same.get("revision") or 0) < last:  # back to one from before
        actions.append(Patch(REVISIONS, meta["namespace"], name, {"revision": last + 1}, same["metadata"]["uid"]))
    templates = {each["metadata"]["name"]: _template(each) for each in living} | {name: dict(template)}
    current = (owner.get("status") or {}).get("currentRevision") or name
    limit = owner["spec"].get("revisionHistoryLimit")
    idle = [each for each in living if each["metadata"]["name"] not in (name, current)]
    surplus = idle[: max(0, len(idle) - int(_KEPT if limit is None else limit))]
    actions += [Delete(REVISIONS, meta["namespace"], each["metadata"]["name"], each["metadata"]["uid"]) for each in surplus]
    return Revisions(current, name, same is None, tuple(actions), templates)


def _labels(owner: View, name: str) -> Json:
    return {**((owner["spec"]["template"].get("metadata") or {}).get("labels") or {}), HASH: name}


def _template(revision: View) -> Json:
    found = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in found.items() if key != "$patch"}


_NAME, _INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class _Set:
    """The spec of a StatefulSet with its defaults."""

    obj: View
    first: int
    replicas: int
    ordered: bool
    partition: int | None
    """The number from which on pods are replaced by new ones; None: their owner replaces them (OnDelete)."""
    unavailable: int
    patience: float

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.replicas)

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])


def reconcile(sts: View, pods: Sequence[View], revisions: Sequence[View], claims: Mapping[str, View],
              now: float) -> list[Action]:  # fmt: skip
    """``pods``: its own, and those that it selects; ``claims``: those of its namespace, by name."""
    wanted = _read(sts)
    known = revisions_of(sts, revisions, "StatefulSet")
    adopted, mine = _adopted(wanted, pods)
    if is_deleting(sts):
        return []
    if known.made:
        return [*known.actions, *adopted]  # the next pass finds it, and whoever is first
    steps = [*adopted, *_steps(wanted, mine, known, claims, now)]
    return [*known.actions, *steps, *status_patch(STATEFUL_SETS, sts, _status(wanted, mine, known, now))]


def _read(sts: View) -> _Set:
    spec = sts["spec"]
    update = spec.get("updateStrategy") or {}
    rolling, replicas = update.get("rollingUpdate") or {}, int(spec.get("replicas", 1))
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    partition = None if update.get("type") == "OnDelete" else first + int(rolling.get("partition") or 0)
    return _Set(sts, first, replicas, spec.get("podManagementPolicy") != "Parallel", partition,
                max(1, share_of(rolling.get("maxUnavailable"), replicas, "1", up=True)),
                float(spec.get("minReadySeconds") or 0))  # fmt: skip


def _number(wanted: _Set, pod: View) -> int | None:
    stem, _, tail = str(pod["metadata"]["name"]).rpartition("-")
    return int(tail) if stem == wanted.name and tail.isdigit() and str(int(tail)) == tail else None


def _adopted(wanted: _Set, pods: Sequence[View]) -> tuple[list[Action], dict[int, View]]:
    """Its pods by number. Who bears one of its names and is nobody's becomes its own; whom it does not select is let go."""
    meta, actions = wanted.obj["metadata"], list[Action]()
    mine: dict[int, View] = {}
    for pod in pods:
        number, matches = (
            _number(wanted, pod),
            selects(selector_of(wanted.obj) or {}, pod["metadata"].get("labels") or {}),
        )
        owners = pod["metadata"].get("ownerReferences") or []
        if owned_by(pod, meta["uid"]):
            if matches and number is not None:
                mine[number] = pod
            elif not matches:
                actions.append(_owned(pod, [owner for owner in owners if owner["uid"] != meta["uid"]]))
        elif number is not None and matches and controller_of(pod) is None and not is_deleting(pod):
            actions.append(_owned(pod, [*owners, _reference(wanted)]))
            mine[number] = pod
    return actions, mine


def _owned(pod: View, owners: list[Json]) -> Patch:
    meta = pod["metadata"]
    return Patch(PODS, meta["namespace"], meta["name"], {"metadata": {"ownerReferences": owners or None}}, meta["uid"])


def _reference(wanted: _Set) -> Json:
    return owner_reference(wanted.obj, "apps/v1", "StatefulSet")


def _steps(wanted: _Set, mine: Mapping[int, View], known: Revisions, claims: Mapping[str, View], now: float) -> Iterator[Action]:
    """Return the next actions, in order: each waits until the one before it is done."""
    wait, made = False, 0
    for number in wanted.numbers:
        pod = mine.get(number)
        if pod is None:
            yield from _made(wanted, number, known, claims)
            made += 1
            wait = wanted.ordered or made == BURST
        elif phase(pod) in ("Failed", "Succeeded"):
            yield from _delete(pod)
            wait = wanted.ordered
        else:
            left = None if is_deleting(pod) else available_in(pod, wanted.patience, now)
            if left:
                yield Requeue(left)
            wait = wanted.ordered and left != 0.0
        if wait:
            return
    beyond = sorted((number for number in mine if number not in wanted.numbers), reverse=True)
    ill = [number for number in beyond if not is_ready(mine[number])]
    for number in beyond:
        pod = mine[number]
        if not is_deleting(pod):
            if wanted.ordered and ill and number != ill[-1] and not is_ready(pod):
                return  # the first of those that are not well may go first, the rest wait for it
            yield from _kept_or_not(wanted, pod, claims)
            yield from _delete(pod)
        if wanted.ordered:
            return
    yield from _replaced(wanted, mine, known, now)


def _replaced(wanted: _Set, mine: Mapping[int, View], known: Revisions, now: float) -> Iterator[Action]:
    """From the last number down, as many at once as may be unavailable."""
    if wanted.partition is None:
        return
    away = sum(number not in mine or is_deleting(mine[number]) or available_in(mine[number], wanted.patience, now) != 0.0
               for number in wanted.numbers)  # fmt: skip
    for number in reversed(wanted.numbers):
        if number < wanted.partition or number not in mine:
            continue
        pod = mine[number]
        well = not is_deleting(pod) and available_in(pod, wanted.patience, now) == 0.0
        if _revision(pod) != known.update and not is_deleting(pod) and (away < wanted.unavailable or not well):
            away += well
            yield from _delete(pod)
        if away >= wanted.unavailable:
            return


def _made(wanted: _Set, number: int, known: Revisions, claims: Mapping[str, View]) -> Iterator[Action]:
    """A pod, after the claims that it lacks."""
    old = wanted.partition is not None and number < wanted.partition
    template, revision = known.template(known.current if old else known.update)
    meta, name = wanted.obj["metadata"], f"{wanted.name}-{number}"
    for claim in wanted.obj["spec"].get("volumeClaimTemplates") or ():
        if _claim_name(claim, name) not in claims:
            yield Create(PERSISTENT_VOLUME_CLAIMS, _claim(wanted, claim, name))
    pod = pod_from(template, _reference(wanted), meta["namespace"], "", {HASH: revision, _NAME: name, _INDEX: str(number)})
    del pod["metadata"]["generateName"]
    pod["metadata"]["name"] = pod["spec"]["hostname"] = name
    pod["spec"]["subdomain"] = wanted.obj["spec"].get("serviceName") or None
    own = {claim["metadata"]["name"]: _claim_name(claim, name) for claim in wanted.obj["spec"].get("volumeClaimTemplates") or ()}
    others = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in own]
    pod["spec"]["volumes"] = [*others, *({"name": title, "persistentVolumeClaim": {"claimName": claim}}
                                         for title, claim in own.items())]  # fmt: skip
    yield Create(PODS, pod)


def _claim_name(claim: View, pod: str) -> str:
    return f"{claim['metadata']['name']}-{pod}"


def _claim(wanted: _Set, claim: View, pod: str) -> Json:
    labels = {**(claim["metadata"].get("labels") or {}), **((selector_of(wanted.obj) or {}).get("matchLabels") or {})}
    owners = {"ownerReferences": [_reference(wanted)]} if _policy(wanted, "whenDeleted") == "Delete" else {}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": dict(claim["spec"]), "metadata": {
        "name": _claim_name(claim, pod), "namespace": wanted.obj["metadata"]["namespace"], "labels": labels,
        "annotations": dict(claim["metadata"].get("annotations") or {}), **owners}}  # fmt: skip


def _kept_or_not(wanted: _Set, pod: View, claims: Mapping[str, View]) -> Iterator[Action]:
    """Where claims go with the pod that scaling down takes away, they are its own from then on."""
    if _policy(wanted, "whenScaled") != "Delete":
        return
    owner = owner_reference(pod, "v1", "Pod")
    for template in wanted.obj["spec"].get("volumeClaimTemplates") or ():
        claim = claims.get(_claim_name(template, pod["metadata"]["name"]))
        if claim is not None and not owned_by(claim, pod["metadata"]["uid"]):
            meta = claim["metadata"]
            others = [each for each in meta.get("ownerReferences") or () if not each.get("controller")]
            body: Json = {"metadata": {"ownerReferences": [*others, owner]}}
            yield Patch(PERSISTENT_VOLUME_CLAIMS, meta["namespace"], meta["name"], body, meta["uid"])


def _policy(wanted: _Set, when: str) -> str:
    return str((wanted.obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get(when, "Retain"))


def _delete(pod: View) -> Iterator[Action]:
    if not is_deleting(pod):
        yield delete_pod(pod)


def _revision(pod: View) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH, ""))


def _status(wanted: _Set, mine: Mapping[int, View], known: Revisions, now: float) -> Json:
    there: Collection[View] = mine.values()
    ready = [pod for pod in there if is_ready(pod)]
    updated = sum(_revision(pod) == known.update and not is_deleting(pod) for pod in there)
    current = sum(_revision(pod) == known.current and not is_deleting(pod) for pod in there)
    over = wanted.partition is not None and updated == len(there) == len(ready) == wanted.replicas
    return {
        "replicas": len(there), "readyReplicas": len(ready) or None,
        "availableReplicas": sum(available_in(pod, wanted.patience, now) == 0.0 for pod in ready) or None,
        "currentReplicas": (updated if over else current) or None, "updatedReplicas": updated or None,
        "currentRevision": known.update if over else known.current, "updateRevision": known.update, "collisionCount": 0,
        "observedGeneration": wanted.obj["metadata"].get("generation", 0),
    }  # fmt: skip
