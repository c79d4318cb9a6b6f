"""Memory limits hold, and kills leave nothing behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from kit.vgpu_kit import MIB, MIXES, Container, on_a_switch
from kit.vgpu_talk import Tenant

from benchmarks.native.harness import MS, PROGRAMS, TESTS, Figures, on, run, under
from pumice_lab import machine


def allocations(figures: Figures, count: int) -> None:
    # Together the threads want rather more than there is, so they meet the limit again and again.
    knobs = {"VGPU_GRANTS": str(count), "VGPU_LARGEST": "2000000", "LIBCUDA_LOG_LEVEL": "0"}
    out = subprocess.run([TESTS / "test_memory"], env={**os.environ, **knobs}, capture_output=True, text=True)
    words = out.stdout.split()
    figures.least("grants from 6 processes x 4 threads", int(words[0]), count)
    figures.report("refusals among them", int(words[2]))
    over = max(0, int(words[6]) - int(words[8]))
    figures.goal("bytes over the limit", over)
    figures.goal("other failures of the run", out.returncode)


def witness(figures: Figures, folder: Path, count: int) -> None:
    """Every path at once by a dozen processes; the machine's own count of the card is the witness, and knows no books."""
    done, refused, above = 0, 0, 0
    for number, mix in enumerate(MIXES):
        card = folder / f"mill{number}"
        machine.create(on_a_switch("H100-SXM5-80GB"), card)  # multicast needs a switch
        env = on(card, **under(folder / f"mill{number}.cache", CUDA_DEVICE_MEMORY_LIMIT=str(mix.limit)))
        words = (PROGRAMS / "mill", "12", str(count // len(MIXES)), str(mix.largest), *mix.paths.split())
        counts = run(*words, env=env, timeout=3600)
        done += sum(2 * granted + no for granted, no in counts.values())  # what was had was given back
        refused += sum(no for _, no in counts.values())
        above = max(above, machine.open_machine(card).peak(0) - mix.limit)
    figures.report("operations of 12 processes by every path", done)
    figures.report("refused among them", refused)
    figures.goal("every path at once, by the card's own count: bytes above the limit", above)


def deaths(figures: Figures, folder: Path, rounds: int) -> None:
    """Two processes are killed at a random moment, amid one path or all; a third asks until it is told the right figure."""
    card, limit = folder / "deaths", 8000 * MIB
    machine.create(on_a_switch("H100-SXM5-80GB"), card)
    container = Container(card, folder, {"CUDA_DEVICE_MEMORY_LIMIT": str(limit), "LIBCUDA_LOG_LEVEL": "0"})
    every = " ".join({path for mix in MIXES for path in mix.paths.split()})
    amid, longest, chance = [*every.split(), every], 0.0, random.Random(7)
    with Tenant(container) as survivor:
        free = survivor.ask("info")[0]
        for number in range(rounds):
            words = [PROGRAMS / "mill", "2", "1000000000", str(100 * MIB), *amid[number % len(amid)].split()]
            dying = subprocess.Popen(words, env=container.environment(), stdout=subprocess.PIPE, start_new_session=True)
            time.sleep(chance.uniform(0.05, 0.5))
            os.killpg(dying.pid, signal.SIGKILL)
            killed = time.monotonic()
            while survivor.ask("info")[0] != free and time.monotonic() < killed + 60:
                time.sleep(0.001)
            longest = max(longest, time.monotonic() - killed)
            dying.communicate()
    figures.report("pairs of processes killed, amid every path", rounds)
    figures.goal("free memory after a sibling's death: longest until it is right", longest * 1000)


def usable(figures: Figures, folder: Path) -> None:
    """The largest sum of blocks over what the limit leaves beside the context, in blocks of 1 MiB and to the byte."""
    region = folder / "usable.cache"
    words = (PROGRAMS / "fill", str(1 << 20))
    granted, free = run(*words, env=on(folder / "real", **under(region, CUDA_DEVICE_MEMORY_LIMIT="3g")))
    figures.goal("usable share of the limit beside the context", granted / free)
    figures.goal("and above it", max(0, granted - free))


def chaos(figures: Figures, folder: Path, rounds: int) -> None:
    region = folder / "chaos.cache"
    env = on(folder / "real", **under(region, CUDA_DEVICE_MEMORY_LIMIT="3g"))
    out = subprocess.run([PROGRAMS / "chaos", "0", "4", str(rounds)], env=env, capture_output=True, text=True)
    figures.goal("lost bytes, locks or slots left by kills", out.returncode)  # it looks for all three itself
    done, longest, waits, late = json.loads(out.stdout or "[0, 0, 0, 0]")
    figures.least("kills at random moments", done, rounds)
    figures.report("waits for a lock", waits)
    figures.goal("of them given up", late)
    figures.goal("longest wait for a lock, by the library's counter", longest / MS)


def fuzz(figures: Figures, count: int) -> None:
    env = {**os.environ, "VGPU_FUZZ": str(count)}
    done = subprocess.run([TESTS / "test_fuzz"], env=env, capture_output=True, check=False)
    figures.report("made-up heads of regions and limit texts", count)
    figures.goal("failures of the fuzzer", done.returncode)
