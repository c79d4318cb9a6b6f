"""``pumice share``: shares of a card with a name, which containers of any engine ask for by a CDI device."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated

from pumice.adapters.bookings.book import JOB_PREFIX, NAMED
from pumice.cli import flags
from pumice.cli.completion import SHARES
from pumice.cli.local_view import EMULATED as OF_MACHINES
from pumice.cli.local_view import as_json, places
from pumice.cli.ps import Output, show
from pumice.cli.share_options import CORES, EMULATED, GPU, GPUS, MEMORY, PRIORITY, book, request_of
from pumice.cli.tables import wide_console
from pumice.local.shares import shares
from pumice.model.errors import BadInput, PumiceError
from pumice.wire import cdi

app = flags.App(group=True, help="Make shares of a card with a name, for containers that ask by CDI: pumice.io/share=NAME.",
                  epilog="Example: pumice share create train --memory 3G --cores 50")  # fmt: skip

NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
NUMBERED = re.compile(rf"r[0-9]+|{JOB_PREFIX}.*")
FOLDER = Annotated[Path, flags.Option("--cdi-dir", metavar="DIR", help="Where the engine reads CDI files.")]
NAME_WANTED = Annotated[
    str | None, flags.Argument(metavar="NAME", help="Small letters, digits and hyphens (default: a number).")
]
DEFAULT = Path("/var/run/cdi")
UNOPENED = (
    "no CDI file of NVIDIA's toolkit names the cards, so {} opens none; give containers the card as well, or run nvidia-ctk cdi "
    "generate first"
)


@app.command(epilog="Examples: pumice share create train --memory 3G --cores 50;  pumice share create --memory 25% --gpu auto")
def create(
    name: NAME_WANTED = None,
    memory: MEMORY = None,
    cores: CORES = "0",
    gpu: GPU = None,
    gpus: GPUS = None,
    priority: PRIORITY = "1",
    emulated: EMULATED = None,
    cdi_dir: FOLDER = DEFAULT,
) -> None:  # fmt: skip
    """Book a share under a name, write its CDI file, and print the name. It is kept until `pumice share delete` or the next boot;
    containers that have it at the same time share it."""
    from pumice.local import containers, start  # only here: help and completion need no allocator

    if name is not None and (not NAME.fullmatch(name) or NUMBERED.fullmatch(name)):
        raise BadInput(f"{name!r} is no name of a share: up to 63 small letters, digits and hyphens, a letter first; not r1, "
                       "nor slurm-1")  # fmt: skip
    request, command = request_of(memory, cores, gpu, gpus, priority), ["pumice", "share", "create", *filter(None, [name])]
    begun, place, given = book("pumice share create", request, command, emulated, dict(os.environ), NAMED, name or "")
    try:
        if place.machine is None:
            toolkit = containers.cards_of_toolkit(begun.booking)
            given = given if toolkit is None else toolkit + given
            if toolkit is None:
                print(f"pumice share create: {UNOPENED.format(cdi.share(begun.booking.id))}", file=sys.stderr)
        containers.write_device(begun.booking, given, cdi_dir)
    except PumiceError:
        start.give_back(begun, place)
        raise
    print(begun.booking.id)


@app.command("list", epilog="Examples: pumice share list;  pumice share list -o json")
def listed(
    emulated: OF_MACHINES = None,
    output: Annotated[Output, flags.Option("--output", "-o", help="wide: also user, priority, region.")] = Output.TEXT,
) -> None:
    """List the shares that have a name, with their use now."""
    found = [share for share in shares(places(emulated)) if share.booking.keeper == NAMED]
    if output is Output.JSON:
        print(json.dumps([as_json(share) for share in found], indent=1))
    elif found:
        show(found, *wide_console(), wide=output is Output.WIDE)
    else:
        print("There is no share with a name.")


@app.command(epilog="Examples: pumice share delete train;  pumice share delete --force train")
def delete(
    name: Annotated[str, flags.Argument(metavar="NAME", help="The share."), SHARES],
    force: Annotated[bool, flags.Option("--force", help="Also while containers use it: free once they have ended.")] = False,
    emulated: OF_MACHINES = None,
    cdi_dir: FOLDER = DEFAULT,
) -> None:  # fmt: skip
    """End a share with a name and remove its CDI file. Refused while containers use it."""
    from pumice.local import containers

    there = [place for place in places(emulated) if any(share.booking.id == name for share in shares([place]))]
    if len(there) != 1:
        wheres = " and ".join(str(place.directory) for place in there)
        raise BadInput(f"{name}: there is one on several machines ({wheres}); name it with --emulated" if there else
                       f"{name}: there is no share of this name; `pumice share list` shows them")  # fmt: skip
    containers.end(name, there[0], os.geteuid(), cdi_dir, force)
