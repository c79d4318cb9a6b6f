"""A chip that MindCluster's mode cuts is rows of two tables, also one that is little like the 310P: it wants no free vGroups, has
twice as many slices, AI CPUs that differ by its size, a template of another chip's name, and no numbers found by search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.device_world import TinyLedger, device_settings
from kit.npu_nodes import Npus

from pumice.adapters.journal import FileJournal
from pumice.audit import auditor
from pumice.devices.ascend_mindcluster.device_type import ASCEND_MINDCLUSTER
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper
from pumice.devices.ascend_mindcluster.plugin.daemon import need_chips
from pumice.devices.ascend_mindcluster.scheduling import AscendMindCluster
from pumice.devices.protocol import Columns, DeviceRequest, Fit
from pumice.devices.settings import Settings
from pumice.model.hardware import cards
from pumice.model.hardware.npu import driver_chips, slice_kinds
from pumice.ports.slices import Place
from pumice.wire.device_reports import device_info, read_gathered, render_gathered_devices
from pumice.wire.mindcluster import RealSlice, node_labels, render_base_devices, render_real_slice, slice_numbers
from pumice.wire.objects import ConfigMap, Node, Pod, convert

KIND, DRIVER, CORE = "Ascend910X", "910X", "huawei.com/npu-core"
SIZES = {16: 6, 20: 14}
CHIP = {
    "device_type": "ascend910x-vNPU", "label": "ascend-910X", "driver": DRIVER,
    "cpus": {str(cores): cpus for cores, cpus in SIZES.items()},
    "templates": [["vir02", 2, 1, "null", "2c"], ["vir04", 4, 1, "null", "4c"], ["vir10", 10, 5, "null", "10c"]],
    "high": [[2, "null", "vir02", ""], [4, "null", "vir04", ""], [10, "null", "vir10", ""]],
    "low": [[2, "null", "vir02", ""], [4, "null", "vir04", ""], [10, "null", "vir10", ""]],
}  # fmt: skip
DRIVERS = {
    "word": KIND, "memory": 65536, "capacity": 65536, "cores": 20, "cpus": 14, "templates": [],
    "driver": {
        "product": DRIVER, "hbm": True, "memory": 65536, "groups": 4, "slices": 16, "media": [],
        "templates": [["vir02", 4096, 2, 1, []], ["vir04", 8192, 4, 1, []], ["vir10", 32768, 10, 5, []]],
    },
}


@pytest.fixture
def further(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tables with that chip."""
    rows = {"npu": {**cards.table("npu"), DRIVER: DRIVERS}, "npu_slices": {**cards.table("npu_slices"), KIND: CHIP}}
    monkeypatch.setattr(cards, "table", rows.__getitem__)
    cached = (slice_kinds, driver_chips)
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


pytestmark = pytest.mark.usefixtures("further")


def pod(name: str, cores: int, **notes: str) -> Pod:
    return convert(Pod, {
        "metadata": {"name": name, "uid": name, "labels": {"ring-controller.atlas": "ascend-910X"}, "annotations": notes},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {CORE: str(cores)}}}], "nodeName": "n1" if notes else ""},
        "status": {"phase": "Running"} if notes else {},
    })  # fmt: skip


def node(size: int = 20, chips: int = 1) -> Node:
    found = convert(Node, {
        "metadata": {"name": "n1", "labels": node_labels(KIND, DRIVER, size),
                     "annotations": {"baseDeviceInfos": render_base_devices(KIND, range(chips))}},
        "status": {"capacity": {CORE: str(size * chips)}},
    })  # fmt: skip
    info = device_info([f"{KIND}-{chip}" for chip in range(chips)], kind=KIND)
    found.reports = {"devices": read_gathered(convert(ConfigMap, render_gathered_devices({"n1": info}))).said["n1"]}
    return found


def ledger(size: int = 20, *chips: tuple[str, ...], **settings: Any) -> TinyLedger:
    """A node whose chips have these slices, made, in as many vGroups as there are."""
    kind = slice_kinds()[KIND]
    found = TinyLedger(AscendMindCluster(device_settings(**settings), kind))
    found.add_node(node(size, max(1, len(chips))))
    for chip, templates in enumerate(chips):
        for at, name in enumerate(templates):
            template = kind.templates[name]
            made = render_real_slice(RealSlice(KIND, template.word, 100 + 16 * chip + at, chip, min(at, 3)))
            held = pod(f"{chip}-{at}", template.cores, **{CORE: f"{chip}-{name}", "huawei.com/AscendReal": made})
            found.replay(held, "n1")
    assert not found.doubts
    return found


def chosen(books: TinyLedger, cores: int) -> str:
    """The annotation of a pod for so many AI cores; empty where it fits nowhere."""
    fit = books.try_pod(pod("new", cores), "n1")
    return books.device_type.annotations(fit.allocation, 1)[CORE] if isinstance(fit, Fit) else ""


def test_it_is_a_device_type_of_its_own_and_tells_its_pods_and_nodes_from_others() -> None:
    first, second = ASCEND_MINDCLUSTER.switches[0].device_types(None, Settings())
    assert first.device_request(pod("a", 2)) is None, "it is for the other kind"
    assert isinstance(second.device_request(pod("a", 2)), DeviceRequest)
    assert first.inventory(node(chips=2)) is None
    inventory = second.inventory(node(chips=2))
    assert inventory is not None
    assert [card.uuid for card in inventory.cards] == [f"{KIND}-0", f"{KIND}-1"]
    assert [row.uuid for row in ASCEND_MINDCLUSTER.card_rows(node(chips=2), ())] == [f"{KIND}-0", f"{KIND}-1"]


