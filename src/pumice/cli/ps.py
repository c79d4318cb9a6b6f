"""``pumice ps``: the programs that share this machine's cards."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

from pumice.cli import flags
from pumice.cli.local_view import EMULATED, as_json, places, shares_table, wide_console
from pumice.local.shares import shares

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
    elif found:
        console, width = wide_console()
        wide = output is Output.WIDE
        console.print(shares_table(found, 0 if wide else width, wide), soft_wrap=wide)
    else:
        print("No program runs under `pumice run`.")
