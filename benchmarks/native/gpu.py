"""The experiments E0 to E12 for libvgpu: on a real card where there is one, else what the emulated machine can carry.

    python -m benchmarks.native.gpu [--save]

Writes one JSON object: device, and for each experiment its figures or why it was not run. A figure of the emulated machine
stands under that name and is never a GPU's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.native import vgpu
from benchmarks.report import environment

NEEDS_CARD = "needs a GPU"
NEEDS_FRAMEWORKS = "needs a GPU and its frameworks"


def fact_probe(bars: vgpu.Bars, folder: Path) -> None:
    """E0: is every pointer that cuGetProcAddress hands out an exported symbol?"""
    out = subprocess.run(
        [vgpu.PROGRAMS / "symbols", "proc"], env=vgpu.on(folder / "real"), capture_output=True, text=True, check=True
    )
    answers = [line.split() for line in out.stdout.splitlines() if not line.startswith("status")]
    bars.figures["answers of cuGetProcAddress"] = len(answers)
    bars.note(
        "answers that are no exported symbol", sum(answer[3] == "-" and answer[2] != "-" for answer in answers), most=0
    )


def shapes(bars: vgpu.Bars, folder: Path) -> None:
    """E5: launches that synchronise, graphs, cooperative kernels."""
    for shape in ("sync", "graph", "cooperative"):
        for limit in (30, 50, 70):
            (served,) = vgpu.conduct(folder, 4000, f"limit={limit},kernel=1000000,shape={shape}")
            bars.note(f"{shape} at {limit} %: error, points", abs(vgpu.share(served, 1000, 3900) - limit), most=1.5)


Part = Callable[[vgpu.Bars, Path], None]
EMULATED: dict[str, tuple[str, Part | str]] = {
    "E0": ("facts of the driver", fact_probe),
    "E1": ("launch overhead", lambda bars, folder: vgpu.call_costs(bars, folder, 3)),
    "E2": ("allocation and refusal latency", "measured with E1"),
    "E3": ("exactness of the memory limit", lambda bars, folder: vgpu.grants(bars, 2_000_000)),
    "E4": ("accuracy of the core limit", lambda bars, folder: vgpu.one_tenant(bars, folder, 4)),
    "E5": ("shapes of launches", shapes),
    "E6": ("several processes of a container", vgpu.one_container),
    "E7": ("several tenants", vgpu.tenants),
    "E8": ("live changes", vgpu.live_change),
    "E9": ("a decode loop beside training", NEEDS_FRAMEWORKS),
    "E10": ("frameworks", NEEDS_FRAMEWORKS),
    "E11": ("starts and kills", lambda bars, folder: vgpu.chaos(bars, folder, 300)),
    "E12": ("compute-sanitizer", NEEDS_CARD),
}
ON_A_CARD = {"E1", "E2"}
NOT_WRITTEN = "not written for a real card yet"


def real_card() -> str:
    """The name of a real card, or an empty string."""
    if not Path("/dev/nvidia0").exists():
        return ""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()[0] if listed.returncode == 0 and listed.stdout else ""


def run(name: str, folder: Path, on_card: bool) -> dict[str, Any]:
    title, part = EMULATED[name]
    if on_card and name not in ON_A_CARD:
        part = NOT_WRITTEN
    if isinstance(part, str):
        return {"title": title, "not run": part}
    bars = vgpu.Bars()
    part(bars, folder)
    return {"title": title, "figures": bars.figures, "missed": bars.missed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the results in benchmarks/results")
    arguments = parser.parse_args()
    vgpu.build()
    card = real_card()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if card:
            vgpu.ON_CARD = True
        else:
            vgpu.machines(folder)
        experiments = {name: run(name, folder, bool(card)) for name in EMULATED}
    result = {"benchmark": "native_gpu", "device": card or "emulated A100-SXM4-40GB; not a GPU", **environment(),
              "experiments": experiments}  # fmt: skip
    print(json.dumps(result, indent=2))
    if arguments.save:
        name = "native_gpu_card" if card else "native_gpu_emulated"
        (vgpu.ROOT / f"benchmarks/results/{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    return 1 if any(one.get("missed") for one in experiments.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