@pytest.mark.parametrize(("size", "percent"), [(16, 12), (20, 10)])
def test_what_is_taken_of_a_chip_is_told_by_its_own_size(size: int, percent: int) -> None:
    (row,) = ASCEND_MINDCLUSTER.card_rows(node(size), [pod("a", 2, **{CORE: "0-vir02"})])
    assert row.cores == percent


def test_a_chip_without_a_word_for_pairs_refuses_no_product() -> None:
    assert need_chips({DRIVER}, ["Atlas 800"]).name == KIND


def test_no_slice_of_it_waits_for_a_free_vgroup() -> None:
    assert chosen(ledger(20, ("vir02",) * 9), 2) == "0-vir02"
    assert chosen(ledger(20, ("vir02",) * 8), 4) == "0-vir04"
    assert chosen(ledger(20, ("vir02",) * 10), 2) == "", "all of its cores are taken"


@pytest.mark.parametrize(("size", "slices"), [(16, 6), (20, 10)])
def test_its_ai_cpus_are_those_of_its_size_for_one_node_and_for_all_at_once(size: int, slices: int) -> None:
    """A chip of 16 cores has AI CPUs for six slices of two cores, one of 20 for more than it has cores."""
    for held in range(slices + 1):
        books = ledger(size, ("vir02",) * held)
        fits = held < slices
        assert bool(chosen(books, 2)) is fits, held
        assert vector(books, 2) == [fits], held


def vector(books: TinyLedger, cores: int) -> list[bool]:
    device_type, view = books.device_type, books.view("n1")
    def row(values: list[int], kind: Any = np.int64) -> Any:
        return np.array([values], kind)

    uses, all_cards = view.usages, view.inventory.cards
    columns = Columns(
        row([card.total for card in all_cards]), row([use.memory for use in uses]), row([use.cores for use in uses]),
        row([use.shares for use in uses]), row([card.total for card in all_cards]), row([1] * len(uses), bool),
        row([0] * len(uses), bool), row([0] * len(uses), np.int32), (KIND,),
        row([device_type.ranking.card_state(at, use, view.inventory) for at, use in enumerate(uses)], np.int32),
    )  # fmt: skip
    request = device_type.device_request(pod("new", cores))
    assert isinstance(request, DeviceRequest)
    found = device_type.ranking.vector(request, columns)
    assert found is not None
    return [bool(may) for may in found[0]]


def test_without_numbers_found_by_search_the_policy_keeps_room_for_large_slices_and_whole_chips() -> None:
    kind = slice_kinds()[KIND]
    assert kind.worth == {"whole": (20,), "vir02": (2,) * 10, "vir04": (4,) * 5, "vir10": (10,) * 2}
    assert chosen(ledger(20, (), ("vir02",), policy="expected"), 2) == "1-vir02", "an idle chip is worth more"
    assert chosen(ledger(20, ("vir02",) * 2, ("vir02",) * 6, policy="expected"), 4) == "1-vir04", "ten cores stay whole"


def test_it_gets_as_many_slices_as_its_driver_takes(tmp_path: Path) -> None:
    kind, npus = slice_kinds()[KIND], Npus()
    keeper = ChipKeeper(KIND, npus, FileJournal(tmp_path / "cut.json"), slices=lambda _: kind.slices)
    card = npus.facts()[0]

    class Pods:
        def runs(self, uid: str) -> str:
            return uid

        holds = runs

    given = []
    for number in range(9):
        place = Place(card.uuid, "vir02", card.minor)
        made, _ = keeper.give([place], f"p{number}", [str(number)], [card.uuid], Pods())
        given.append(made[place].uuid)
    assert given == [str(number) for number in range(100, 109)]


def test_the_numbers_of_slices_are_those_that_a_chip_of_its_kind_takes() -> None:
    assert [list(slice_numbers(2, kind.slices)) for kind in slice_kinds().values()] == [
        list(range(132, 140)), list(range(132, 148)),
    ]  # fmt: skip


def test_the_auditor_holds_each_kind_to_its_own_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds have a ``vir04``: four AI CPUs there, one here."""
    kind = slice_kinds()[KIND]
    row = auditor.Chip(dict(kind.cpus), {name: (one.cores, one.cpus) for name, one in kind.templates.items()})
    monkeypatch.setitem(auditor.CHIPS, KIND, row)
    held = [{"metadata": {"name": f"p{at}", "annotations": {CORE: "0-vir04"}}, "spec": {"nodeName": "n1"}} for at in range(5)]
    mine = {"metadata": {"name": "n1", "labels": {"servertype": f"{KIND}-20"}}}
    assert auditor.npu_chips([mine], held) == []
    assert auditor.npu_chips([{"metadata": {"name": "n1", "labels": {"servertype": f"{KIND}-16"}}}], held)
    assert auditor.npu_chips([{"metadata": {"name": "n1", "labels": {"servertype": "Ascend310P-8"}}}], held[:2])
