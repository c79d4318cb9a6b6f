"""Running benchmarks with ``--quick``, by subject: each subject is a file of tests, for workers take whole files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import running as bench

FOUND = bench.find_benchmarks(bench.ROOT)
NEED_MORE = {"openb", "openb-churn", "conformance"}
"""A trace that is not ours to ship, and Kubernetes' own suite, which takes minutes to build: they have tests of their own."""
BEFORE_A_SERVER = ("end-to-end", "jobs", "single-pods", "gangs", "hostile", "embedded-server", "latency")
OF_DAEMONS = ("node-allocate", "backbone", "memory", "start", "controller-start", "monitor-scrape", "node-mig-cut")
OTHERS = tuple(name for name in FOUND if name not in {*NEED_MORE, *BEFORE_A_SERVER, *OF_DAEMONS})
PARTS = {"native-gpu": "E0,E2,E3", "native-vgpu": "launches,allocations,modules,start_up,usable,witness,grants,chaos,fuzz"}
"""Of those that take minutes by the clock even so: what runs here. The soak runs all of it."""
SMALLER = {"start": ("--nodes", "1000", "--pods", "5000"), "memory": ("--nodes", "1000", "--pods", "5000"),
           "controller-start": ("--jobs", "2000", "--pods", "20000"),
           "end-to-end": ("--nodes", "800", "--pods", "2000"), "jobs": ("--nodes", "800", "--pods", "1000")}  # fmt: skip
"""Sizes that show as well that a program runs to its end, of which ``--quick`` takes a tenth or a twentieth."""
PATIENCE = 1200
"""Seconds that a test of one may take: of the processor it needs ten, and others may be at work."""
EMBEDDED = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
"""Without the real API server, whose start would be most of what these take; the contract suites are its test."""


def quick(name: str, *further: str, seconds: float = PATIENCE - 100) -> subprocess.CompletedProcess[str]:
    """``pumice bench NAME --quick``, which pardons figures that miss their goals on a busy machine and nothing else."""
    return subprocess.run([sys.executable, "-m", "pumice", "bench", name, "--quick", *further], capture_output=True, text=True,
                          cwd=bench.ROOT, env=EMBEDDED, timeout=seconds)  # fmt: skip


def assert_runs_to_its_end(name: str, folder: Path) -> None:
    further = ["--only", PARTS[name]] if name in PARTS else []
    done = quick(name, *further, *SMALLER.get(name, ()), *(["--out", str(folder)] if name == "native-gpu" else []))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "it prints what it has measured"
