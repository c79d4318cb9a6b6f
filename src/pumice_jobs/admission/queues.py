"""Admission of queues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from pumice.wire.names import DEFAULT_QUEUE, QUEUE_NAME, ROOT_QUEUE
from pumice.wire.quantity import parse_quantity
from pumice.wire.topology import HYPER_NODE, NODE
from pumice.wire.volcano import CLOSED, HIERARCHY, HIERARCHY_WEIGHTS, OPEN, hierarchy_problem
from pumice_jobs.admission.jobs import state_of
from pumice_jobs.admission.review import DELETE, Answer, Json, Patch, Request, Settings, View, put
from pumice_jobs.controllers.job.validation import TWO_TIERS, both_tiers

Amounts = Mapping[str, Any]
SPEC = "requestBody.spec"


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    spec, notes = request.object.get("spec") or {}, request.object.get("metadata", {}).get("annotations") or {}
    patch = Patch()
    for key, first in ((HIERARCHY, ROOT_QUEUE), (HIERARCHY_WEIGHTS, "1")):
        if notes.get(key) and notes.get(HIERARCHY, "").split("/")[0] != ROOT_QUEUE:
            put(patch, f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}", f"{first}/{notes[key]}")
    if "spec" not in request.object:
        put(patch, "/spec", {})
    if spec.get("reclaimable") is None:
        put(patch, "/spec/reclaimable", True)
    if not spec.get("weight"):
        put(patch, "/spec/weight", 1)
    return Answer(patch=patch)


def validate(request: Request, view: View, settings: Settings) -> Answer:
    if request.operation == DELETE:
        return Answer(_deletion(request.name, request.old, view, settings))
    checks = (_place, _state, _amounts, _parent, _sums, _ancestors, _root)
    return Answer(next((text for check in checks if (text := check(request, view, settings))), ""))


def _deletion(name: str, queue: Json, view: View, settings: Settings) -> str:
    if name == DEFAULT_QUEUE:
        return f"`{DEFAULT_QUEUE}` queue can not be deleted"
    if name == ROOT_QUEUE:
        return f"`{ROOT_QUEUE}` queue can not be deleted"
    if settings.check_allocated and (pods := _pods(queue)):
        return f"queue {name} cannot be deleted because it has allocated Pods: {pods}"
    children = sorted(other["metadata"]["name"] for other in _children(name, view))
    if children:
        return f"queue {name} can not be deleted because it has {len(children)} child queues: {', '.join(children)}"
    return ""


def _place(request: Request, view: View, settings: Settings) -> str:
    """Of hierarchical drf: no queue lies on another one's way."""
    notes = request.object.get("metadata", {}).get("annotations") or {}
    path = notes.get(HIERARCHY)
    if problem := hierarchy_problem(notes):
        return f"requestBody.metadata.annotations: Invalid value: {problem}"
    if not path:
        return ""
    for other in view.queues():
        meta = other["metadata"]
        theirs = (meta.get("annotations") or {}).get(HIERARCHY)
        if theirs and meta["name"] != request.name and f"{theirs}/".startswith(f"{path}/"):
            return (
                f'requestBody.metadata.annotations: Invalid value: "{path}": {path} is not allowed to be in the sub path of '
                f"{theirs} of queue {meta['name']}"
            )
    return ""


def _state(request: Request, view: View, settings: Settings) -> str:
    state = (request.object.get("status") or {}).get("state") or OPEN
    if state in (OPEN, CLOSED) or state == (request.old.get("status") or {}).get("state"):
        return ""
    return f'requestBody.status.state: Invalid value: "{state}": queue state must be in [{OPEN} {CLOSED}]'


