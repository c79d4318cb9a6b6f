"""Resources, annotations and schedulers of pods, quotas and queues, wherever in a document they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from pumice.devices.convert.edits import Draft, child, entries, items, mappings, merged, word
from pumice.ports.cluster import Json
from pumice.wire import hami_names, names, variables
from pumice.wire.hami_names import To
from pumice.wire.programs import HAMI_SCHEDULER, HAMI_WEBHOOK, Maker, programs


@dataclass(frozen=True, slots=True)
class Way:
    """A direction of translation. ``renamed``: resources and annotations. ``theirs``, ``ours``: names of one side alone that
    are always renamed; a file has those of one side. ``lost``: what has no name there, and what comes of that; ``lost_keys``:
    those of the device ConfigMap."""

    to: To
    renamed: Mapping[str, str]
    theirs: frozenset[str]
    ours: frozenset[str]
    scheduler: tuple[str, str]
    config_keys: Mapping[str, str]
    lost: Mapping[str, str]
    lost_keys: Mapping[str, str]

    @property
    def count(self) -> str:
        """The resource that counts cards, as it is called where this leads to."""
        return names.WHOLE_GPU if self.to is To.HAMI else names.VGPU_NUMBER


_HAMIS: Final = {**hami_names.RESOURCES, **hami_names.ANNOTATIONS}
_OURS: Final = {ours: theirs for theirs, ours in _HAMIS.items()}
_THEIRS: Final = frozenset(name for name, ours in _HAMIS.items() if ours not in hami_names.VALUES) - {names.WHOLE_GPU}
"""``nvidia.com/gpu`` alone may be NVIDIA's own plugin's."""
_HERE: Final = frozenset(ours for ours in _OURS if ours not in hami_names.VALUES)
_NO_POLICY: Final = "Volcano knows the cluster's policy alone"
_NO_BURST: Final = "Volcano's plugin lends nobody more than was asked for"
_OURS_ALONE: Final = {
    names.NODE_POLICY: _NO_POLICY, names.CARD_POLICY: _NO_POLICY, names.BURST_MEMORY: _NO_BURST, names.BURST_CORES: _NO_BURST,
}  # fmt: skip
_AT_VOLCANO: Final = {name: ours for name, ours in _HAMIS.items() if ours not in _OURS_ALONE}
HINTS: Final = frozenset({*_HAMIS, hami_names.PRIORITY}) - {names.WHOLE_GPU}
"""Names by which a file is HAMi's, and with it the ``nvidia.com/gpu`` in it."""

WAYS: Final[Mapping[To, Way]] = {
    To.PUMICE: Way(To.PUMICE, _HAMIS, _THEIRS, _HERE, (HAMI_SCHEDULER, names.SCHEDULER_NAME), hami_names.CONFIG_KEYS,
                   hami_names.LOST, hami_names.LOST_KEYS),
    To.VOLCANO: Way(To.VOLCANO, _AT_VOLCANO, _THEIRS, _HERE, (HAMI_SCHEDULER, names.SCHEDULER_NAME), hami_names.CONFIG_KEYS,
                    {**hami_names.LOST, **dict.fromkeys(_HAMIS.keys() - _AT_VOLCANO.keys(), _NO_POLICY), **_OURS_ALONE},
                    hami_names.LOST_KEYS_AT_VOLCANO),
    To.HAMI: Way(To.HAMI, _OURS, _HERE, _THEIRS, (names.SCHEDULER_NAME, HAMI_SCHEDULER),
                 {ours: theirs for theirs, ours in hami_names.CONFIG_KEYS.items()}, hami_names.LOST_AT_HAMI,
                 hami_names.LOST_KEYS_AT_HAMI),
}  # fmt: skip


REQUESTED, LIMITED = "requests.", "limits."
"""Before a resource's name in a ResourceQuota."""
Entry = tuple[yaml.ScalarNode, yaml.Node]
NULL = "tag:yaml.org,2002:null"
ONE_CARD = "HAMi's webhook gives one card to who names an amount alone"


