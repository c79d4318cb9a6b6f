"""Room that would be made for a pod, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from pumice.cli.output import document
from pumice.model.errors import BadInput
from pumice.scheduler.explaining.room import Neighbour, RoomView


def show_room(found: RoomView, output: str) -> None:
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
