"""E14: suites of tests: what the emulated machine promises of a card, and foreign programs with the library and without."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

from benchmarks.native.experiments.rig import Report, Rig
from benchmarks.native.harness import ROOT

SECONDS = 120
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
RAN = re.compile(r"Ran (\d+) tests?")
BROKEN = re.compile(r"(failures|errors)=(\d+)")


def suites(rig: Rig) -> Report:
    report = Report()
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "tests/contract/test_cards.py"]
    counts = {kind: int(count) for count, kind in COUNTS.findall(_run(words, None))}
    report.figures["contract tests of a card"] = counts
    report.goal("contract tests of a card: failures", sum(counts.get(kind, 0) for kind in ("failed", "error", "errors")))
    if importlib.util.find_spec("numba_cuda") is None:
        report.not_run["numba-cuda's tests of the driver"] = "numba-cuda is not installed here"
        return report
    words = [sys.executable, "-m", "numba.runtests", "numba.cuda.tests.cudadrv"]
    alone, ours = (_unittests(_run(words, environment)) for environment in (rig.environment(), _under(rig)))
    report.figures["numba-cuda's tests of the driver"] = {"alone": alone, "under the library": ours}
    report.goal("numba-cuda: failures under the library", max(0, ours["broken"] - alone["broken"]))
    return report


def _under(rig: Rig) -> dict[str, str]:
    return dict(rig.container(CUDA_DEVICE_MEMORY_LIMIT=str(rig.free_bytes() // 2), CUDA_DEVICE_SM_LIMIT="50").environment)


def _run(words: list[str], environment: dict[str, str] | None) -> str:
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"{words[2]} had not ended after {SECONDS} s") from late
    return done.stdout + done.stderr


def _unittests(text: str) -> dict[str, int]:
    ran = RAN.search(text)
    return {"run": int(ran[1]) if ran else 0, "broken": sum(int(count) for _, count in BROKEN.findall(text))}
