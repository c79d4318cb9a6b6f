"""The smallest changes that would let a pod in, found by asking the filter itself.

Nothing here knows why a node refuses: a change counts only when ``WhatIf``, which asks the same ``fit`` as the scheduler,
says that the changed pod fits, and that the next smaller change does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import msgspec

from pumice.devices.node_rules import by_nodes_rules
from pumice.devices.offers import Change, Occupant, WhatIf
from pumice.devices.protocol import DeviceSharing, Tunables
from pumice.model.amount import INT32_MAX
from pumice.wire.objects import Container, Pod, Quantities
from pumice.wire.quantity import meant_mib, parse_quantity


def changes(
    pod: Pod, device_types: Sequence[DeviceSharing], what_if: WhatIf, meant: Mapping[str, str] | None = None
) -> tuple[Change, ...]:
    """Every kind of change that would let the pod in, one of each kind; empty when it fits as it is. ``meant``: resources that
    no node offers, and those that may have been meant."""
    if what_if.fits(pod):
        return ()
    found: list[Change] = [*_other_names(pod, meant or {}, what_if)]
    for device_type in device_types:
        tunables = device_type.tunables
        found += _other_unit(pod, tunables, what_if)
        found += _less_memory(pod, tunables, what_if)
        found += _less(pod, "cores", tunables.cores, "cores %s %%", what_if)
        found += _less(pod, "cards", tunables.count, "cards %s", what_if)
    for device_type in device_types:
        found += _other_mode(pod, device_type.tunables, what_if)
        found += _dropped(pod, device_type.tunables, what_if)
    elsewhere = {name for device_type in device_types for name in device_type.tunables.resources} | (meant or {}).keys()
    found += by_nodes_rules(pod, elsewhere, what_if)
    found += left(pod, what_if)
    return tuple(found or _combined(pod, device_types, what_if))


# -- another name -------------------------------------------------------------------------------------------------


def _other_names(pod: Pod, meant: Mapping[str, str], what_if: WhatIf) -> Iterator[Change]:
    """All names that nobody offers, as they were probably meant."""
    changed = renamed(pod, meant)
    node = what_if.fits(changed) if meant else ""
    if node:
        words = ", ".join(f"{right} instead of {wrong}" for wrong, right in sorted(meant.items()))
        smaller = [renamed(pod, {k: v for k, v in meant.items() if k != wrong}) for wrong in meant]
        yield Change("name", f"write {words}", node, changed, smaller=tuple(smaller))


# -- another unit -------------------------------------------------------------------------------------------------


def _other_unit(pod: Pod, tunables: Tunables, what_if: WhatIf) -> Iterator[Change]:
    """Memory beyond every card that would fit if it had been meant in bytes: the beginner's mistake."""
    for at, container in enumerate(pod.spec.containers):
        written = container.resources.limits.get(tunables.memory) if tunables.memory else None
        mib, unit = meant_mib(written) if written is not None else (0, "")
        requested = amount_of(container, tunables.memory) or 0
        if not mib or 0 < requested <= what_if.largest():
            continue
        meant = with_amount(pod, tunables.memory, mib, [at])
        node = what_if.fits(meant)
        if node:
            meaning = f", if {written} was meant in {unit}; the unit is MiB" if unit else "; the unit is MiB and is not written"
            yield Change("unit", f"write {tunables.memory}: {mib}{meaning}", node, meant, requested or mib, mib)


# -- less of something --------------------------------------------------------------------------------------------


def _less_memory(pod: Pod, tunables: Tunables, what_if: WhatIf) -> Iterator[Change]:
    word = f"memory %s {tunables.memory_unit}"
    yield from _less(pod, "memory", tunables.memory, word, what_if)
    if tunables.percent:
        yield from _less(pod, "memory", tunables.percent, "%s per cent of the memory", what_if, all_of_it=100)
    whole = _whole_cards(pod, tunables)
    if whole and tunables.memory:
        change = _search(pod, "memory", tunables.memory, word, whole, what_if.largest() + 1, what_if)
        if change is not None:
            text = f"ask for {word % change.best} instead of a whole card ({tunables.memory}: {change.best})"
            yield replace(change, text=text)


