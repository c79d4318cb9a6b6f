"""``pumice ps``: the programs that share this machine's cards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from rich.console import Console

from pumice.cli import flags
from pumice.cli.local_view import EMULATED, as_json, places, shares_table
from pumice.cli.tables import print_whole, wide_console
from pumice.local.shares import Share, shares

app = flags.App()


class Output(StrEnum):
    TEXT = "text"
    WIDE = "wide"
    JSON = "json"


@app.command(epilog="Examples: pumice ps;  pumice ps -o wide;  pumice ps -o json")
def ps(
    emulated: EMULATED = None,
    output: Annotated[Output, flags.Option("--output", "-o", help="wide: also user, priority, region.")] = Output.TEXT,
) -> None:
    """List the programs of `pumice run`: what each uses of its card, and its limits."""
    found = shares(places(emulated))
    if output is Output.JSON:
        print(json.dumps([as_json(share) for share in found], indent=1))
    else:
        show(found, *wide_console(), wide=output is Output.WIDE)


def show(found: Sequence[Share], console: Console, width: int, *, wide: bool) -> None:
    """Print the table for a terminal of this width, 0 where nothing bounds the lines; ``wide`` keeps all columns in any."""
    if not found:
        console.print("No program runs under `pumice run`.")
    elif wide:
        print_whole(console, shares_table(found, wide=True))
    else:
        console.print(shares_table(found, width))
