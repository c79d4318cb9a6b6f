"""What every kept result says beside its figures: machine, versions, date; and where results are kept."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


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
