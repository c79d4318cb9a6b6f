"""Whatever others write of chips cut on demand, on nodes, pods and in ConfigMaps: nothing ends, the smallest thing is shut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from kit.device_world import TinyLedger
from kit.npu_core_world import chips, core_device_type, core_node, core_node_object, core_pod, device_info, gathered
from kit.seeds import chosen_seed
from msgspec.structs import replace

from pumice.devices.protocol import Fit
from pumice.model.cards import Allocation
from pumice.scheduler.state.bookings import Reports
from pumice.wire.device_reports import DEVICES, read_gathered, read_own, render_own_devices
from pumice.wire.objects import ConfigMap, Node, convert

SEED = chosen_seed()
FOREVER = 1_000_000
RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
JUNK = (
    "", " ", "-", ",", ";", "_", "0", "0-", "-0", "0-vir01", "0-vir02_1c-", "1,0", "0,0", "1-vir04", "9-vir04", "99", "64", "1e3",
    "0x1", "Ascend310P-0", "Ascend310P-0,Ascend310P-0", "Ascend310P-99", "Ascend310P-\u0663", "Ascend910-0", "ascend-310P",
    "Ascend310P-2c.1cpu-100-0_0", "Ascend310P-2c.1cpu-100-0_9", "Ascend310P-1c-100-1_0", "Ascend310P-1c-99999-0_0", "\u2028<&>",
    "\ud83d", "9" * 30,
)  # fmt: skip
VALUES = (None, True, -1, 0, 2**70, 1.5, [], {}, [[]], {"a": 1}, *JUNK)


def mangled(value: Any, rng: random.Random) -> Any:
    """The same with something else in some place of it."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        return {**value, key: mangled(value[key], rng)}
    if isinstance(value, str) and value and rng.random() < 0.5:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice('"{}[],:;0-_z\u00e9\u2028') + value[at + rng.randrange(3) :]
    return rng.choice(VALUES)


def fuzz_reports(seeds: Iterable[int]) -> None:
    steady = device_info(chips(0, 1))
    first = gathered({"n1": device_info(chips(0)), "steady": steady})
    name = first["metadata"]["name"]
    entries, before = json.loads(first["data"][name]), read_gathered(convert(ConfigMap, first))
    own = render_own_devices("n1", device_info(chips(0)))
    device_type = core_device_type()
    node = convert(Node, core_node_object("n1", 2))
    for seed in seeds:
        rng = random.Random(seed)
        kept = Reports({})
        kept.put("m/c", before)
        text = json.dumps({**entries, "mindx-dl-deviceinfo-n1": mangled(entries["mindx-dl-deviceinfo-n1"], rng)})
        text = text[: rng.randrange(len(text))] if rng.random() < 0.05 else text
        kept.put("m/c", read_gathered(convert(ConfigMap, {**first, "data": {name: text}})))
        assert kept.of("steady") == {DEVICES: before.said["steady"]}, seed
        inventory = device_type.inventory(replace(node, reports=kept.of("n1")))
        assert inventory is not None
        assert len(inventory.cards) <= 64
        words = mangled(own["data"]["DeviceInfoCfg"], rng)
        found = read_own(convert(ConfigMap, {**own, "data": {"DeviceInfoCfg": words if isinstance(words, str) else ""}}))
        assert set(found.said) | set(found.doubts) <= {"n1"}, seed


def fuzz_pods_and_nodes(seeds: Iterable[int]) -> None:
    device_type = core_device_type()
    good = core_node("n1", 3)
    for seed in seeds:
        rng = random.Random(seed)
        node = core_node_object("n1", 3)
        if rng.random() < 0.5:
            node["metadata"]["labels"] = {key: rng.choice(JUNK) if rng.random() < 0.2 else text
                                          for key, text in node["metadata"]["labels"].items()}  # fmt: skip
            node["metadata"]["annotations"]["baseDeviceInfos"] = json.dumps(
                mangled(json.loads(node["metadata"]["annotations"]["baseDeviceInfos"]), rng)
            )
            node["status"]["capacity"]["huawei.com/npu-core"] = rng.choice(("24", "-8", "25", "x", "1e99"))
        said = replace(convert(Node, node), reports={**good.reports, "host": rng.choice(("", "Healthy", "PreSeparate", "?"))})
        books = TinyLedger(device_type)
        books.add_node(said)
        notes = {"huawei.com/npu-core": rng.choice(JUNK), "huawei.com/AscendReal": rng.choice(JUNK)}
        allocated = core_pod("held", rng.choice((1, 2, 4, 8, "x", -1)), level=rng.choice(JUNK), dvpp=rng.choice(("null", *JUNK)),
                        ring=rng.choice(("ascend-310P", *JUNK)), annotations=notes, node="n1",
                        status=rng.choice((RUNNING, {})))  # fmt: skip
        device_type.device_request(allocated)
        if "n1" in books.inventories:
            inventory = books.inventories["n1"]
            found = device_type.replay(allocated, "n1", inventory)
            assert found is None or isinstance(found, Allocation)
            if found is not None:  # only chips that it names, or all of them where nothing says which
                cards = {card.uuid for card in inventory.cards}
                assert {container_device.uuid for container_device in found.container_devices} <= cards, seed
                books.replay(allocated, "n1")
            fit = books.try_pod(core_pod("new", rng.choice((1, 2, 4, 8))), "n1")
            if isinstance(fit, Fit):
                shut = books.doubts.get("n1", {})
                assert not any(container_device.card in shut for container_device in fit.allocation.container_devices), seed
                usages = books.usages("n1")
                for container_device in fit.allocation.container_devices:
                    usage = usages[container_device.card]
                    assert usage.memory + container_device.memory <= 8, seed
                    assert usage.cores + container_device.cores <= 7, seed


def test_no_config_map_ends_anything_or_touches_another_node() -> None:
    print(f"PUMICE_SEED={SEED}")
    fuzz_reports(range(SEED, SEED + FOREVER // 200))


def test_no_annotation_or_label_ends_anything_or_gives_a_chip_away_twice() -> None:
    print(f"PUMICE_SEED={SEED}")
    fuzz_pods_and_nodes(range(SEED, SEED + FOREVER // 200))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_texts_of_others() -> None:
    print(f"PUMICE_SEED={SEED}")
    fuzz_reports(range(SEED, SEED + FOREVER // 2))
    fuzz_pods_and_nodes(range(SEED, SEED + FOREVER // 2))