def _amounts(request: Request, view: View, settings: Settings) -> str:
    """Quantities, guarantee ≤ deserved, and deserved ≤ capability where that is said."""
    guarantee, deserved, capability = _three(request.object)
    named = (("guarantee.resource", guarantee), ("deserved", deserved), ("capability", capability))
    for path, amounts in named:
        for name, amount in amounts.items():
            try:
                value = parse_quantity(amount)
            except ValueError as error:
                return f'{SPEC}.{path}.{name}: Invalid value: "{amount}": {error}'
            if value < 0:
                return f'{SPEC}.{path}.{name}: Invalid value: "{amount}": must be greater than or equal to 0'
    for name, least in guarantee.items():
        if name not in deserved:
            return f'{SPEC}.deserved.{name}: Invalid value: "<nil>": deserved[{name}] must be >= guarantee[{name}]={least}'
        if parse_quantity(deserved[name]) < parse_quantity(least):
            text = f"deserved[{name}]={deserved[name]} must be >= guarantee[{name}]={least}"
            return f'{SPEC}.deserved.{name}: Invalid value: "{deserved[name]}": {text}'
    for name, most in capability.items():
        if name in deserved and parse_quantity(deserved[name]) > parse_quantity(most):
            text = f"deserved[{name}]={deserved[name]} must be <= capability[{name}]={most}"
            return f'{SPEC}.deserved.{name}: Invalid value: "{deserved[name]}": {text}'
    return ""


def _parent(request: Request, view: View, settings: Settings) -> str:
    name, parent = request.name, _parent_of(request.object)
    if not parent or name == ROOT_QUEUE:
        return ""
    if parent == name:
        return f"queue {name} cannot use itself as parent"
    found = view.queue(parent)
    if found is None:
        if parent == ROOT_QUEUE:
            return ""
        return f'failed to get parent queue of queue {name}: queue.scheduling.volcano.sh "{parent}" not found'
    if settings.check_allocated and not _children(parent, view) and (pods := _pods(found)):
        return f"queue {parent} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
    above = list(_above(request.object, view))
    if name in above:
        return f"queue {name} cannot use itself as parent ({' -> '.join([name, *above[: above.index(name) + 1]])})"
    depth = sum(1 for ancestor in above if ancestor != ROOT_QUEUE) + _height(name, view, len(above))
    if depth > settings.deepest:
        return f"queue {name} exceeds the maximum allowed depth of {settings.deepest}"
    return ""


def _sums(request: Request, view: View, settings: Settings) -> str:
    """Refuse to promise children more than their parent is promised: both of this queue's parent and of itself as one."""
    parent = _parent_of(request.object)
    found = view.queue(parent) if parent else None
    mine = {request.name: request.object}
    pairs = [(parent, found)] if found is not None and parent != ROOT_QUEUE else []
    for name, above in [*pairs, (request.name, request.object)]:
        children = {other["metadata"]["name"]: other for other in _children(name, view)}
        if name == parent:
            children |= mine
        if name == ROOT_QUEUE or not children:
            continue
        for word, index in (("guarantee", 0), ("deserved", 1)):
            limit = _three(above)[index]
            for resource in limit:
                total = sum((_amount(_three(child)[index].get(resource, 0)) for child in children.values()), Fraction(0))
                if total > _amount(limit[resource]):
                    return (
                        f"parent queue {name} validation failed: sum of children's {word} ({resource}: {_plain(total)}) exceeds "
                        f"parent's {word} limit ({resource}: {limit[resource]})"
                    )
    return ""


def _ancestors(request: Request, view: View, settings: Settings) -> str:
    _, _, capability = _three(request.object)
    for name in _above(request.object, view):
        limit = _three(view.queue(name) or {})[2]
        for resource, amount in capability.items():
            if name != ROOT_QUEUE and resource in limit and _amount(amount) > _amount(limit[resource]):
                return (
                    f"queue {request.name} capability[{resource}]={amount} exceeds its ancestor's capability={limit[resource]}"
                )
    return ""


def _root(request: Request, view: View, settings: Settings) -> str:
    if request.name != ROOT_QUEUE or not settings.protect_root or not request.old:
        return ""
    if [*map(dict, _three(request.object))] != [*map(dict, _three(request.old))]:
        return "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
    return ""


def _three(queue: Mapping[str, Any]) -> tuple[Amounts, Amounts, Amounts]:
    """Guarantee, deserved and capability."""
    spec = queue.get("spec") or {}
    return (spec.get("guarantee") or {}).get("resource") or {}, spec.get("deserved") or {}, spec.get("capability") or {}


def _parent_of(queue: Mapping[str, Any]) -> str:
    return str((queue.get("spec") or {}).get("parent") or "")


