"""``pumice limit``: change the limits of a program while it runs."""

from __future__ import annotations

import os
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import SHARES
from pumice.cli.local_view import EMULATED, places
from pumice.model.errors import BadInput
from pumice.wire import variables

app = flags.App()


@app.command(epilog="Examples: pumice limit r3 --cores 30;  pumice limit $! --memory 2000 --cores 0")
def limit(
    who: Annotated[str, flags.Argument(metavar="PID|ID", help="The share: its id or a process in it."), SHARES],
    memory: Annotated[
        str | None, flags.Option(metavar="AMOUNT|P%", help="New memory limit: MiB, 3GiB or 25%; 3000,8000: of each card.")
    ] = None,
    cores: Annotated[str | None, flags.Option(metavar="P", help="New core limit in percent; 0: none; 20,50: of each.")] = None,
    force: Annotated[bool, flags.Option("--force", help="Also below what is in use: nothing is taken away.")] = False,
    emulated: EMULATED = None,
) -> None:
    """Change the limits of a running program. They hold within a moment; refused when the card has not that much left."""
    from pumice.cli.laboratory import driver_of_machines, machine_environment
    from pumice.cli.run import cards_of
    from pumice.local.limits import change_by, in_words, wanted
    from pumice.local.shares import find

    if memory is None and cores is None:
        raise BadInput("nothing to change; give --memory, --cores or both")
    booking, place = find(places(emulated), who)
    request = wanted(booking, memory, cores)
    library = None
    if place.machine is not None:
        present = machine_environment(place.machine, os.environ)
        os.environ[variables.MACHINE], library = present[variables.MACHINE], driver_of_machines()
    with cards_of(library) as cards:
        changed = change_by(os.geteuid(), booking, place, request, cards.facts(), force)
    print("\n".join(in_words(changed, booking)))
