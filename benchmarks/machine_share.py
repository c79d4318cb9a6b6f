"""Many processes of several threads on one emulated card: no update of the shared books is lost.

    python -m benchmarks.machine_share [--processes 64] [--threads 4] [--quick]

Every thread allocates, frees and launches at random and keeps its own sums; at the end the witness's sums must equal them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from ctypes import addressof, c_uint64, c_void_p
from pathlib import Path
from random import Random

from kit.results import arguments, save

from pumice.adapters.load import Driver

KERNEL_NS = 1000
SPIN = b"pumice-kernel name=pumice_spin_ns ns=1\n\0"


def work(seed: int, threads: int, rounds: int) -> dict[str, int]:
    """One process: its threads' launches, and the bytes that they still hold at the end."""
    driver = Driver()
    device = driver.device(0)
    driver.use(device)
    kernel = driver.kernel(SPIN, "pumice_spin_ns")
    sums = [{"launches": 0, "held": 0} for _ in range(threads)]

    def one(number: int) -> None:
        driver.use(device)
        rng, mine, blocks = Random(seed * 1000 + number), sums[number], []
        stream = driver.stream()
        value = c_uint64(KERNEL_NS)
        parameters = (c_void_p * 1)(addressof(value))
        for _ in range(rounds):
            match rng.randrange(3):
                case 0:
                    size = rng.randrange(1, 100_000)
                    blocks.append((driver.allocate(size), size))
                    mine["held"] += size
                case 1 if blocks:
                    pointer, size = blocks.pop(rng.randrange(len(blocks)))
                    driver.free(pointer)
                    mine["held"] -= size
                case _:
                    driver.launch(kernel, parameters, stream)
                    mine["launches"] += 1

    running = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    driver.synchronize()
    return {key: sum(mine[key] for mine in sums) for key in ("launches", "held")}


def run(processes: int, threads: int, rounds: int, directory: Path) -> dict[str, object]:
    """Starts the processes, adds up what they say and what the witness says."""
    from pumice_lab.machine import create, machine_of

    begun = time.perf_counter()
    with create(machine_of("H200"), directory) as machine:
        environment = {**os.environ, **machine.environment(), "PATH": os.environ["PATH"]}
        words = [sys.executable, "-m", "benchmarks.machine_share", "--threads", str(threads), "--rounds", str(rounds), "--worker"]
        started = [
            subprocess.Popen([*words, str(seed)], env=environment, stdout=subprocess.PIPE, text=True)
            for seed in range(processes)
        ]
        reported = [json.loads(program.communicate(timeout=300)[0]) for program in started]
        shares = machine.witness().shares
        left = machine.card(0).lanes[0].used_bytes
    said = {"launches": sum(t["launches"] for t in reported), "held": sum(t["held"] for t in reported)}
    seen = {"launches": sum(s.launches for s in shares), "held": sum(s.requested for s in shares)}
    busy = sum(share.busy_ns for share in shares)
    return {
        "processes": processes, "threads": threads, "said": said, "seen": seen, "busy_ns": busy, "left_bytes": left,
        "equal": said == seen and busy == KERNEL_NS * said["launches"] and left == 0,
        "seconds": round(time.perf_counter() - begun, 2),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="an eighth of the processes, a quarter of the rounds")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker is not None:
        print(json.dumps(work(given.worker, given.threads, given.rounds)))
        return 0
    if given.quick:
        given.processes, given.rounds = given.processes // 8, given.rounds // 4
    with tempfile.TemporaryDirectory() as folder:
        result = run(given.processes, given.threads, given.rounds, Path(folder) / "machine")
    save("machine_share", result, keep=given.save)
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
