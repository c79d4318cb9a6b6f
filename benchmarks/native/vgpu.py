"""libvgpu on the emulated machine: what it costs, whether limits hold, what kills leave behind.

    python -m benchmarks.native.vgpu [--quick] [--only PARTS] [--save]

Every goal of the library is a row: what was wanted, what was measured, whether it was met; a miss fails the run. Ratios are
against native in the same run: rounds with and without the library alternate. A figure of the emulated machine is never a GPU's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from kit.results import arguments

from benchmarks.native import calls, compute, memory, mixes
from benchmarks.native.harness import CARD, Figures, build, make_machines
from benchmarks.report import conclude

MINUTES = 12


def parts(figures: Figures, folder: Path, quick: bool) -> dict[str, Callable[[], None]]:
    rounds = 2 if quick else 5
    return {
        "launches": lambda: calls.launches(figures, folder, rounds),
        "allocations": lambda: calls.allocations(figures, folder, rounds),
        "modules": lambda: calls.modules(figures, folder, rounds),
        "start_up": lambda: calls.start_up(figures, 30 if quick else 1000),
        "usable": lambda: memory.usable(figures, folder),
        "one_tenant": lambda: compute.one_tenant(figures, folder, 3 if quick else 6),
        "one_container": lambda: compute.one_container(figures, folder),
        "mixes": lambda: mixes.mixes(figures, folder),
        "tenants": lambda: compute.tenants(figures, folder),
        "shapes": lambda: compute.shapes(figures, folder),
        "streams": lambda: compute.streams(figures, folder),
        "live_change": lambda: compute.live_change(figures, folder),
        "in_real_time": lambda: compute.in_real_time(figures, folder),
        "witness": lambda: memory.witness(figures, folder, 20_000 if quick else 10_000_000),
        "deaths": lambda: memory.deaths(figures, folder, 64 if quick else 1000),
        "grants": lambda: memory.allocations(figures, 200_000 if quick else 10_000_000),
        "chaos": lambda: memory.chaos(figures, folder, 60 if quick else 10_000),
        "fuzz": lambda: memory.fuzz(figures, 10**5 if quick else 10**8),
    }


def main() -> int:
    parser = arguments(__doc__, quick="small counts, a minute")
    parser.add_argument("--only", metavar="PARTS", help="some of the parts, with commas")
    given = parser.parse_args()
    build()
    figures = Figures()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_machines(folder)
        everything = parts(figures, folder, given.quick)
        chosen = given.only.split(",") if given.only else list(everything)
        if unknown := [name for name in chosen if name not in everything]:
            parser.error(f"no part {unknown[0]!r}; there are {', '.join(everything)}")
        for name in chosen:
            everything[name]()
    about = {"machine": f"emulated {CARD}; not a GPU", **figures.reported}
    return conclude("native_vgpu", about, figures.goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
