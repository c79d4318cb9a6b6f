"""The picture of `pumice top` in the documents, made of a machine with emulated cards on which three programs run.

``python -m kit.top_picture`` writes docs/assets/top.svg anew. The figures in it are those of its moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import tempfile
from pathlib import Path

from kit.one_machine import OneMachine
from pumice.cli.screen.app import Top
from pumice.cli.screen.polling import Machine
from pumice.cli.screen.samples import MIB, CardSample, History, Part, Program, Sample
from pumice.cli.top_tabs import sources

CARDS = tuple(f"GPU-{index}a0a0a0a-0000-4000-8000-000000000000" for index in range(3))
MODELS = ("Tesla T4", "GeForce GTX 1080 Ti", "A100-SXM4-80GB")
TOTALS = (15360, 11178, 81920)
BEGAN = 1_800_000_000.0
POD = "0d2c7b4e-1111-4222-8333-444455556666"


def sample(second: int) -> Sample:
    """Return what there is at this second."""
    cards = tuple(
        CardSample(CARDS[index], index, MODELS[index], int((3000 + 2500 * math.sin(second / 9 + index) ** 2) * MIB),
                   TOTALS[index] * MIB, int(50 + 45 * math.sin(second / 5 + index)) if index < 2 else None,
                   (8000, 4000, 0)[index], (40, 40, 0)[index])
        for index in range(3)
    )  # fmt: skip
    train = Part(CARDS[0], 0, int((3000 + 900 * math.sin(second / 9)) * MIB), int(30 + 10 * math.sin(second / 5)), 4000, 40)
    both = Part(CARDS[0], 0, 3900 * MIB, None, 4000, 0), Part(CARDS[1], 1, 1000 * MIB, 20, 2000, 20)
    return Sample(BEGAN + second, cards, (
        Program("m r1", "r1", 4711, "anna", (train,), "python train.py --epochs 90 --data /srv/imagenet", started=1),
        Program("m r2", "r2", 4194303, "bert", both, "torchrun serve.py", started=2, waits=True),
        Program("m r30", "r30", 99, "anna", (Part(CARDS[1], 1, None, None, 2000, 20),), "burn", started=3, note="region damaged"),
        Program("pid 777", "", 777, "root", (Part(CARDS[2], 2, 512 * MIB, None),), "tritonserver", pod=POD),
    ), "/home/anna/.local/share/pumice/machines/three")  # fmt: skip


def history(seconds: int) -> History:
    """Return what is remembered after so many seconds."""
    remembered = History()
    for second in range(seconds):
        remembered.add(sample(second))
    return remembered


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
