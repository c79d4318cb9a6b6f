"""nvidia-ml-py's own calls on an emulated machine."""

from __future__ import annotations

import ctypes
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml as nvml
import pytest

from pumice_lab.machine import Machine, MachineError, create, load_model, nvml_library

MODEL = """\
machine: n1
driver: 535.104.05
cuda: "12.2"
cards:
- {preset: A100-SXM4-40GB, count: 2, numa: 0}
- {preset: GeForce-GTX-1080-Ti}
"""
MIB = 1 << 20
READ = 0  # nvidia-ml-py's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    try:
        nvml_library()
    except MachineError as error:
        pytest.skip(str(error))
    made = create(load_model(MODEL), tmp_path / "machine")
    monkeypatch.setenv("PUMICE_MACHINE", str(made.directory))
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    nvml.nvmlInit()
    yield made
    nvml.nvmlShutdown()
    made.close()


def _refusal(call: Callable[[], object]) -> int:
    with pytest.raises(nvml.NVMLError) as caught:
        call()
    return int(caught.value.value)


def test_a_card_says_who_it_is(machine: Machine) -> None:
    assert nvml.nvmlSystemGetDriverVersion() == "535.104.05"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12020
    assert nvml.nvmlDeviceGetCount() == 3
    card = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetName(card) == "NVIDIA A100-SXM4-40GB"
    assert nvml.nvmlDeviceGetCudaComputeCapability(card) == (8, 0)
    assert nvml.nvmlDeviceGetIndex(card) == 1
    uuid = nvml.nvmlDeviceGetUUID(card)
    pci = nvml.nvmlDeviceGetPciInfo(card).busId
    for same in (nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(pci)):
        assert nvml.nvmlDeviceGetUUID(same) == uuid


def test_both_forms_of_memory_information_add_up(machine: Machine) -> None:
    machine.set_stranger_memory(0, 1000)
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    first = nvml.nvmlDeviceGetMemoryInfo(card)
    second = nvml.nvmlDeviceGetMemoryInfo(card, version=nvml.nvmlMemory_v2)
    assert first.total == second.total == first.used + first.free
    assert second.used == 1000 * MIB
    assert second.reserved == first.used - second.used
    assert second.total == second.reserved + second.used + second.free


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("nvmlDeviceGetPersistenceMode", int),
        ("nvmlDeviceGetComputeMode", int),
        ("nvmlDeviceGetPowerUsage", int),
        ("nvmlDeviceGetPowerManagementLimit", int),
        ("nvmlDeviceGetEnforcedPowerLimit", int),
        ("nvmlDeviceGetPerformanceState", int),
        ("nvmlDeviceGetUtilizationRates", nvml.c_nvmlUtilization_t),
        ("nvmlDeviceGetEncoderUtilization", list),
        ("nvmlDeviceGetDecoderUtilization", list),
        ("nvmlDeviceGetBAR1MemoryInfo", nvml.c_nvmlBAR1Memory_t),
        ("nvmlDeviceGetEccMode", list),
        ("nvmlDeviceGetMigMode", list),
        ("nvmlDeviceGetNumaNodeId", int),
        ("nvmlDeviceGetMinorNumber", int),
        ("nvmlDeviceGetArchitecture", int),
        ("nvmlDeviceGetBrand", int),
        ("nvmlDeviceGetSupportedEventTypes", int),
        ("nvmlDeviceGetComputeRunningProcesses", list),
        ("nvmlDeviceGetGraphicsRunningProcesses", list),
        ("nvmlDeviceGetMPSComputeRunningProcesses", list),
        ("nvmlDeviceGetMaxMigDeviceCount", int),
        ("nvmlDeviceGetTotalEnergyConsumption", int),
        ("nvmlDeviceGetCurrPcieLinkGeneration", int),
        ("nvmlDeviceGetSupportedMemoryClocks", list),
    ],
)
def test_what_daemons_ask_is_answered(machine: Machine, name: str, answer: type) -> None:
    assert isinstance(getattr(nvml, name)(nvml.nvmlDeviceGetHandleByIndex(0)), answer)


ODD = {
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceGetHandleBySerial",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByUUIDV",
}


