"""Shares that pods ask by resource, written as claims: a ResourceClaimTemplate for each container, named in its pod.

A container is written as claims as a whole or not at all: what a claim cannot say stays, and is named with what comes of that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import yaml

from pumice.devices.convert.edits import Change, Draft, child, entries, items, mappings, merged, word
from pumice.model.amount import MIB
from pumice.wire import elsewhere, names
from pumice.wire.kubernetes import DEVICES
from pumice.wire.programs import HAMI_SCHEDULER

CLASS: Final = names.CLAIM_DRIVER
"""The DeviceClass of shared cards."""
_OURS: Final = {**{name: name for name in elsewhere.RESOURCES.values()}, **elsewhere.RESOURCES}
"""Resources of both sides by ours."""
_USE: Final = (elsewhere.USE_UUID, names.USE_GPU_UUID)
_NOUSE: Final = (elsewhere.NOUSE_UUID, names.NOUSE_GPU_UUID)
_TYPES: Final = (names.USE_GPU_TYPE, names.NOUSE_GPU_TYPE)
_MODE: Final = (names.VGPU_MODE, f"{names.NVIDIA_DOMAIN}/vgpu-mode")
_ALL_CORES: Final = "without an amount of cores a claim takes all of them, and no other share fits beside it; write one"


def convert_to_claims(draft: Draft, root: yaml.Node, taken: set[str], *, sure: bool) -> None:
    """``sure``: ``nvidia.com/gpu`` alone is HAMi's. ``taken``: names of templates of this file."""
    made: list[str] = []
    for holder, spec, name in _pods(root):
        refused = _refused(draft, holder)
        found: list[tuple[str, str]] = []
        for container in (one for part in ("initContainers", "containers") for one in items(child(spec, part))):
            asked = _asked(container, sure=sure)
            if not asked:
                if any(key.value == names.WHOLE_GPU for key, _ in entries(child(container, "resources", "limits"))):
                    draft.keep(container, names.WHOLE_GPU, "it may be NVIDIA's own plugin's, a whole card; "
                               "--from hami says that it is HAMi's")  # fmt: skip
                continue
            if refused or (refused := _unwritable(draft, container, spec)):
                draft.keep(container, ", ".join(asked), refused)
                continue
            template = _unused(f"{name}-{word(child(container, 'name')) or 'c'}", taken)
            if (capacity := _capacity(draft, container, asked)) is None:
                continue
            text = _template(template, word(child(root, "metadata", "namespace")), asked, capacity, _selectors(holder))
            if _rewritten(draft, container, asked, template):
                found.append((template, template))
                made.append(text)
        if found and isinstance(spec, yaml.MappingNode):
            listed = [{"name": one, "resourceClaimTemplateName": template} for one, template in found]
            before = next(key for key, _ in entries(spec) if key.value in ("containers", "initContainers"))
            draft.put_all(spec, "resourceClaims", listed, before)
            named = child(spec, "schedulerName")
            if isinstance(named, yaml.ScalarNode) and named.value == HAMI_SCHEDULER:
                draft.rename(named, names.SCHEDULER_NAME, "HAMi's scheduler knows no claims of this class")
    for mapping in mappings(root) if word(child(root, "kind")) == "ResourceQuota" else ():
        for key, _ in entries(mapping):
            if key.value.removeprefix("requests.") in _OURS:
                draft.keep(key, key.value, f"claims are counted by {CLASS}.deviceclass.resource.k8s.io/devices, by devices alone")
    draft.append(made)


def _pods(root: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node, str]]:
    """Yield the metadata, the spec and a name of each pod and each template of pods in an object."""
    kind, base = word(child(root, "kind")), word(child(root, "metadata", "name")) or word(child(root, "metadata", "generateName"))
    for mapping in mappings(root):
        spec = child(mapping, "spec")
        if items(child(spec, "containers")) and spec is not None:
            task = next((word(child(one, "name")) for one in items(child(root, "spec", "tasks"))
                         if child(one, "template") is mapping), "")  # fmt: skip
            yield mapping, spec, "-".join(part for part in (base.rstrip("-") or kind.lower() or "pod", task) if part)


def _asked(container: yaml.Node, *, sure: bool) -> dict[str, str]:
    """The amounts of a container by our names, where it asks for shares."""
    limits = child(container, "resources", "limits")
    said = {key.value: word(value) for key, value in (*merged(limits), *entries(limits)) if key.value in _OURS}
    if set(said) == {names.WHOLE_GPU} and not sure:
        return {}
    return {_OURS[name]: value for name, value in said.items()}


