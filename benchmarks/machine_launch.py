"""The cost of a launch through the emulated machine's driver.

    python benchmarks/machine_launch.py

Bar: 150 ns of processor time (median of 15 rounds of 20,000 launches, in batches that fit the card's queue).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pumice.machine import create, library_dir, machine_of
from report import save

BAR_NS = 150.0


def run(folder: Path) -> dict[str, float]:
    """Compiles ``machine_launch.c`` against the machine's driver and runs it on a fresh machine."""
    program = folder / "launch"
    source = Path(__file__).with_suffix(".c")
    driver = library_dir() / "libcuda.so.1"
    subprocess.run(["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", str(source), str(driver), "-o", str(program)], check=True)
    with create(machine_of("A100-SXM4-40GB"), folder / "machine") as machine:
        environment = {**os.environ, **machine.environment(), "PATH": os.environ["PATH"]}
        printed = subprocess.run([program], env=environment, check=True, capture_output=True, text=True, timeout=120)
    measured: dict[str, float] = json.loads(printed.stdout)
    return {**measured, "bar_ns": BAR_NS}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        result = run(Path(temporary))
    save("machine_launch", result, keep="--keep" in sys.argv)
    sys.exit(result["median_ns"] > BAR_NS)
