"""``ascend-docker-runtime`` as a layer around any runtime on a node with NPUs: it has the slice made that a
container is to have, tells the container which it is, and has it destroyed when the container has ended. A slice that a device
plugin has made is mapped into the container, and stays."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pumice.adapters.dcmi import DcmiVnpus
from pumice.ports.cards import CardsUnavailable
from pumice.ports.slices import NpuRefused
from pumice.wire import variables
from pumice_lab.machine.native import library_dir
from pumice_lab.machine.npus import end_containers, read_npus
from pumice_lab.runtime.spec import ContainerSpec, Exit, Runtime, StartFailed


def make(vnpus: DcmiVnpus, physical: int, template: str, container: int) -> int:
    chip = vnpus.chip_of(physical)
    ident = vnpus.make(chip, template)
    vnpus.use(chip, ident, container)
    return ident


def destroy(vnpus: DcmiVnpus, container: int) -> None:
    for chip in vnpus.chips():
        for slice_ in vnpus.list(chip):
            if slice_.container == container:
                vnpus.use(chip, slice_.id, 0)
                vnpus.destroy(chip, slice_.id)


def open_slice(vnpus: DcmiVnpus, ident: int, container: int) -> None:
    for chip in vnpus.chips():
        if any(slice_.id == ident for slice_ in vnpus.list(chip)):
            vnpus.use(chip, ident, container)
            return
    raise NpuRefused(f"there is no vNPU {ident}")


def close(vnpus: DcmiVnpus, container: int) -> None:
    for chip in vnpus.chips():
        for slice_ in vnpus.list(chip):
            if slice_.container == container:
                vnpus.use(chip, slice_.id, 0)


def driver_id(container: str) -> int:
    """Return the driver's id of a container: its first twelve hexadecimal digits."""
    return int(container[:12], 16)


def main(words: list[str]) -> int:
    try:
        vnpus = DcmiVnpus(str(library_dir()))
        match words:
            case ["make", physical, template, container]:
                print(make(vnpus, int(physical), template, driver_id(container)))
            case ["destroy", container]:
                destroy(vnpus, driver_id(container))
            case ["open", ident, container]:
                open_slice(vnpus, int(ident), driver_id(container))
            case ["close", container]:
                close(vnpus, driver_id(container))
            case _:
                raise NpuRefused(f"npu_hook: {' '.join(words)!r} cannot be meant")
    except (NpuRefused, CardsUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


log = logging.getLogger("pumice.runtime")

VIRTUAL: Final = "VIRTUAL"
"""The option by which a container's device is a vNPU."""
TEMPLATES: Final = frozenset((
    "vir01", "vir02", "vir04", "vir08", "vir16", "vir02_1c", "vir03_1c_8g", "vir04_3c", "vir04_4c_dvpp", "vir04_3c_ndvpp",
    "vir05_1c_8g", "vir05_1c_16g", "vir06_1c_16g", "vir10_3c_16g", "vir10_3c_16g_nm", "vir10_3c_32g", "vir10_4c_16g_m",
    "vir12_3c_32g",
))  # fmt: skip
"""The names that the runtime knows (HAMi ascend-device-plugin)."""


class AscendRuntime:
    """Everything but starting and ending is the runtime's below. ``machine``: the node's, whose driver is asked by a program of
    its own, because the driver's library serves one machine in one process."""

    def __init__(self, below: Runtime, machine: str) -> None:
        self._below, self._machine = below, machine
        self._mapped = Path(machine, "mapped")
        self._leaving: set[asyncio.Task[None]] = set()
        running = below.running()
        end_containers(machine, {driver_id(container) for container in running})
        for mark in self._mapped.glob("*"):
            if mark.name not in running:
                mark.unlink()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        if template := spec.env.get(variables.ASCEND_VNPU_SPECS, ""):
            spec = await self._with_slice(spec, template)
        elif VIRTUAL in spec.env.get(variables.ASCEND_RUNTIME_OPTIONS, ""):
            await self._map(spec)
        try:
            return await self._below.start(spec, self._ending(on_exit))
        except StartFailed:
            await self._leave(spec.id)
            raise

    def adopt(self, container_id: str, on_exit: Callable[[Exit], None]) -> bool:
        return self._below.adopt(container_id, self._ending(on_exit))

    async def _with_slice(self, spec: ContainerSpec, template: str) -> ContainerSpec:
        visible = spec.env.get(variables.ASCEND_VISIBLE_DEVICES, "")
        if template not in TEMPLATES:
            raise StartFailed("StartError", f"{variables.ASCEND_VNPU_SPECS}: {template!r} is no template that the runtime knows")
        if not (visible.isascii() and visible.isdecimal()):
            raise StartFailed("StartError", f"{variables.ASCEND_VNPU_SPECS} needs exactly one visible device, not {visible!r}")
        ok, text = await self._hook("make", visible, template, spec.id)
        if not ok:
            raise StartFailed("StartError", f"no vNPU {template} on device {visible}: {text}", transient=True)
        env = {**spec.env, variables.ASCEND_VISIBLE_DEVICES: text, variables.ASCEND_RUNTIME_OPTIONS: VIRTUAL}
        return replace(spec, env=env)

    async def _map(self, spec: ContainerSpec) -> None:
        visible = spec.env.get(variables.ASCEND_VISIBLE_DEVICES, "")
        if not (visible.isascii() and visible.isdecimal()):
            text = f"{variables.ASCEND_RUNTIME_OPTIONS} {VIRTUAL} needs exactly one vNPU, not {visible!r}"
            raise StartFailed("StartError", text)
        await asyncio.to_thread(self._mark, spec.id)
        ok, text = await self._hook("open", visible, spec.id)
        if not ok:
            await self._leave(spec.id)
            raise StartFailed("StartError", f"vNPU {visible} cannot be mapped: {text}", transient=True)

    def _mark(self, container: str) -> None:
        """Its slice is not the runtime's to destroy, whoever sees its end."""
        self._mapped.mkdir(exist_ok=True)
        (self._mapped / container).touch()

    def _ending(self, on_exit: Callable[[Exit], None]) -> Callable[[Exit], None]:
        def ended(exit_: Exit) -> None:
            if not self._has_slice(exit_.id):
                on_exit(exit_)
                return
            task = asyncio.create_task(self._leave(exit_.id))
            self._leaving.add(task)  # a loop forgets tasks that nobody holds
            task.add_done_callback(self._leaving.discard)
            # The post-stop hook comes before the container is known to have ended.
            task.add_done_callback(lambda _: on_exit(exit_))

        return ended

    def _has_slice(self, container: str) -> bool:
        state = read_npus(self._machine)
        return any(s.used and s.container == driver_id(container) for chip in state.chips for s in chip.slices)

    async def _leave(self, container: str) -> None:
        mark = self._mapped / container
        if self._has_slice(container):
            ok, text = await self._hook("close" if mark.exists() else "destroy", container)
            if not ok:
                log.warning("a vNPU was left behind: %s", text)
        mark.unlink(missing_ok=True)

    async def _hook(self, *words: str) -> tuple[bool, str]:
        hook = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pumice_lab.ascend_runtime", *words, env={**os.environ, variables.MACHINE: self._machine},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)  # fmt: skip
        out, err = await hook.communicate()
        return hook.returncode == 0, (out if hook.returncode == 0 else err).decode(errors="replace").strip()
