"""The options by which a container's share is asked for: of ``pumice docker run`` and ``pumice share create``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.adapters.bookings.book import CONTAINER
from pumice.cli import flags
from pumice.cli.run import cards_of, library, world

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pumice.local import start
    from pumice.local.place import Place
    from pumice.local.request import Request
    from pumice.wire.cdi import Edits

MEMORY = Annotated[str | None, flags.Option(
    "--memory", metavar="AMOUNT|P%", help="GPU memory: MiB, with a unit as 3G, or percent of the card's (default: all of it).")]
CORES = Annotated[str, flags.Option(
    "--cores", metavar="P", show_default=False, help="Percent of the card's compute (default: no limit).")]
GPU = Annotated[str | None, flags.Option(
    "--gpu", metavar="CARD", help="Number or UUID of the card, several as 0,1; auto: where most is free; all (default: 0).")]
GPUS = Annotated[str | None, flags.Option("--gpus", metavar="N|all", help="So many cards, those where most is free.")]
PRIORITY = Annotated[str, flags.Option("--priority", metavar="N", show_default=False, help="0 high, 1 low (the default).")]
EMULATED = Annotated[str | None, flags.Option(
    "--emulated", metavar="[MODEL|DIR]", bare=True, help="On an emulated machine, as `pumice run --emulated`.")]


def request_of(memory: str | None, cores: str, gpu: str | None, gpus: str | None, priority: str) -> Request:
    """Raises BadInput."""
    from pumice.local.request import parse_cards, parse_priority, parse_shares  # only here: help needs none

    chosen = parse_cards(gpu, gpus, None)
    return parse_shares(memory, cores, chosen.cards, chosen.number, parse_priority(priority), chosen.source)


def book(called: str, request: Request, command: Sequence[str], emulated: str | None, present: Mapping[str, str],
         keeper: str = CONTAINER, name: str = "") -> tuple[start.Start, Place, Edits]:  # fmt: skip
    """Book a share that a container will have, and return what that is given. Raises PumiceError; then nothing is booked."""
    from pumice.local import containers, start

    start.refuse_nested(present)
    inside, place, nvml = world(emulated, dict(present))
    enforcing = Path(library()).resolve()
    with cards_of(nvml) as found:
        begun = start.book(request, command, place, found, keeper=keeper, name=name)
    if begun.note:
        print(f"{called}: {begun.note}", file=sys.stderr)
    if place.machine is not None:
        print(f"{called}: on the emulated machine {place.machine}, no real card is used", file=sys.stderr, flush=True)
    if begun.contested:
        from pumice.local import arbiter  # rarely needed

        arbiter.start(place.directory)
    return begun, place, containers.edits(begun.booking, place, enforcing, inside)
