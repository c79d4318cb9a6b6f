"""Ascend's container runtime around a container (HAMi ascend-device-plugin, MindCluster ascend-docker-runtime)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.npu_nodes import NpuMachine, npu_machine

from pumice_lab.ascend_runtime import AscendRuntime
from pumice_lab.runtime.spec import ContainerSpec, Exit, StartFailed

IDENT = "ab" * 16


class Below:
    """A runtime that keeps what it is told."""

    def __init__(self, fails: bool = False, runs: frozenset[str] = frozenset()) -> None:
        self.fails, self.runs = fails, runs
        self.started: list[ContainerSpec] = []
        self.listeners: dict[str, Callable[[Exit], None]] = {}

    def running(self) -> frozenset[str]:
        return self.runs

    async def start(self, spec: ContainerSpec, on_exit: Callable[[Exit], None]) -> int:
        if self.fails:
            raise StartFailed("StartError", "no such program")
        self.started.append(spec)
        self.listeners[spec.id] = on_exit
        return 7

    def adopt(self, container_id: str, on_exit: Callable[[Exit], None]) -> bool:
        self.listeners[container_id] = on_exit
        return container_id in self.runs


def spec(**env: str) -> ContainerSpec:
    return ContainerSpec(IDENT, ("true",), env, "/dev/null")


@pytest.fixture
def machine(tmp_path: Path) -> NpuMachine:
    return npu_machine(tmp_path / "m")


def around(below: Below, machine: NpuMachine) -> AscendRuntime:
    return AscendRuntime(below, str(machine.directory))  # type: ignore[arg-type]


def nothing(ended: Exit) -> None:
    raise AssertionError("nobody ended")


def test_a_slice_is_made_before_the_container_starts_and_destroyed_before_its_end_is_known(machine: NpuMachine) -> None:
    below = Below()
    seen: list[Any] = []

    async def play() -> None:
        runtime = around(below, machine)
        over = asyncio.Event()

        def ended(exit_: Exit) -> None:
            seen.append((exit_.code, machine.slices()))
            over.set()

        await runtime.start(spec(ASCEND_VISIBLE_DEVICES="0", ASCEND_VNPU_SPECS="vir02"), ended)
        assert machine.slices() == [(100, "vir02")]
        below.listeners[IDENT](Exit(IDENT, 3))
        await asyncio.wait_for(over.wait(), 60)

    asyncio.run(play())
    assert {**below.started[0].env} == {
        "ASCEND_VISIBLE_DEVICES": "100", "ASCEND_VNPU_SPECS": "vir02", "ASCEND_RUNTIME_OPTIONS": "VIRTUAL",
    }  # fmt: skip
    assert seen == [(3, [])]


def test_a_container_that_does_not_start_leaves_no_slice(machine: NpuMachine) -> None:
    wanted = spec(ASCEND_VISIBLE_DEVICES="0", ASCEND_VNPU_SPECS="vir02")
    with pytest.raises(StartFailed, match="no such program"):
        asyncio.run(around(Below(fails=True), machine).start(wanted, nothing))
    assert machine.slices() == []


def test_whole_cards_are_left_as_they_are(machine: NpuMachine) -> None:
    below = Below()
    asyncio.run(around(below, machine).start(spec(ASCEND_VISIBLE_DEVICES="0"), nothing))
    assert below.started == [spec(ASCEND_VISIBLE_DEVICES="0")]


@pytest.mark.parametrize(
    ("env", "reported", "again"),
    [
        ({"ASCEND_VISIBLE_DEVICES": "0", "ASCEND_VNPU_SPECS": "vir03"}, "'vir03' is no template", False),
        ({"ASCEND_VISIBLE_DEVICES": "0,1", "ASCEND_VNPU_SPECS": "vir02"}, "needs exactly one visible device, not '0,1'", False),
        ({"ASCEND_VNPU_SPECS": "vir02"}, "needs exactly one visible device", False),
        ({"ASCEND_VISIBLE_DEVICES": "9", "ASCEND_VNPU_SPECS": "vir02"}, "no NPU has the physical id 9", True),
        ({"ASCEND_VISIBLE_DEVICES": "0", "ASCEND_VNPU_SPECS": "vir16"}, "no vNPU vir16 on device 0", True),
    ],
)
def test_what_cannot_be_made_is_not_started(machine: NpuMachine, env: dict[str, str], reported: str, again: bool) -> None:
    with pytest.raises(StartFailed) as refused:
        asyncio.run(around(Below(), machine).start(spec(**env), nothing))
    assert reported in refused.value.message
    assert refused.value.transient is again


def test_a_node_that_comes_up_again_tells_the_driver_which_containers_are_no_more(machine: NpuMachine) -> None:
    machine.hook("make", "0", "vir02", IDENT)
    machine.hook("make", "0", "vir01", "cd" * 16)
    around(Below(runs=frozenset({"cd" * 16})), machine)
    assert [row.container for row in machine.state.chips[0].slices if row.used] == [0, 0xCDCDCDCDCDCD]


def test_a_slice_that_a_device_plugin_made_is_opened_by_its_container_and_outlives_it(machine: NpuMachine) -> None:
    made = machine.make("vir02")
    below = Below()

    async def play() -> None:
        over = asyncio.Event()
        await around(below, machine).start(spec(ASCEND_VISIBLE_DEVICES=str(made), ASCEND_RUNTIME_OPTIONS="VIRTUAL"),
                                           lambda _: over.set())  # fmt: skip
        assert [row.container for row in machine.state.chips[0].slices if row.used] == [int(IDENT[:12], 16)]
        around(Below(runs=frozenset({IDENT})), machine).adopt(IDENT, lambda _: over.set())  # the node came up again
        below.listeners[IDENT](Exit(IDENT, 0))
        await asyncio.wait_for(over.wait(), 60)

    asyncio.run(play())
    assert machine.slices() == [(made, "vir02")]
    assert [row.container for row in machine.state.chips[0].slices if row.used] == [0]


@pytest.mark.parametrize(
    ("visible", "reported", "again"),
    [
        ("107", "vNPU 107 cannot be mapped: there is no vNPU 107", True),
        ("100,101", "needs exactly one vNPU, not '100,101'", False),
    ],
)  # fmt: skip
def test_a_slice_that_is_not_there_is_not_mapped(machine: NpuMachine, visible: str, reported: str, again: bool) -> None:
    wanted = spec(ASCEND_VISIBLE_DEVICES=visible, ASCEND_RUNTIME_OPTIONS="VIRTUAL")
    with pytest.raises(StartFailed) as refused:
        asyncio.run(around(Below(), machine).start(wanted, nothing))
    assert reported in refused.value.message
    assert refused.value.transient is again
