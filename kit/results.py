"""The options of every benchmark, and the context of a kept result: machine, versions, date."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def arguments(about: str | None, *, quick: str = "") -> argparse.ArgumentParser:
    """``--save``, and ``--quick`` where it says what is less then; what a benchmark has of its own is added."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    return parser


def environment() -> dict[str, Any]:
    """Processor, cores, memory, kernel, Python and the packages whose speed matters."""
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())  # fmt: skip
    memory = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**20), "kernel": platform.release(),
        "python": platform.python_version(), "load_before": round(os.getloadavg()[0], 2),
        **{name: version(name) for name in ("pumice", "numpy", "msgspec", "aiohttp")},
    }  # fmt: skip


def save(name: str, result: Mapping[str, Any], *, keep: bool) -> None:
    """Print as JSON, and write ``results/NAME.json`` when asked to."""
    text = json.dumps({"benchmark": name, **environment(), **result}, indent=2)
    print(text)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")