def _refused(draft: Draft, holder: yaml.Node) -> str:
    """Why no container of this pod is written as claims."""
    notes = {key.value: word(value) for key, value in entries(child(holder, "metadata", "annotations"))}
    if any(notes.get(name, "") not in ("", "hami-core") for name in _MODE):
        return "only shares of cards are written as claims, no slices of mode mig"
    return "a JSON file takes no second document; write it as YAML" if draft.text.lstrip().startswith(("{", "[")) else ""


def _unwritable(draft: Draft, container: yaml.Node, spec: yaml.Node) -> str:
    named = {key.value: value for part in ("limits", "requests") for key, value in entries(child(container, "resources", part))}
    for name, value in named.items():
        if _OURS.get(name) == names.VGPU_MEMORY_PERCENTAGE:
            return "a claim asks memory in bytes, not in per cent of a card; write an amount"
        if name in _OURS and not re.fullmatch(r"[0-9]+", word(value)):
            return f"{name} is no whole number"
    resources = child(container, "resources")
    if not isinstance(resources, yaml.MappingNode) or merged(resources) or merged(child(resources, "limits")):
        return "its resources come from elsewhere by <<; write them out"
    return ""


def _capacity(draft: Draft, container: yaml.Node, asked: Mapping[str, str]) -> dict[str, str] | None:
    memory, cores = asked.get(names.VGPU_MEMORY, "0"), asked.get(names.VGPU_CORES, "0")
    found = {"memory": f"{int(memory)}Mi"} if int(memory) else {}
    if 0 < int(cores) <= 100:
        found["cores"] = str(int(cores))
    elif int(cores) > 100:
        draft.keep(container, names.VGPU_CORES, "a card has 100 per cent")
        return None
    else:
        draft.keep(container, f"container {word(child(container, 'name'))}", _ALL_CORES)
    return found


def _selectors(holder: yaml.Node) -> list[str]:
    """The cards that annotations name, as expressions."""
    notes = {key.value: word(value) for key, value in entries(child(holder, "metadata", "annotations"))}
    device = f'device.attributes["{CLASS}"]'
    found = []
    for number, pair in enumerate((_USE, _NOUSE)):
        if uuids := [one.strip() for name in pair for one in notes.get(name, "").split(",") if one.strip()]:
            found.append(f"{'!' if number else ''}({device}.uuid in {json.dumps(uuids)})")
    for number, name in enumerate(_TYPES):
        if types := [one.strip().lower() for one in notes.get(name, "").split(",") if one.strip()]:
            found.append(f"{'!' if number else ''}{json.dumps(types)}.exists(t, {device}.productName.lowerAscii().contains(t))")
    return found


def _unused(name: str, taken: set[str]) -> str:
    """A name of at most 63 characters that no other template of this file has."""
    base = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:55].rstrip("-") or "share"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}-{number}"
    taken.add(found)
    return found


def _template(name: str, namespace: str, asked: Mapping[str, str], capacity: Mapping[str, str], selectors: list[str]) -> str:
    exactly: dict[str, object] = {"deviceClassName": CLASS}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": one}} for one in selectors]
    if (count := int(asked.get(names.VGPU_NUMBER, "1"))) > 1:
        exactly["count"] = count
    if capacity:
        exactly["capacity"] = {"requests": dict(capacity)}
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    whole = {"apiVersion": f"{DEVICES}/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}
    return str(yaml.safe_dump(whole, sort_keys=False, width=200))


def _rewritten(draft: Draft, container: yaml.Node, asked: Mapping[str, str], claim: str) -> bool:
    resources = child(container, "resources")
    assert isinstance(resources, yaml.MappingNode)
    before = next(key for key, _ in entries(resources))
    said = f"{int(asked.get(names.VGPU_NUMBER, '1'))} of class {CLASS}" + "".join(
        f", {key} {amount}" for key, amount in (
            ("memory", f"{int(asked.get(names.VGPU_MEMORY, '0')) * MIB >> 20}Mi"), ("cores", asked.get(names.VGPU_CORES, "")))
        if amount not in ("", "0Mi", "0"))  # fmt: skip
    draft.put_all(resources, "claims", [{"name": claim}], before)
    for part in ("limits", "requests"):
        amounts = child(resources, part)
        if isinstance(amounts, yaml.MappingNode):
            draft.drop(resources, part, {key.value for key, _ in entries(amounts) if key.value in _OURS})
    draft.changes.append(Change(draft.file, draft.line(before), ", ".join(asked), f"claim {claim}", said))
    return True
