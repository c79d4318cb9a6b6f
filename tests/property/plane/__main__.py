"""Play histories of the whole plane: until one breaks a promise, or so many faults were played.

    python -m tests.property.plane --seed 7 --faults 10000
    python -m tests.property.plane --processes 2 --minutes 3.5 --faults 10000 --shrink    # as CI does
    python -m tests.property.plane --defects --faults 10000    # which planted defects are found, and by which judge
    python -m tests.property.plane --seed 1 --defects --faults 1000 --save    # kept in found.json
    nice -n 10 python -m tests.property.plane --defects --again --save --faults 10000    # from the seeds that found them
    python -m tests.property.plane --seed 7 --every 8    # under one configuration
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.property.plane.defects import defects

STEPS = 80
FIXED = 20_260
"""The first seed where ``PUMICE_CI`` is set."""
APART = 1_000_000
"""Between the first seeds of two processes."""
CONFIGURATIONS = 8
"""So many there are, in turn by seed."""
FOUND = Path(__file__).with_name("found.json")
"""What was found by the last run that said ``--save``: the judge, or null where so many faults found nothing."""


def play(seed: int, faults: int, minutes: float, *, every: int, shrink: bool) -> int:
    """Return 1 where a history broke a promise, which is printed with its seed as a short story. ``minutes``: end after so
    many, however many faults were played."""
    from tests.property.history.runner import draw, shrunk
    from tests.property.plane.door import PlaneDoor
    from tests.property.plane.loop import virtually
    from tests.property.plane.world import conf_of

    doors: list[PlaneDoor] = []

    def door(*given: object) -> PlaneDoor:
        doors.append(PlaneDoor(*given))  # type: ignore[arg-type]
        return doors[-1]

    struck: Counter[tuple[str, str]] = Counter()
    played, first, began, end = 0, seed, time.process_time(), time.monotonic() + 60 * minutes
    while played < faults and (time.monotonic() < end or seed == first):
        found = draw(seed, door, steps=STEPS, drive=virtually, conf=conf_of(seed))
        played += doors[-1].struck.faults
        struck += doors[-1].struck
        if found.complaints:
            print(f"seed {seed}, after {played} faults: {'; '.join(map(str, found.complaints[:3]))}", flush=True)
            if shrink:
                print(shrunk(found, door, drive=virtually).text())
            return 1
        doors.clear()
        seed += every
    seconds = time.process_time() - began
    print(f"seeds {first} to {seed - 1}: {played} faults, 0 violations, {len(struck)} pairs of a fault and an effect, "
          f"{seconds:.0f} s of CPU")  # fmt: skip
    for (fault, effect), count in sorted(struck.items()):
        print(f"  {count:6}  {fault:14} {effect}")
    return 0


def play_beside(seed: int, faults: int, minutes: float, processes: int, *, every: int, shrink: bool) -> int:
    """Play in so many processes, each with seeds and a part of the faults of its own."""
    running = []
    for number in range(processes):
        command = [sys.executable, "-m", "tests.property.plane", "--seed", str(seed + number * APART), "--every", str(every),
                   "--minutes", str(minutes), "--faults", str(-(-faults // processes)), *["--shrink"][:shrink]]  # fmt: skip
        running.append(subprocess.Popen(command))
    return max([process.wait() for process in running])


def kept() -> dict[str, dict[str, Any]]:
    """Return what was found of each defect, by its name."""
    return json.loads(FOUND.read_text("utf-8")) if FOUND.exists() else {}


def planted(name: str, seed: int, faults: int, every: int) -> tuple[bool, str]:
    """Plant a defect in a process of its own, and return whether a history found it, and what was said first."""
    command = [sys.executable, "-m", "tests.property.plane", "--seed", str(seed), "--faults", str(faults),
               "--every", str(every), "--defect", name]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()[0] if done.stdout else done.stderr[-300:]
    return done.returncode == 1 and said.startswith("seed "), said


def find_defects(seed: int, faults: int, names: str, save: bool, every: int, *, again: bool) -> int:
    """Plant one after the other. ``save``: note for each at how many faults it was found, and by which judge. ``again``: begin
    with the seed that found it, and stay under its configuration."""
    missed = 0
    for defect in defects():
        if names not in defect.name:
            continue
        before = kept().get(defect.name, {})
        first, apart = (before["seed"], CONFIGURATIONS) if again and before.get("judge") else (seed, every)
        found, said = planted(defect.name, first, faults, apart)
        missed += not found
        print(f"{'found ' if found else 'MISSED'}  {defect.part:12} {defect.name}: {said[:160]}", flush=True)
        if save:
            words = re.match(r"seed (\d+), after (\d+) faults: (\w[\w ]*): ", said)
            result = {"part": defect.part, "seed": first, "faults": faults, "judge": None}
            if words is not None:
                result |= {"seed": int(words[1]), "faults": int(words[2]), "judge": words[3], "every": CONFIGURATIONS}
            FOUND.write_text(json.dumps({**kept(), defect.name: result}, indent=1, sort_keys=True) + "\n")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="of the first history; drawn and printed unless given")
    parser.add_argument("--every", type=int, default=1, help="leave out the seeds between; 8: all under one configuration")
    parser.add_argument("--faults", type=int, default=1_000)
    parser.add_argument("--defects", nargs="?", const="", metavar="NAME", help="plant each defect whose name has this in it")
    parser.add_argument("--defect", default="", help="plant this one")
    parser.add_argument("--again", action="store_true", help="with --defects: begin with the seeds that found them")
    parser.add_argument("--save", action="store_true", help="with --defects: keep what was found in found.json")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="play no new history after so many")
    parser.add_argument("--processes", type=int, default=1, help="play in so many at once")
    parser.add_argument("--shrink", action="store_true", help="leave steps out of the history that broke something")
    given = parser.parse_args()
    seed = given.seed
    if seed is None:
        seed = FIXED if "PUMICE_CI" in os.environ else SystemRandom().randrange(10**9)
        print(f"from seed {seed}", flush=True)
    if given.defects is not None:
        return find_defects(seed, given.faults, given.defects, given.save, given.every, again=given.again)
    if given.defect:
        next(defect for defect in defects() if defect.name == given.defect).plant()
    logging.disable(logging.CRITICAL)
    if given.processes > 1:
        return play_beside(seed, given.faults, given.minutes, given.processes, every=given.every, shrink=given.shrink)
    return play(seed, given.faults, given.minutes, every=given.every, shrink=given.shrink)


if __name__ == "__main__":
    sys.exit(main())
