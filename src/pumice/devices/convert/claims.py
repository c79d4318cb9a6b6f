"""Shares that pods ask by resource, written as claims: a ResourceClaimTemplate for each container, named in its pod.

A container is written as claims as a whole or not at all: what a claim cannot say stays, and is named with what comes of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from pumice.devices.convert.edits import Change, Draft, child, entries, items, mappings, merged, word
from pumice.wire import names
from pumice.wire.programs import HAMI_SCHEDULER
from pumice.wire.share_claims import (
    ALL_CORES,
    CLASS,
    PERHAPS_NVIDIAS,
    RESOURCES,
    Share,
    amounts,
    said,
    share_of,
    template,
    unwritable,
)


def convert_to_claims(draft: Draft, root: yaml.Node, taken: set[str], *, sure: bool) -> None:
    """``sure``: ``nvidia.com/gpu`` alone is HAMi's. ``taken``: names of templates of this file."""
    made: list[str] = []
    for holder, spec, name in _pods(root):
        notes = {key.value: word(value) for key, value in entries(child(holder, "metadata", "annotations"))}
        refused = "a JSON file takes no second document; write it as YAML" if draft.text.lstrip().startswith(("{", "[")) else ""
        found: list[str] = []
        for container in (one for part in ("initContainers", "containers") for one in items(child(spec, part))):
            limits = child(container, "resources", "limits")
            asked = amounts({key.value: word(value) for key, value in (*merged(limits), *entries(limits))}, sure=sure)
            if not asked:
                if any(key.value == names.WHOLE_GPU for key, _ in entries(limits)):
                    draft.keep(container, names.WHOLE_GPU, f"{PERHAPS_NVIDIAS}; --from hami says that it is HAMi's")
                continue
            if refused or (refused := _unwritable(container, notes)):
                draft.keep(container, ", ".join(asked), refused)
                continue
            share = share_of(asked, notes)
            if not share.cores:
                draft.keep(container, f"container {word(child(container, 'name'))}", ALL_CORES)
            claim = _unused(f"{name}-{word(child(container, 'name')) or 'c'}", taken)
            _rewrite(draft, container, asked, claim, share)
            found.append(claim)
            made.append(str(yaml.safe_dump(template(claim, word(child(root, "metadata", "namespace")), share), sort_keys=False,
                                           width=200)))  # fmt: skip
        if found and isinstance(spec, yaml.MappingNode):
            listed = [{"name": one, "resourceClaimTemplateName": one} for one in found]
            before = next(key for key, _ in entries(spec) if key.value in ("containers", "initContainers"))
            draft.put_all(spec, "resourceClaims", listed, before)
            named = child(spec, "schedulerName")
            if isinstance(named, yaml.ScalarNode) and named.value == HAMI_SCHEDULER:
                draft.rename(named, names.SCHEDULER_NAME, "HAMi's scheduler knows no claims of this class")
    for mapping in mappings(root) if word(child(root, "kind")) == "ResourceQuota" else ():
        for key, _ in entries(mapping):
            if key.value.removeprefix("requests.") in RESOURCES:
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


def _unwritable(container: yaml.Node, notes: dict[str, str]) -> str:
    """Return why a container stays as it is."""
    named = {key.value: word(value) for part in ("limits", "requests")
             for key, value in entries(child(container, "resources", part))}  # fmt: skip
    if why := unwritable(named, notes):
        return why
    resources = child(container, "resources")
    if not isinstance(resources, yaml.MappingNode) or merged(resources) or merged(child(resources, "limits")):
        return "its resources come from elsewhere by <<; write them out"
    return ""


def _unused(name: str, taken: set[str]) -> str:
    """A name of at most 63 characters that no other template of this file has."""
    base = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:55].rstrip("-") or "share"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}-{number}"
    taken.add(found)
    return found


def _rewrite(draft: Draft, container: yaml.Node, asked: dict[str, Any], claim: str, share: Share) -> None:
    resources = child(container, "resources")
    assert isinstance(resources, yaml.MappingNode)
    before = next(key for key, _ in entries(resources))
    draft.put_all(resources, "claims", [{"name": claim}], before)
    for part in ("limits", "requests"):
        listed = child(resources, part)
        if isinstance(listed, yaml.MappingNode):
            draft.drop(resources, part, {key.value for key, _ in entries(listed) if key.value in RESOURCES})
    draft.changes.append(Change(draft.file, draft.line(before), ", ".join(asked), f"claim {claim}", said(share)))
