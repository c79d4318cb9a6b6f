"""E13: an independent witness, a process that asks NVML alone, beside programs that take all they get by every path at once."""

from __future__ import annotations

import subprocess
from typing import Any

from kit.vgpu_kit import python

from benchmarks.native.experiments.rig import Container, Report, Rig
from benchmarks.native.experiments.roles import MIB
from pumice_lab import machine

LIMIT_BYTES = 8 << 30  # or half of what is free
HOGS = (("linear", MIB + 1), ("managed", 33 * MIB), ("pitched", 2 * MIB + 512), ("array", 5 * MIB), ("physical", 2 * MIB),
        ("stream_ordered", MIB), ("pool_each", 30 * MIB), ("churned", 100_000), ("context", 0))  # fmt: skip
TIMES = 3
WAIT_SECONDS = 60


def witness(rig: Rig) -> Report:
    report = Report()
    limit = min(LIMIT_BYTES, rig.free_bytes() // 2 // MIB * MIB)
    report.figures["limit, bytes"] = limit
    counting = machine.open_machine(rig.folder / "machine").card(0) if rig.emulated else None
    if counting is not None:
        counting.peak_bytes = 0  # of the experiments before
    with rig.start("witness") as watching:
        watching.ready().go()
        rounds = [_everybody_at_once(rig.container(CUDA_DEVICE_MEMORY_LIMIT=str(limit)), limit) for _ in range(TIMES)]
        _passed_on(rig.container(CUDA_DEVICE_MEMORY_LIMIT=str(limit)), limit)
        watching.go("stop")
        seen = watching.answer()
    report.figures["programs that got memory, of each round"] = [len(one) for one in rounds]
    report.figures["times that they got it"] = sum(sum(one.values()) for one in rounds)
    report.figures |= {"looks of the witness": seen["looks"], "most in use, bytes": seen["peak"]}
    report.goal("witness: bytes above the limit", max(0, seen["peak"] - limit))
    if counting is not None:
        peak = int(counting.peak_bytes)
        report.figures["most in use by the machine's own count, bytes"] = peak
        report.goal("the machine's own count: bytes above the limit", max(0, peak - limit))
    else:
        report.not_run["the card's own highest count"] = "no card tells it; the witness sees what lasts from one look to the next"
    return report


def _talk(container: Container, script: str, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        python(script, *words), env=dict(container.environment), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def _everybody_at_once(container: Container, limit: int) -> dict[str, int]:
    """How often each got memory of the twice of the limit that they want; who found no room for its context is not there."""
    each = 2 * limit // len(HOGS)
    hogs = {path: _talk(container, "hog.py", path, str(size), str(each // max(size, 2 * MIB) + 1)) for path, size in HOGS}
    got: dict[str, int] = {}
    for path, hog in hogs.items():
        assert hog.stdout is not None
        line = hog.stdout.readline().strip("[]\n")
        if line:
            got[path] = int(line.partition(",")[0])
    for hog in hogs.values():  # all of them hold what they have until here
        hog.communicate("\n", timeout=WAIT_SECONDS)
    return got


def _passed_on(container: Container, limit: int) -> None:
    """One process allocates, another opens it, the first lets go, again and again."""
    makes, takes = (_talk(container, "sharer.py", "0") for _ in range(2))

    def ask(process: subprocess.Popen[str], words: str) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(words + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip().strip('"')

    for process in (makes, takes):
        assert process.stdout is not None
        process.stdout.readline()
    for _ in range(12):
        if ask(makes, f"alloc {limit // 8}") != "0" or ask(takes, f"open {ask(makes, 'export')}") != "0":
            break
        ask(makes, "free")
    for process in (makes, takes):
        process.communicate("exit\n", timeout=WAIT_SECONDS)
