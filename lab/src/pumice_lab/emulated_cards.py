"""On a machine that has no device files, the emulated driver shows a container the cards that a variable names
(``lab/native/src/core/visible.c``); those of its CDI devices are named there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pumice.wire import variables
from pumice.wire.cdi import qualified
from pumice_lab.runtime.spec import ContainerSpec, Exit, Runtime

CARDS = qualified("")


class EmulatedCards:
    """Everything but starting is the runtime's below."""

    def __init__(self, below: Runtime) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        if cards := [name.removeprefix(CARDS) for name in spec.cdi_devices if name.startswith(CARDS)]:
            spec = replace(spec, env={**spec.env, variables.NVIDIA_VISIBLE_DEVICES: ",".join(cards)})
        return await self._below.start(spec, on_exit)
