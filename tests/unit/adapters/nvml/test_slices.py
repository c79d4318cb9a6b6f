"""Slices through NVML: what ``ports.slices.Slices`` promises, on the emulated driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kit.machines import Programs, cards_of

from pumice.adapters.nvml.slices import NvmlSlices
from pumice.ports.slices import CutRefused, NoRights, Place
from pumice_lab.machine import Machine, machine_of


@pytest.fixture
def cut() -> Iterator[tuple[Machine, NvmlSlices, str]]:
    base = machine_of("A100-SXM4-40GB")
    with cards_of(replace(base, cards=(replace(base.cards[0], mig_mode=True),))) as (machine, cards):
        yield machine, NvmlSlices(), cards.facts()[0].uuid


def test_the_driver_tells_profiles_with_their_places(cut):
    _, slices, card = cut
    offered = {profile.name: (profile.size, profile.starts) for profile in slices.profiles(card)}
    assert offered["2g.10gb"] == (2, (0, 2, 4))
    assert offered["7g.40gb"] == (8, (0,))


def test_a_slice_is_half_there_until_it_is_filled_and_goes_the_same_way(cut):
    _, slices, card = cut
    place = Place(card, "2g.10gb", 4)
    slices.make(place)
    (half,) = slices.slices(card)
    assert (half.place, half.half, half.uuid, half.cover) == (place, True, "", 0b110000)
    uuid = slices.fill(place)
    (whole,) = slices.slices(card)
    assert (whole.half, whole.uuid, whole.busy) == (False, uuid, False)
    assert slices.fill(place) == uuid, "filling again makes nothing more"
    with pytest.raises(CutRefused, match=r"slice 2g.10gb@4 of card .*: In use"):
        slices.remove(place)
    slices.drain(place)
    slices.remove(place)
    assert slices.slices(card) == ()


def test_what_the_card_does_not_have_is_refused_in_words(cut):
    _, slices, card = cut
    with pytest.raises(CutRefused, match=r"has no profile 2g.12gb; its driver offers 1g.5gb"):
        slices.make(Place(card, "2g.12gb", 0))
    with pytest.raises(CutRefused, match=r"2g\.10gb@3"):
        slices.make(Place(card, "2g.10gb", 3))
    slices.make(Place(card, "3g.20gb", 4))
    with pytest.raises(CutRefused, match="Insufficient Resources"):
        slices.make(Place(card, "2g.10gb", 4))
    with pytest.raises(CutRefused, match=r"1g.5gb@0 .* is not there"):
        slices.drain(Place(card, "1g.5gb", 0))
    with pytest.raises(CutRefused, match="card GPU-none"):
        slices.slices("GPU-none")


def test_a_slice_with_a_process_on_it_is_busy_and_cannot_be_drained(cut):
    machine, slices, card = cut
    place = Place(card, "3g.20gb", 0)
    slices.make(place)
    programs = Programs(machine)
    programs.environment["CUDA_VISIBLE_DEVICES"] = slices.fill(place)
    program = programs.hold(1000)
    try:
        assert [slice_.busy for slice_ in slices.slices(card)] == [True]
        with pytest.raises(CutRefused, match="In use"):
            slices.drain(place)
    finally:
        program.kill()
        program.communicate()
    slices.drain(place)


def test_a_slice_that_somebody_divided_has_no_one_device(cut):
    import pynvml

    _, slices, card = cut
    place = Place(card, "3g.20gb", 0)
    slices.make(place)
    handle = pynvml.nvmlDeviceGetHandleByUUID(card)
    instance = pynvml.c_nvmlGpuInstance_t()
    pynvml.nvmlDeviceGetGpuInstances(handle, 9, pynvml.byref(instance), pynvml.byref(pynvml.c_uint(1)))
    for _ in range(2):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE)
    (divided,) = slices.slices(card)
    assert (divided.parts, divided.uuid, divided.half) == (2, "", False)
    with pytest.raises(CutRefused, match="2 devices"):
        slices.fill(place)


def test_who_may_not_cut_is_told_so_before_anything_is_tried(cut, monkeypatch):
    _, slices, card = cut
    assert slices.allowed(card) == ""
    assert slices.slices(card) == (), "asking makes nothing"
    import pynvml

    def denied(*_: object) -> None:
        raise pynvml.NVMLError_NoPermission(pynvml.NVML_ERROR_NO_PERMISSION)

    monkeypatch.setattr(pynvml, "nvmlDeviceCreateGpuInstanceWithPlacement", denied)
    assert "NVIDIA_MIG_CONFIG_DEVICES=all" in slices.allowed(card)
    with pytest.raises(NoRights, match=r"1g\.5gb@0"):
        slices.make(Place(card, "1g.5gb", 0))


def test_a_card_out_of_mig_mode_offers_nothing(cut):
    import pynvml

    _, _, card = cut
    pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(card), 0)
    fresh = NvmlSlices()
    assert fresh.profiles(card) == ()
    assert fresh.slices(card) == ()
    with pytest.raises(CutRefused, match="its MIG mode is off"):
        fresh.make(Place(card, "1g.5gb", 0))


def test_the_device_files_of_a_slice_are_named_by_the_drivers_table(cut, tmp_path: Path):
    _, _, card = cut
    table = tmp_path / "mig-minors"
    table.write_text("config 1\nmonitor 2\ngpu0/gi3/access 30\ngpu0/gi3/ci0/access 31\ngpu1/gi3/access 99\n")
    slices = NvmlSlices(table)
    place = Place(card, "2g.10gb", 0)
    slices.make(place)
    slices.fill(place)
    assert slices.slices(card)[0].nodes == ("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31")