def _less(pod: Pod, kind: str, name: str, word: str, what_if: WhatIf, *, all_of_it: int = INT32_MAX) -> Iterator[Change]:
    """For each amount that some containers ask for: the largest smaller one that fits. ``all_of_it`` is the most that is ever
    worth writing: 101 per cent are read as all of the memory."""
    if not name:
        return
    for value, containers in sorted(_requested(pod, name).items(), reverse=True):
        change = _search(pod, kind, name, word, containers, value, what_if)
        if change is not None:
            if change.best > all_of_it:
                fits = with_amount(pod, name, all_of_it, containers)
                change = replace(change, text=_asking(name, word, all_of_it, value), pod=fits, best=all_of_it)
            yield change
            return


def _search(pod: Pod, kind: str, name: str, word: str, containers: Sequence[int], wanted: int,
            what_if: WhatIf) -> Change | None:  # fmt: skip
    """Bisect between 1 and ``wanted``, which does not fit: the answer fits and the next value does not, by construction."""
    node = what_if.fits(with_amount(pod, name, 1, containers))
    if not node:
        return None
    low, found = _most(pod, name, containers, min(wanted, INT32_MAX), what_if)
    better, smaller = with_amount(pod, name, low, containers), with_amount(pod, name, low + 1, containers)
    if what_if.fits(smaller):
        return None  # only where the wanted amount was beyond any range
    return Change(kind, _asking(name, word, low, wanted), found or node, better, wanted, low, (smaller,))


def _requested(pod: Pod, name: str) -> dict[int, list[int]]:
    """The amounts above 1 that containers ask for, with these."""
    found: dict[int, list[int]] = {}
    for at, container in enumerate(pod.spec.containers):
        if (value := amount_of(container, name) or 0) > 1:
            found.setdefault(value, []).append(at)
    return found


def _asking(name: str, word: str, best: int, wanted: int) -> str:
    return f"ask for {word % best} instead of {wanted} ({name}: {best})"


def _whole_cards(pod: Pod, tunables: Tunables) -> list[int]:
    """The containers that ask for cards without saying how much of them."""
    return [
        at
        for at, container in enumerate(pod.spec.containers)
        if amount_of(container, tunables.count) and not container.resources.limits.get(tunables.memory)
        and amount_of(container, tunables.percent) is None
    ]  # fmt: skip


# -- several at once ----------------------------------------------------------------------------------------------


def _combined(pod: Pod, device_types: Sequence[DeviceSharing], what_if: WhatIf) -> Iterator[Change]:
    """Combine changes where no single one is enough: give up everything, then take back as much as fits, the dearest first.

    The order says what people give up last: what they wrote as constraints, then cards, cores, and memory first of all.
    """
    notes = pod.metadata.annotations
    forbidding = [
        key
        for device_type in device_types
        for key in (device_type.tunables.mode, *device_type.tunables.forbids)
        if key in notes
    ]
    amounts = [amount for device_type in device_types for amount in _amounts(pod, device_type.tunables, what_if)]
    current = annotated(pod, {key: value for key, value in notes.items() if key not in forbidding})
    for name, containers, _ in amounts:
        current = with_amount(current, name, 1, containers)
    node = what_if.fits(current)
    if not node:
        return
    parts: list[str] = []
    edges: list[tuple[str, str | int, Sequence[int]]] = []
    for key in forbidding:
        kept = annotated(current, {**current.metadata.annotations, key: notes[key]})
        if what_if.fits(kept):
            current = kept
        else:
            parts.append(f"drop the annotation {key}: {notes[key]}")
            edges.append((key, notes[key], ()))
    for name, containers, wanted in amounts:
        whole = with_amount(current, name, wanted, containers)
        if what_if.fits(whole):
            current = whole
            continue
        low, _ = _most(current, name, containers, wanted, what_if)
        current = with_amount(current, name, low, containers)
        whole_cards = not any(name in pod.spec.containers[at].resources.limits for at in containers)
        parts.append(f"{name}: {low} instead of {'a whole card' if whole_cards else wanted}")
        edges.append((name, low + 1, containers))
    node = what_if.fits(current)
    smaller = tuple(
        with_amount(current, key, value, containers)
        if isinstance(value, int)
        else annotated(current, {**current.metadata.annotations, key: value})
        for key, value, containers in edges
    )
    if node and parts and not any(what_if.fits(other) for other in smaller):
        yield Change("combined", "together: " + "; ".join(parts), node, current, smaller=smaller)


