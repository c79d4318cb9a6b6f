"""What of a node is emulated: its machine, what containers find of it, and what the vendors put around a runtime."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pumice import machine as machines
from pumice.cluster.ascend_runtime import AscendRuntime
from pumice.cluster.emulated_cards import EmulatedCards
from pumice.cluster.runtime.spec import Runtime
from pumice.cluster.spec import NodeSpec
from pumice.machine.npus import create_npus, has_npus, npu_environment


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
    """What every container of an emulated node finds in its environment, so that it meets the emulated driver."""
    if not machine:
        return {}
    front = npu_environment(machine)
    if Path(machine, "state").exists():
        with machines.open_machine(machine) as opened:
            front = opened.environment()
    return front | {"PATH": f"{front['PATH']}:{os.environ.get('PATH', '/usr/bin:/bin')}"}


def around(runtime: Runtime, machine: str, cards: bool, npus: bool) -> Runtime:
    """What stands around a node's runtime, as the vendors' do."""
    shown = EmulatedCards(runtime) if cards else runtime
    return AscendRuntime(shown, machine) if npus else shown
