"""The cost of a launch through the emulated machine's driver.

    python -m benchmarks.machine_launch [--quick] [--save]

Processor time: median of 15 rounds (--quick: 3) of 20,000 launches, in batches that fit the card's queue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice_lab.machine import create, library_dir, machine_of


def run(folder: Path, rounds: int) -> dict[str, float]:
    """Compile ``machine_launch.c`` against the machine's driver and run it on a fresh machine."""
    program = folder / "launch"
    source = Path(__file__).with_suffix(".c")
    driver = library_dir() / "libcuda.so.1"
    subprocess.run(["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", str(source), str(driver), "-o", str(program)], check=True)
    with create(machine_of("A100-SXM4-40GB"), folder / "machine") as machine:
        environment = {**os.environ, **machine.environment(), "PATH": os.environ["PATH"]}
        printed = subprocess.run([program, str(rounds)], env=environment, check=True, capture_output=True, text=True, timeout=120)
    measured: dict[str, float] = json.loads(printed.stdout)
    return measured


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="a fifth of the rounds")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        result = run(Path(temporary), 3 if given.quick else 15)
    goals = goals_of("machine_launch", {"a launch": result["idle_median_ns"]})
    return conclude("machine_launch", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
