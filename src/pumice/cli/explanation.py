"""An explanation for people, and as JSON.

Room that would be made for a pod, for people and as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape

from pumice.cli.output import document
from pumice.devices.offers import Change
from pumice.devices.protocol import DeviceSharing
from pumice.model.cards import Allocation
from pumice.model.errors import BadInput
from pumice.model.refusal import FitError
from pumice.scheduler.explaining.explain import OVERTAKEN, Explanation, as_json
from pumice.scheduler.explaining.what_if import QUEUE_FULL, Neighbour, PreemptionView
from pumice.wire.nvidia_vgpu import device_of

GROUPS_SHOWN = 20
"""Groups of nodes that refuse alike."""
NODES_NAMED = 3
CARDS_SHOWN = 3
LABEL_WIDTH = 40


Units = Mapping[str, tuple[str, str]]


def show(found: Explanation, output: str, units: Units = MappingProxyType({})) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(document(as_json(found)))
    elif output in ("text", "wide"):
        Console(highlight=False, soft_wrap=True).print(*rendered(found, units, wide=output == "wide"), sep="\n")
    else:
        raise BadInput(f"-o {output!r}: use text, wide or json")


def rendered(found: Explanation, units: Units, *, wide: bool) -> list[Any]:
    """The parts of the text: the sentence, the cards it would get, each node's reason, what would help."""
    parts: list[Any] = [f"[bold]{escape(found.pod)}[/bold]: {escape(found.summary)}"]
    parts += [f"  {line}" for allocation in found.allocations for line in cards_of(allocation, units)]
    parts += [f"  kept back: {escape(text)}" for text in found.gates]
    if found.fit_errors:
        parts += node_lines(found.fit_errors, wide)
    parts += [f"  {escape(text)}" for text in found.hints]
    if found.changes:
        parts.append(f"{_what_for(found)}, one of:")
        parts += [f"  - {escape(change.text)}{_where(change)}" for change in found.changes]
    elif not found.node and found.nodes and not any(one.waits for one in found.refusals):
        parts.append("No single change of the request, and no leaving of pods, would let it in.")
    return parts


def _what_for(found: Explanation) -> str:
    """Return the effect of the changes: they are changes of this one pod, and cannot help against other causes."""
    if any(text != OVERTAKEN and QUEUE_FULL not in text for text in found.gates):
        return "What would find it a node (what keeps it back stays)"
    if found.gang:
        return f"What would find it a node (its gang of {found.gang} starts as a whole)"
    return "What would let it in"


def _where(change: Change) -> str:
    return f" [dim](then {escape(change.node)} takes it)[/dim]" if change.node and change.kind != "evict" else ""


def units_of(device_types: Iterable[DeviceSharing]) -> Units:
    """Behind the memory and cores of each device type's cards; nothing where it counts something else."""
    known = ((device_type.name, device_type.tunables) for device_type in device_types)
    return {name: (f" {t.memory_unit}" if t.memory else "", " %" if t.cores else "") for name, t in known}


def cards_of(allocation: Allocation, units: Units) -> list[str]:
    """The pod's devices, one line per container."""
    lines = []
    memory, cores = units.get(allocation.device_type, ("", ""))
    for number, container_devices in enumerate(allocation.containers):
        cards = ", ".join(
            f"{device_of(p).id}{f' ({p.slot.profile})' if p.slot else ''} "
            f"memory {p.memory}{memory} cores {p.cores}{cores}"
            for p in container_devices
        )
        lines.append(escape(f"container part {number}: {cards}" if len(allocation.containers) > 1 else cards))
    return lines


def node_lines(fit_errors: tuple[FitError, ...], wide: bool) -> list[str]:
    """Per node its reason, and below it each card; or the nodes that refuse alike together, and their cards counted."""
    together: dict[tuple[str, ...], list[str]] = {}
    for fit_error in fit_errors:
        emptier = "" if fit_error.final or not fit_error.cards else " (an emptier node would do)"
        numbers = f": {fit_error.detail}" if fit_error.detail else ""
        words = [f"{fit_error.text}{numbers}{emptier}"]
        if wide:
            words += [fit_error.node, *(f"{card.uuid}: {card.text}" for card in fit_error.cards)]
        else:
            counted = Counter(card.text for card in fit_error.cards).most_common(CARDS_SHOWN)
            words += ["", *(f"{count} × {detail}" for detail, count in counted)]
        together.setdefault(tuple(words), []).append(fit_error.node)
    groups = list(together.items())
    shown = groups if wide else groups[:GROUPS_SHOWN]
    labels = [_listed(nodes) for _, nodes in shown]
    width = min(max(map(len, labels)), LABEL_WIDTH)
    lines = []
    for label, ((first, _, *cards), _) in zip(labels, shown, strict=True):
        if len(label) > width:
            lines.append(f"  {escape(label)}")
            label = ""
        lines.append(f"  {escape(label.ljust(width))}  {escape(first)}")
        lines += [f"{' ' * (width + 4)}{escape(card)}" for card in cards]
    hidden = sum(len(nodes) for _, nodes in groups[len(shown) :])
    return [*lines, f"  … and {hidden} more nodes (-o wide shows all)"] if hidden else lines


def _listed(nodes: list[str]) -> str:
    """``n1, n2, n3 and 997 more``."""
    more = f" and {len(nodes) - NODES_NAMED} more" if len(nodes) > NODES_NAMED else ""
    return f"{', '.join(nodes[:NODES_NAMED])}{more}"


def show_preemption(found: PreemptionView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(document(asdict(found)))
        return
    if output not in ("text", "wide"):
        raise BadInput(f"-o {output!r}: use text, wide or json")
    console = Console(highlight=False, soft_wrap=True)
    by = f" (action {found.action})" if found.action else ""
    console.print(f"[bold]{escape(found.pod)}[/bold]: {escape(found.summary)}{by}")
    for neighbour in found.neighbours:
        console.print(f"  {escape(_line(neighbour))}")
    for name, node in found.places if len(found.places) > 1 else ():
        console.print(f"  {escape(name)} is promised a place on {escape(node)}")


def _line(found: Neighbour) -> str:
    about = ", ".join(filter(None, (f"priority {found.priority}", found.holds)))
    if found.stays:
        return f"{found.node}: {found.pod} ({about}) stays: {found.stays}"
    return f"{found.node}: evict {found.pod} ({about})"
