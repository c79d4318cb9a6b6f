"""The picture of `pumice top` in the documents, made of a machine with emulated cards on which three programs run.

``python -m kit.top_picture`` writes docs/assets/top.svg anew. The figures in it are those of its moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from pathlib import Path

from kit.one_machine import OneMachine
from pumice.cli.screen.app import Top
from pumice.cli.screen.taking import Machine
from pumice.cli.top_tabs import sources

PICTURE = Path(__file__).parents[1] / "docs/assets/top.svg"
SIZE = (110, 26)
SECONDS = 45
"""Long enough for graphs."""


async def taken(here: OneMachine, stack: contextlib.ExitStack) -> str:
    """Watch the machine for a while, select a program, and return the screen as SVG."""
    there = sources(stack, str(here.directory), here.directory / "no cluster")
    app = Top(Machine(there.where, there.cards, there.place), None, "machine", 1.0)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(SECONDS)
        await pilot.press("down", "down")
        await pilot.pause(1)
        return app.export_screenshot(title="pumice top")


def plain(svg: str) -> str:
    """The picture without what it would load from elsewhere: it is shown in whatever fixed font there is."""
    svg = re.sub(r"<!--.*?-->\n?", "", svg)
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
    return re.sub(r"/\S*/(node/machine)", r"/home/me/machines/\1", svg)


def main() -> None:
    """Play the programs and write the picture."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        here = OneMachine(Path(folder) / "node" / "machine")
        try:
            here.burn("--memory", "6000", "--cores", "40", memory=3500)
            here.burn("--memory", "4000", "--cores", "20", memory=3600)
            here.burn("--gpu", "1", "--memory", "25%", memory=900)
            PICTURE.write_text(plain(asyncio.run(taken(here, stack))))
        finally:
            here.close()


if __name__ == "__main__":
    main()