def convert_document(draft: Draft, root: yaml.Node, way: Way, *, sure: bool) -> None:
    """``sure``: the names of the file are the other side's, even those that NVIDIA's plugin has as well."""
    if _whole(draft, root, way):
        return
    in_jobs = {id(child(task, "template", "spec")) for job in mappings(root) for task in items(child(job, "tasks"))}
    for mapping in mappings(root):
        for key, value in entries(mapping):
            _key(draft, mapping, (key, value), way, sure=sure)
        if items(child(mapping, "containers")):
            _pod(draft, mapping, way, sure=sure, in_job=id(mapping) in in_jobs)
        lists = [key for key, _ in entries(mapping) if key.value in (hami_names.USE_UUID, hami_names.NOUSE_UUID)]
        if len(lists) > 1 and way.to is not To.HAMI:
            draft.keep(lists[-1], "a list of cards to use beside one of cards not to use",
                       "HAMi looks at the first alone, here a card must be in the first and not in the second")  # fmt: skip


def is_volcanos(root: yaml.Node) -> bool:
    """Return whether it is of a kind that only Volcano has."""
    group = word(child(root, "apiVersion")).rpartition("/")[0]
    return bool(word(child(root, "kind"))) and group.endswith(names.DOMAIN)


def _whole(draft: Draft, root: yaml.Node, way: Way) -> bool:
    """Objects of which nothing is taken over."""
    kind = word(child(root, "kind"))
    name = f"{kind} {word(child(root, 'metadata', 'name'))}".strip()
    if is_volcanos(root) and way.to is To.HAMI:
        draft.keep(root, name, "HAMi has no kinds of its own: no Jobs, gangs or queues")
        return True
    if way.to is not To.HAMI and kind.endswith("WebhookConfiguration"):
        hooks = [word(child(hook, "name")) for hook in items(child(root, "webhooks"))]
        if any(hook.endswith(f".{HAMI_WEBHOOK}") for hook in hooks):
            draft.keep(root, name, "it is HAMi's own; delete it, or HAMi's scheduler goes on taking pods")
            return True
    for mapping in mappings(root):
        for program, _ in programs(_spec(mapping)):
            if (program.maker is Maker.HAMI) == (way.to is not To.HAMI) and program.maker in (Maker.HAMI, Maker.OURS):
                own = "apply deploy/manifests in its place" if way.to is not To.HAMI else "install HAMi's chart in its place"
                draft.keep(root, name, f"it is {program} itself; {own}")
                return True
    return False


def _spec(mapping: yaml.MappingNode) -> Json:
    """The fields that tell whose program a pod is."""
    containers = [{"image": word(child(one, "image")), "command": [word(each) for each in items(child(one, "command"))],
                   "args": [word(each) for each in items(child(one, "args"))]}
                  for one in items(child(mapping, "containers"))]  # fmt: skip
    return {"serviceAccountName": word(child(mapping, "serviceAccountName")), "containers": containers}


def _key(draft: Draft, mapping: yaml.MappingNode, entry: Entry, way: Way, *, sure: bool) -> None:
    key, value = entry
    name = key.value
    if name == "schedulerName" and isinstance(value, yaml.ScalarNode) and value.value == way.scheduler[0]:
        draft.rename(value, way.scheduler[1], "the scheduler that chooses cards")
        return
    bare = name.removeprefix(REQUESTED)
    if bare in way.renamed and bare == names.WHOLE_GPU and not sure:
        draft.keep(key, name, "it may be NVIDIA's own plugin's, a whole card; --from hami says that it is HAMi's")
    elif bare in way.renamed and not _has_other_meaning(bare, value, way):
        draft.rename_key(mapping, key, name.replace(bare, way.renamed[bare]), _why(way.renamed[bare], bare))
    elif name.startswith(LIMITED) and name.removeprefix(LIMITED) in way.renamed:
        draft.keep(key, name, f"Kubernetes counts extended resources by {REQUESTED}; write {REQUESTED}"
                   f"{way.renamed[name.removeprefix(LIMITED)]}")  # fmt: skip
    elif name in way.lost and not draft.has_taken_out(key):
        draft.keep(key, name, way.lost[name])
    elif way.to is not To.HAMI and name in hami_names.WRITTEN:
        draft.keep(key, name, "HAMi's scheduler writes it on a running pod; take it out of the manifest")
    elif way.to is not To.HAMI and bare.partition("/")[0] in hami_names.OTHER_VENDORS and "/" in bare:
        draft.keep(key, name, "nothing here shares these devices: the pod stays Pending")
    elif way.to is not To.PUMICE and name.startswith((f"{names.OUR_DOMAIN}/", "pumice.")) and name not in way.renamed:
        draft.keep(key, name, "only Pumice reads it")


