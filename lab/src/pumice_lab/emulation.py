"""The emulated part of a node: its machine, what containers find of it, and what the vendors put around a runtime."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pumice.model.errors import BadInput
from pumice.wire import variables
from pumice.wire.cdi import qualified
from pumice_lab import machine as machines
from pumice_lab.ascend_runtime import AscendRuntime
from pumice_lab.datadir import DataDir
from pumice_lab.machine.npus import create_npus, has_npus, npu_environment
from pumice_lab.runtime.spec import ContainerSpec, Exit, Runtime
from pumice_lab.spec import ClusterSpec, NodeSpec


def as_found(spec: ClusterSpec, data: DataDir) -> ClusterSpec:
    """The cluster with the cards that its emulated machines have, where nobody asked for any. Raises BadInput where others than
    those are asked for: what is booked on them would lie on cards that are not there."""
    nodes = []
    for node in spec.nodes:
        directory = data.node(node.name) / "machine"
        if not node.has_cards or node.real or not (directory / "state").exists():
            nodes.append(node)
            continue
        with machines.open_machine(directory) as opened:
            there = [card.name.decode() for card in opened.cards()]
        wanted = [card.name for card in _model(node).cards] if node.asked else there
        if wanted != there:
            raise BadInput(f"{node.name} of data dir {data.root} has {_counted(there)}, not {_counted(wanted)}: start it without "
                           "asking for cards, or name a new directory with --data-dir")  # fmt: skip
        nodes.append(node if node.asked else replace(node, cards=len(there)))
    return replace(spec, nodes=tuple(nodes))


def _counted(cards: list[str]) -> str:
    """``2 x NVIDIA A100, Tesla T4``."""
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(cards).items())


def machine_of(node: NodeSpec, directory: Path) -> str:
    """The directory of the node's emulated machine, made on first use; empty where nothing of it is emulated."""
    emulated = node.has_cards and not node.real
    if emulated and not (directory / "state").exists():
        machines.create(_model(node), directory).close()
    if node.npus and not has_npus(directory):
        create_npus([node.npu] * node.npus, directory, node.name)
    return str(directory) if emulated or node.npus else ""


def _model(node: NodeSpec) -> machines.MachineModel:
    """The model of a node's machine: its file, or so many cards of its preset."""
    if node.machine:
        return machines.load_model(node.machine)
    model = machines.machine_of(f"{node.cards}x{node.model}", name=node.name)
    if node.mig:
        model = replace(model, cards=tuple(replace(card, mig_mode=bool(card.mig)) for card in model.cards))
    return model


def container_env(machine: str) -> dict[str, str]:
    """Return the environment of every container of an emulated node, so that it meets the emulated driver."""
    if not machine:
        return {}
    front = npu_environment(machine)
    if Path(machine, "state").exists():
        with machines.open_machine(machine) as opened:
            front = opened.environment()
    return front | {"PATH": f"{front['PATH']}:{os.environ.get('PATH', '/usr/bin:/bin')}"}


def around(runtime: Runtime, machine: str, cards: bool, npus: bool) -> Runtime:
    """Return the runtime of a node with the vendors' runtimes around it."""
    shown = EmulatedCards(runtime) if cards else runtime
    return AscendRuntime(shown, machine) if npus else shown


# -- emulated cards ---------------------------------------------------------------------------------------------------

# On a machine that has no device files, the emulated driver shows a container the cards that a variable names
# (``lab/native/src/core/visible.c``); those of its CDI devices are named there.

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
