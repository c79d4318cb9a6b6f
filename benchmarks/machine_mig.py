"""Random MIG calls on an emulated machine, every verdict compared with an independent checker of NVIDIA's rules.

    python -m benchmarks.machine_mig [--calls 1000000] [--quick]

Bar: every verdict equal. CI runs a hundredth of it (lab/tests/unit/machine), the whole by `make soak` or by hand.
"""

from __future__ import annotations

import os
import sys
import time
from ctypes import byref
from pathlib import Path
from random import Random
from typing import Any

import pynvml
from kit.mig_rules import RULES, Partitioned, Rule, Verdict

from benchmarks.machine_checks import run_check
from pumice_lab.machine import create, machine_of, nvml_library

_NAMES = {
    0: Verdict.SUCCESS,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Verdict.INVALID,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: Verdict.FULL,
    pynvml.NVML_ERROR_IN_USE: Verdict.IN_USE,
    pynvml.NVML_ERROR_NOT_FOUND: Verdict.NOT_FOUND,
}


class Mismatch(AssertionError):
    """The machine and the checker disagree; the text says on what."""


class Card:
    """One card of the machine beside its checker."""

    def __init__(self, model: str, handle: Any, rng: Random) -> None:
        self.model, self.handle, self.rng = model, handle, rng
        self.partitioned = Partitioned(RULES[model])
        self.handles: dict[int, Any] = {}  # by GPU instance id
        self.computes: dict[int, Any] = {}

    def step(self) -> None:
        """One random call."""
        match self.rng.choices(("create", "place", "destroy", "compute", "room"), (40, 20, 28, 8, 4))[0]:
            case "create":
                self._create(self._profile(), None)
            case "place":
                self._create(self._profile(), self.rng.randrange(9))
            case "destroy":
                self._destroy()
            case "compute":
                self._compute()
            case _:
                profile = self.rng.choice(list(self.partitioned.rules))
                room = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(self.handle, profile)
                self._same(f"room for {self.partitioned.rules[profile].name}", room, self.partitioned.room(profile))

    def _profile(self) -> int:
        """Small profiles more often than large ones, so that the card is seldom one big instance; rarely a wrong id."""
        if self.rng.random() < 0.02:
            return 77
        ids = list(self.partitioned.rules)
        return self.rng.choices(ids, [1 / self.partitioned.rules[number].length for number in ids])[0]

    def _create(self, profile: int, begin: int | None) -> None:
        expected = self.partitioned.verdict(profile, begin)
        instance = pynvml.c_nvmlGpuInstance_t()
        if begin is None:
            code = pynvml.nvmlLib.nvmlDeviceCreateGpuInstance(self.handle, profile, byref(instance))
        else:
            length = self.partitioned.rules[profile].length if profile in self.partitioned.rules else 1
            place = pynvml.c_nvmlGpuInstancePlacement_t(begin, length)
            call = pynvml.nvmlLib.nvmlDeviceCreateGpuInstanceWithPlacement
            code = call(self.handle, profile, byref(place), byref(instance))
        rule = self.partitioned.rules.get(profile, Rule("no such profile", 0, ()))
        self._same(f"create {rule.name} at {begin}", _NAMES.get(code, code), expected)
        if code == 0:
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            self._same(f"placement of {rule.name}", info.placement.size, rule.length)
            self._same("a new id", info.id in self.handles, False)
            if begin is not None:
                self._same(f"start of {rule.name}", info.placement.start, begin)
            self.partitioned.place(info.id, profile, info.placement.start)
            self.handles[info.id] = instance

    def _destroy(self) -> None:
        if not self.handles:
            return
        key = self.rng.choice(list(self.handles))
        expected = self.partitioned.removal(key)
        code = pynvml.nvmlLib.nvmlGpuInstanceDestroy(self.handles[key])
        self._same(f"destroy {key}", _NAMES.get(code, code), expected)
        if code == 0:
            self.partitioned.remove(key)
            del self.handles[key]

    def _compute(self) -> None:
        """Fills an instance with a compute instance, or empties it again."""
        if not self.handles:
            return
        key = self.rng.choice(list(self.handles))
        if key in self.computes:
            pynvml.nvmlComputeInstanceDestroy(self.computes.pop(key))
            self.partitioned.instances[key].computing = 0
            return
        self.computes[key] = pynvml.nvmlGpuInstanceCreateComputeInstance(self.handles[key], self._full_profile(key))
        self.partitioned.instances[key].computing = 1

    def _full_profile(self, key: int) -> int:
        """The id of the compute instance profile that fills the instance."""
        best = (0, 0)
        for kind in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(self.handles[key], kind, 0)
            except pynvml.NVMLError:
                continue
            best = max(best, (info.sliceCount, info.id))
        return best[1]

    def _same(self, what: str, machine: object, checker: object) -> None:
        if machine != checker:
            held = {
                key: (self.partitioned.rules[made.profile].name, made.begin)
                for key, made in self.partitioned.instances.items()
            }
            raise Mismatch(f"{self.model}: {what}: the machine says {machine}, the checker {checker}; held: {held}")


def run(calls: int, seed: int, directory: Path) -> dict[str, object]:
    """``calls`` random calls over one card of every model; raises ``Mismatch`` at the first difference."""
    rng = Random(seed)
    models = list(RULES)
    with create(machine_of(models), directory):
        os.environ["PUMICE_MACHINE"] = str(directory)
        nvml_library()
        pynvml.nvmlInit()
        cards = [Card(model, pynvml.nvmlDeviceGetHandleByIndex(index), rng) for index, model in enumerate(models)]
        for card in cards:
            pynvml.nvmlDeviceSetMigMode(card.handle, 1)
        started = time.perf_counter()
        for _ in range(calls):
            rng.choice(cards).step()
        spent = time.perf_counter() - started
        pynvml.nvmlShutdown()
    return {"calls": calls, "seed": seed, "mismatches": 0, "seconds": round(spent, 2), "cards": models}


def main(argv: list[str] | None = None) -> int:
    return run_check("machine_mig", __doc__, argv, run, unit="calls", many=1_000_000, broken=Mismatch)


if __name__ == "__main__":
    sys.exit(main())