def _amounts(pod: Pod, tunables: Tunables, what_if: WhatIf) -> Iterator[tuple[str, Sequence[int], int]]:
    """(resource, containers, what they ask for), the dearest first."""
    for name in filter(None, (tunables.count, tunables.cores, tunables.percent, tunables.memory)):
        for value, containers in sorted(_requested(pod, name).items()):
            yield name, containers, min(value, INT32_MAX)
    whole = _whole_cards(pod, tunables)
    if whole and tunables.memory:
        yield tunables.memory, whole, what_if.largest() + 1


def _most(pod: Pod, name: str, containers: Sequence[int], wanted: int, what_if: WhatIf) -> tuple[int, str]:
    """The largest amount below ``wanted`` that fits, by bisection, and where; 1 is known to fit, and ``wanted`` not to."""
    low, high, node = 1, wanted, ""
    while high - low > 1:
        middle = (low + high) // 2
        if found := what_if.fits(with_amount(pod, name, middle, containers)):
            low, node = middle, found
        else:
            high = middle
    return low, node


# -- another mode, a constraint less ------------------------------------------------------------------------------


def _other_mode(pod: Pod, tunables: Tunables, what_if: WhatIf) -> Iterator[Change]:
    key = tunables.mode
    mode = pod.metadata.annotations.get(key)
    for other in sorted(tunables.modes, key=lambda known: known != mode.lower()) if mode is not None else ():
        changed = annotated(pod, {**pod.metadata.annotations, key: other})
        node = what_if.fits(changed) if other != mode else ""
        if node:
            text = f"ask for mode {other} instead of {mode!r} (annotation {key}: {other})"
            yield Change("mode", text, node, changed, smaller=(pod,))
            return


def _dropped(pod: Pod, tunables: Tunables, what_if: WhatIf) -> Iterator[Change]:
    for key in tunables.forbids:
        if key in pod.metadata.annotations:
            changed = annotated(pod, {k: v for k, v in pod.metadata.annotations.items() if k != key})
            node = what_if.fits(changed)
            if node:
                text = f"drop the annotation {key}: {pod.metadata.annotations[key]}"
                yield Change("constraint", text, node, changed, smaller=(pod,))


def amount_of(container: Container, name: str) -> int | None:
    """The container's limit as a whole number; None where there is none, or no number."""
    text = container.resources.limits.get(name) if name else None
    try:
        return None if text is None else int(parse_quantity(text))
    except ValueError:
        return None


def with_amount(pod: Pod, name: str, value: int, containers: Sequence[int]) -> Pod:
    """The pod with another limit (and request) in some containers."""
    changed = list(pod.spec.containers)
    for at in containers:
        resources = changed[at].resources
        limits = {**resources.limits, name: value}
        requests = {**resources.requests, name: value} if name in resources.requests else resources.requests
        changed[at] = msgspec.structs.replace(
            changed[at], resources=msgspec.structs.replace(resources, limits=limits, requests=requests)
        )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=changed))


def renamed(pod: Pod, names: Mapping[str, str]) -> Pod:
    """The pod with resources under other names, wherever it has no amount under those yet."""

    def changed(container: Container) -> Container:
        found = container.resources
        limits, requests = _renamed(found.limits, names), _renamed(found.requests, names)
        return msgspec.structs.replace(container, resources=msgspec.structs.replace(found, limits=limits, requests=requests))

    containers = [changed(container) for container in pod.spec.containers]
    early = [changed(container) for container in pod.spec.init_containers]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers, init_containers=early))


