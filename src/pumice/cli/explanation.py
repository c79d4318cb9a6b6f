"""An explanation for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from pumice.engine.explain import Explanation, as_json
from pumice.families.explain import Change
from pumice.model.cards import Grant
from pumice.model.refusal import BadInput, Misfit
from pumice.wire.nvidia_vgpu import device_of

NODES_SHOWN = 20


def show(found: Explanation, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(msgspec.json.format(as_json(found), indent=2).decode())
    elif output in ("text", "wide"):
        Console(highlight=False, soft_wrap=True).print(*rendered(found, wide=output == "wide"), sep="\n")
    else:
        raise BadInput(f"-o {output!r}: use text, wide or json")


def rendered(found: Explanation, *, wide: bool) -> list[Any]:
    """The parts of the text: the sentence, the cards it would get, each node's reason, what would help."""
    parts: list[Any] = [f"[bold]{escape(found.pod)}[/bold]: {escape(found.summary)}"]
    parts += [f"  {line}" for grant in found.grants for line in cards_of(grant)]
    parts += [f"  queue: {escape(text)}" for text in found.gates]
    if found.misfits:
        parts += node_lines(found.misfits, wide)
    hidden = len(found.misfits) - NODES_SHOWN
    if hidden > 0 and not wide:
        parts.append(f"  … and {hidden} more nodes (-o wide shows all)")
    if found.changes:
        parts.append("What would let it in, one of:")
        parts += [f"  - {escape(change.text)}{_where(change)}" for change in found.changes]
    elif not found.node and found.nodes:
        parts.append("No single change of the request, and no leaving of pods, would let it in.")
    return parts


def _where(change: Change) -> str:
    return f" [dim](then {escape(change.node)} takes it)[/dim]" if change.node and change.kind != "evict" else ""


def cards_of(grant: Grant) -> list[str]:
    """What it gets, one line per container."""
    lines = []
    for number, pieces in enumerate(grant.containers):
        cards = ", ".join(
            f"{device_of(p).id}{f' ({p.slot.profile})' if p.slot else ''} "
            f"memory {p.memory} cores {p.cores}"
            for p in pieces
        )
        lines.append(escape(f"container part {number}: {cards}" if len(grant.containers) > 1 else cards))
    return lines


def node_lines(misfits: tuple[Misfit, ...], wide: bool) -> list[str]:
    """Per node its reason, and below it the cards counted by reason (or each card)."""
    shown = misfits if wide else misfits[:NODES_SHOWN]
    width = max(len(misfit.node) for misfit in shown)
    lines = []
    for misfit in shown:
        emptier = "" if misfit.final or not misfit.cards else " (an emptier node would do)"
        numbers = f": {misfit.detail}" if misfit.detail else ""
        lines.append(f"  {escape(misfit.node.ljust(width))}  {escape(misfit.text + numbers)}{emptier}")
        indent = " " * (width + 4)
        if wide:
            lines += [f"{indent}{escape(f'{card.uuid}: {card.text}')}" for card in misfit.cards]
            continue
        counted = Counter(card.text for card in misfit.cards)
        lines += [f"{indent}{count} × {escape(detail)}" for detail, count in counted.most_common(3)]
    return lines