def _askers() -> list[str]:
    """Every call of nvidia-ml-py that takes a card and nothing else it needs."""
    found = []
    for name, function in inspect.getmembers(nvml, inspect.isfunction):
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if name.startswith("nvmlDeviceGet") and len(needed) == 1 and name not in ODD:
            found.append(name)
    return found


@pytest.mark.parametrize("name", _askers())
def test_every_question_about_a_card_has_an_answer_or_is_not_supported(machine: Machine, name: str) -> None:
    ask: Any = getattr(nvml, name)
    answer = nvml.NVML_SUCCESS
    try:
        ask(nvml.nvmlDeviceGetHandleByIndex(0))
    except nvml.NVMLError as refusal:
        answer = refusal.value
    assert answer in (
        nvml.NVML_SUCCESS,
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_NOT_FOUND,
    )


def test_cards_know_each_other(machine: Machine) -> None:
    one, other, old = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3))
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(one, one) == nvml.NVML_TOPOLOGY_INTERNAL
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(one, other) > nvml.NVML_TOPOLOGY_INTERNAL
    assert nvml.nvmlDeviceGetP2PStatus(one, other, READ) == nvml.NVML_P2P_STATUS_OK
    assert nvml.nvmlDeviceGetP2PStatus(one, old, READ) != nvml.NVML_P2P_STATUS_OK
    affinity = nvml.nvmlDeviceGetMemoryAffinity(one, 1, nvml.NVML_AFFINITY_SCOPE_NODE)
    assert list(affinity) == [1]


def test_a_card_of_no_node_is_near_every_processor(machine: Machine) -> None:
    old = nvml.nvmlDeviceGetHandleByIndex(2)
    near = nvml.nvmlDeviceGetCpuAffinityWithinScope(old, 16, nvml.NVML_AFFINITY_SCOPE_SOCKET)
    assert sum(int(word).bit_count() for word in near) >= len(os.sched_getaffinity(0))


def test_cards_have_identifiers_of_their_own_that_last(machine: Machine) -> None:
    seen = [nvml.nvmlDeviceGetPdi(nvml.nvmlDeviceGetHandleByIndex(i)) for i in (0, 1, 2, 0)]
    assert len(set(seen)) == 3
    assert seen[0] == seen[3]