def _renamed(amounts: Quantities, names: Mapping[str, str]) -> Quantities:
    return {names.get(name, name) if names.get(name) not in amounts else name: amount for name, amount in amounts.items()}


def annotated(pod: Pod, notes: dict[str, str]) -> Pod:
    """The pod with these annotations and no others."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))


# -- The fewest pods whose leaving lets another one in ----------------------------------------------------------------


NODES_SEARCHED = 64
"""Nodes looked at for pods whose leaving would help; the most promising ones first."""
QUESTIONS = 2000
"""Sets of pods that are asked about in all. Beyond that each pod of an offer is needed, and another offer may have fewer."""
ANYWHERE = ""
"""Those who are in the way by the labels of a whole zone may run on several nodes."""


def left(pod: Pod, what_if: WhatIf) -> Iterator[Change]:
    """The fewest pods of one node whose leaving lets the pod in, the least important of those; where there are none, of all nodes
    together. Each of them is needed."""
    search = _Search(pod, what_if)
    best: tuple[tuple[int, int, int], str, tuple[Occupant, ...]] | None = None
    crowded = what_if.crowded(pod)[:NODES_SEARCHED]
    for node in crowded:
        gone = search.fewest(node, len(best[2]) if best else None)
        if gone:
            rank = (len(gone), max(h.priority for h in gone), sum(h.size for h in gone))
            if best is None or rank < best[0]:
                best = rank, node, gone
    gone = best[2] if best is not None else search.fewest(ANYWHERE, None) if crowded or _attracted(pod) else ()
    if gone:
        noun = "this pod" if len(gone) == 1 else f"these {len(gone)} pods"
        who = ", ".join(h.name if best is not None else f"{h.name} on {h.node}" for h in gone)
        where = f" {best[1]}" if best is not None else ""
        yield Change("evict", f"let {noun} leave{where}: {who}", search.takes(gone), pod, evict=tuple(h.uid for h in gone))


@dataclass(slots=True)
class _Search:
    pod: Pod
    what_if: WhatIf
    requested: int = 0

    def fewest(self, node: str, at_most: int | None) -> tuple[Occupant, ...]:
        """The smallest set on that node; none where nobody's leaving helps or more than ``at_most`` would have to go.

        Where no single pod is enough: all of them less those that may stay, the dearest asked first, is an answer of which each
        pod is needed. Smaller sets are then tried in the order of their size, the least important pods first. Only a pod that has
        to be near others may be helped by one that leaves and not by all."""
        occupants = sorted(self.what_if.occupants(node), key=lambda h: (h.priority, h.size, h.name))
        helps = self.takes(occupants)
        if not helps and not _attracted(self.pod):
            return ()
        for holder in occupants if len(occupants) <= QUESTIONS - self.requested else ():
            if self.takes((holder,)):
                return (holder,)
        if at_most == 1:
            return ()
        gone = self._needed(occupants) if helps else ()
        most = len(gone) if gone else len(occupants) + 1
        most = most if at_most is None else min(most, at_most)
        for size in range(2, min(most, len(gone) - 1 if gone else len(occupants) - 1) + 1):
            for some in combinations(occupants, size):
                if self.requested >= QUESTIONS:
                    break
                if self.takes(some):
                    return some
        return gone if len(gone) <= most else ()

    def _needed(self, occupants: Sequence[Occupant]) -> tuple[Occupant, ...]:
        """Those of them that must go, halves of them asked for at first: with thousands of pods most are not in the way."""
        gone = list(occupants)
        size = len(gone)
        while size:
            for end in range(len(gone), 0, -size):
                fewer = gone[: max(0, end - size)] + gone[end:]
                if self.takes(fewer):
                    gone = fewer
            size //= 2
        return tuple(gone)

    def takes(self, gone: Sequence[Occupant]) -> str:
        """The node that takes the pod without them; empty where none does."""
        self.requested += 1
        return self.what_if.fits_without(self.pod, tuple(h.uid for h in gone))


def _attracted(pod: Pod) -> bool:
    near = (pod.spec.affinity or {}).get("podAffinity") or {}
    return bool(near.get("requiredDuringSchedulingIgnoredDuringExecution"))