def _has_other_meaning(name: str, value: yaml.Node, way: Way) -> bool:
    meant = hami_names.VALUES.get(name) or hami_names.VALUES.get(way.renamed[name])
    return meant is not None and word(value) not in meant


def _why(after: str, before: str) -> str:
    return hami_names.UNITS.get(after) or hami_names.UNITS.get(before) or "the same by another name"


def _pod(draft: Draft, spec: yaml.MappingNode, way: Way, *, sure: bool, in_job: bool) -> None:
    device_requests = False
    for key in ("initContainers", "containers"):
        for container in items(child(spec, key)):
            if way.to is not To.HAMI and isinstance(container, yaml.MappingNode):
                _priority(draft, container)
            limits = child(container, "resources", "limits")
            named = {key.value for key, _ in (*entries(limits), *merged(limits))}
            shares = {way.renamed.get(name, name) for name in named} & _shares(way)
            chips = any(name.startswith(hami_names.CHIPS) for name in named)
            device_requests |= chips or any(
                sure or name != names.WHOLE_GPU for name in named if way.renamed.get(name, name) in shares
            )
            if shares and way.count not in shares and way.to is not To.HAMI and isinstance(limits, yaml.MappingNode):
                first = next(key for key, _ in limits.value if key.value != hami_names.PRIORITY)
                draft.add(limits, first, way.count, "1", ONE_CARD)
    named_one = child(spec, "schedulerName")
    why = "nobody else chooses its cards" if way.to is not To.HAMI else "HAMi's webhook would write it"
    if device_requests and not in_job and named_one is None:
        first = next((key for key, _ in entries(spec) if key.value in ("containers", "initContainers")), spec.value[0][0])
        draft.add(spec, first, "schedulerName", way.scheduler[1], why)
    elif (
        device_requests
        and not in_job
        and way.to is not To.HAMI
        and isinstance(named_one, yaml.ScalarNode)
        and _is_default(named_one)
    ):
        draft.rename(named_one, way.scheduler[1], why)


def _priority(draft: Draft, container: yaml.MappingNode) -> None:
    """HAMi's webhook writes the amount of that resource into the container's environment; here nobody offers it, and a pod that
    asks for it never starts."""
    for part in ("limits", "requests"):
        amounts = child(container, "resources", part)
        for key, value in entries(amounts):
            if key.value != hami_names.PRIORITY or not isinstance(amounts, yaml.MappingNode):
                continue
            first = word(value).strip() == "0"
            after = f"{variables.TASK_PRIORITY}=0" if first else "nothing"
            said = any(word(child(one, "name")) == variables.TASK_PRIORITY for one in items(child(container, "env")))
            if draft.take_out(amounts, key, after, hami_names.FIRST if first else hami_names.NOT_FIRST) and first and not said:
                beside = next(name for name, _ in entries(container) if name.value == "resources")
                draft.put_first(container, "env", {"name": variables.TASK_PRIORITY, "value": "0"}, beside)


def _is_default(scheduler: yaml.ScalarNode) -> bool:
    """Return whether HAMi's webhook would write its own in this one's place (Handle of pkg/scheduler/webhook.go). The API server
    writes ``default-scheduler`` into every workload, so that it stands in all that was read from a cluster."""
    return scheduler.tag == NULL or scheduler.value in ("", names.KUBE_SCHEDULER)


def _shares(way: Way) -> set[str]:
    return set(hami_names.RESOURCES if way.to is To.HAMI else hami_names.RESOURCES.values())