def test_a_card_that_is_linked_to_others_says_where_on_their_board_it_sits(tmp_path: Path, machine: Machine) -> None:
    assert nvml.nvmlDeviceGetModuleId(nvml.nvmlDeviceGetHandleByIndex(0)) == 0
    create(load_model("cards: [{preset: A100-SXM4-40GB, count: 2, nvlink: switch}]"), tmp_path / "board").close()
    os.environ["PUMICE_MACHINE"] = str(tmp_path / "board")
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    modules = [nvml.nvmlDeviceGetModuleId(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]
    assert modules == [1, 2]


def test_worn_memory_is_remapped_from_ampere_on_and_retired_before(tmp_path: Path, machine: Machine) -> None:
    new = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetRemappedRows(new) == (0, 0, 0, 0)
    assert _refusal(lambda: nvml.nvmlDeviceGetRetiredPages(new, 0)) == nvml.NVML_ERROR_NOT_SUPPORTED
    create(load_model("cards: [Tesla-V100-SXM2-32GB]"), tmp_path / "old").close()
    os.environ["PUMICE_MACHINE"] = str(tmp_path / "old")
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    old = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetRetiredPages(old, 0) == []
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(old) == nvml.NVML_FEATURE_DISABLED
    assert _refusal(lambda: nvml.nvmlDeviceGetRemappedRows(old)) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_power_is_limited_within_the_cards_range_by_either_form_of_the_call(machine: Machine) -> None:
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    least, _ = nvml.nvmlDeviceGetPowerManagementLimitConstraints(card)
    nvml.nvmlDeviceSetPowerManagementLimit_v2(card, nvml.NVML_POWER_SCOPE_GPU, 200_000)
    assert nvml.nvmlDeviceGetPowerManagementLimit(card) == 200_000
    asked = nvml.c_nvmlPowerValue_v2_t(nvml.nvmlPowerValue_v2, nvml.NVML_POWER_SCOPE_GPU, least - 1)
    set_limit = nvml._nvmlGetFunctionPointer("nvmlDeviceSetPowerManagementLimit_v2")  # whose answer nvidia-ml-py drops
    assert set_limit(card, ctypes.byref(asked)) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetPowerManagementLimit(card) == 200_000


def test_a_card_without_mig_has_none(machine: Machine) -> None:
    old = nvml.nvmlDeviceGetHandleByIndex(2)
    assert _refusal(lambda: nvml.nvmlDeviceGetMigMode(old)) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert _refusal(lambda: nvml.nvmlDeviceSetMigMode(old, 1)) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(old) == 0


def test_instances_are_devices_with_a_parent(machine: Machine) -> None:
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceSetMigMode(card, nvml.NVML_DEVICE_MIG_ENABLE) == nvml.NVML_SUCCESS
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert info.sliceCount == 3
    made = []
    for _ in range(2):
        gi = nvml.nvmlDeviceCreateGpuInstance(card, info.id)
        made.append((gi, nvml.nvmlGpuInstanceCreateComputeInstance(gi, nvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE)))
    assert _refusal(lambda: nvml.nvmlDeviceCreateGpuInstance(card, info.id)) == nvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    devices = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, i) for i in range(2)]
    ids = [nvml.nvmlDeviceGetGpuInstanceId(device) for device in devices]
    assert ids == sorted(ids)
    for device in devices:
        assert nvml.nvmlDeviceIsMigDeviceHandle(device)
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(card)
        assert nvml.nvmlDeviceGetUUID(device).startswith("MIG-")
        assert nvml.nvmlDeviceGetMemoryInfo(device).total == info.memorySizeMB * MIB
        assert nvml.nvmlDeviceGetAttributes(device).gpuInstanceSliceCount == 3
    assert _refusal(lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)) == nvml.NVML_ERROR_NOT_FOUND
    assert _refusal(lambda: nvml.nvmlDeviceGetUtilizationRates(card)) == nvml.NVML_ERROR_NOT_SUPPORTED
    for gi, ci in made:
        nvml.nvmlComputeInstanceDestroy(ci)
        nvml.nvmlGpuInstanceDestroy(gi)
    assert nvml.nvmlDeviceSetMigMode(card, nvml.NVML_DEVICE_MIG_DISABLE) == nvml.NVML_SUCCESS


def test_settings_can_be_kept_for_the_administrator(machine: Machine) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may change every setting")
    machine.state.require_root = 1
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert _refusal(lambda: nvml.nvmlDeviceSetMigMode(card, 1)) == nvml.NVML_ERROR_NO_PERMISSION


def test_before_the_first_and_after_the_last_use_nothing_answers(machine: Machine) -> None:
    nvml.nvmlShutdown()
    try:
        assert _refusal(nvml.nvmlDeviceGetCount) == nvml.NVML_ERROR_UNINITIALIZED
    finally:
        nvml.nvmlInit()


@pytest.mark.parametrize("damage", ["short", "foreign", "older"])
def test_a_damaged_machine_is_a_machine_without_a_driver(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    whole = bytearray((machine.directory / "state").read_bytes())
    if damage == "short":
        whole = whole[:1000]
    elif damage == "foreign":
        whole[0:8] = b"SOMETHIN"
    else:
        whole[8:12] = b"\0\0\0\0"
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/state").write_bytes(whole)
    nvml.nvmlShutdown()
    monkeypatch.setenv("PUMICE_MACHINE", str(tmp_path / "damaged"))
    try:
        assert _refusal(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED
    finally:
        monkeypatch.setenv("PUMICE_MACHINE", str(machine.directory))
        nvml.nvmlInit()


@pytest.mark.parametrize("garbage", [0, 8, 0xDEADBEEF, (1 << 64) - 1, 0x0DE << 52 | 15 << 20, 0x0DE << 52 | 1])
def test_garbage_handles_are_refused(machine: Machine, garbage: int) -> None:
    handle = nvml.c_nvmlDevice_t.from_buffer_copy(garbage.to_bytes(8, "little"))
    assert _refusal(lambda: nvml.nvmlDeviceGetName(handle)) == nvml.NVML_ERROR_INVALID_ARGUMENT