def _above(queue: Mapping[str, Any], view: View) -> Iterator[str]:
    """The names of a queue's ancestors, the nearest first; a ring ends where it closes."""
    seen = set[str]()
    name = _parent_of(queue)
    while name and name not in seen:
        seen.add(name)
        yield name
        name = _parent_of(view.queue(name) or {})


def _height(name: str, view: View, already: int) -> int:
    """Return the number of levels below a queue, itself included; a ring is cut."""
    if already > 64:
        return 0
    return 1 + max((_height(other["metadata"]["name"], view, already + 1) for other in _children(name, view)), default=0)


def _children(name: str, view: View) -> list[Mapping[str, Any]]:
    return [other for other in view.queues() if _parent_of(other) == name and other["metadata"]["name"] != name]


def _pods(queue: Mapping[str, Any]) -> int:
    return int(_amount(((queue.get("status") or {}).get("allocated") or {}).get("pods", 0)))


def _amount(value: Any) -> Fraction:
    """Return the amount; one that cannot be read counts as nothing: others wrote it, and their own admission said so."""
    try:
        return Fraction(parse_quantity(value))
    except ValueError:
        return Fraction(0)


def _plain(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):g}"


# -- Admission of PodGroups ------------------------------------------------------------------------------------------


def mutate_group(request: Request, view: View, settings: Settings) -> Answer:
    """A group that names no queue goes to that of its namespace."""
    if (request.object.get("spec") or {}).get("queue", DEFAULT_QUEUE) != DEFAULT_QUEUE:
        return Answer()
    namespace = view.namespace(request.namespace) or {}
    queue = (namespace.get("metadata", {}).get("annotations") or {}).get(QUEUE_NAME)
    patch = Patch()
    if queue:
        put(patch, "/spec/queue", queue)
    return Answer(patch=patch)


def validate_group(request: Request, view: View, settings: Settings) -> Answer:
    spec = request.object.get("spec") or {}
    name = spec.get("queue") or DEFAULT_QUEUE
    queue = view.queue(name)
    if queue is None:
        return Answer(f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found')
    if (state := state_of(queue)) != OPEN:
        return Answer(f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`.")
    topologies = [spec.get("networkTopology"), *(policy.get("networkTopology") for policy in spec.get("subGroupPolicy") or ())]
    return Answer(f"{TWO_TIERS}." if any(both_tiers(topology) for topology in topologies) else "")


# -- HyperNodes: members that can be meant. What overlaps is told on the objects, by who reads them all --------------

SELECTORS = ("exactMatch", "regexMatch", "labelMatch")


def validate_hypernode(request: Request, view: View, settings: Settings) -> Answer:
    members = (request.object.get("spec") or {}).get("members") or ()
    if not members:
        return Answer("spec.members: Invalid value: []: member must have at least one member")
    found = [text for number, member in enumerate(members) for text in _member(member, f"spec.members[{number}]", request.name)]
    return Answer("; ".join(found))


def _member(member: Mapping[str, Any], path: str, own: str) -> Iterator[str]:
    kind, selector = member.get("type"), member.get("selector") or {}
    if kind not in (NODE, HYPER_NODE):
        yield f'{path}.type: Unsupported value: "{kind}": supported values: "{NODE}", "{HYPER_NODE}"'
    given = [key for key in SELECTORS if selector.get(key) is not None]
    if len(given) != 1:
        yield f"{path}.selector: Invalid value: exactly one of {', '.join(SELECTORS)} must be specified"
        return
    if given == ["labelMatch"] and kind == HYPER_NODE:
        yield f"{path}.selector.labelMatch: Invalid value: only nodes are chosen by labels"
    if given == ["exactMatch"]:
        name = selector["exactMatch"].get("name")
        if not name:
            yield f"{path}.selector.exactMatch.name: Required value"
        elif kind == HYPER_NODE and name == own:
            yield f'{path}.selector.exactMatch.name: Invalid value: "{name}": a HyperNode is no member of itself'
    if given == ["regexMatch"]:
        pattern = selector["regexMatch"].get("pattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            yield f'{path}.selector.regexMatch.pattern: Invalid value: "{pattern}": {error}'
