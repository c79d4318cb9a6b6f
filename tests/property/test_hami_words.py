"""Whatever others write of NPUs in HAMi's mode, in the device ConfigMap, on nodes and on pods: nothing ends, no card is given
twice, and what cannot be meant of one card or chip takes no other with it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from kit.device_world import TinyLedger
from kit.npu_world import chip, npu_device_type, npu_limits, npu_node_object, npu_pod
from kit.seeds import chosen_seed
from tests.property.test_npu_words import RUNNING, VALUES, mangled

from pumice.devices.ascend_hami.scheduling import AscendHami
from pumice.devices.protocol import Fit
from pumice.devices.settings import Settings
from pumice.model.errors import BadInput
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import Node, convert

P310, B2 = chip("310P3"), chip("910B2")
REGISTER, HELD, TOLD = "hami.io/node-register-Ascend310P", "hami.io/Ascend310P-devices-allocated", "huawei.com/Ascend310P"
FOREVER = 1_000_000
SEED = chosen_seed()
LISTS = ("n1-1,Ascend310P,6144,0:;", "n1-1,Ascend310P,21527,0:n1-2,Ascend310P,21527,0:;", ";n1-2,Ascend310P,3072,0:;")
AMOUNTS = (1, 2, 0, -1, "1", "x", "1e99", 1.5, "16Gi", 2**40, None)
ENTRIES = [
    {"chipName": kind.name, "commonWord": kind.word, "resourceName": kind.resource, "resourceMemoryName": kind.memory_resource,
     "memoryAllocatable": kind.memory, "memoryCapacity": kind.capacity, "aiCore": kind.cores, "aiCPU": kind.cpus,
     "templates": [{"name": t.name, "memory": t.memory, "aiCore": t.cores, "aiCPU": t.cpus} for t in kind.templates]}
    for kind in (P310, B2)
]  # fmt: skip


def word(rng: random.Random, text: str) -> str:
    found = mangled(text, rng)
    return found if isinstance(found, str) and rng.random() < 0.6 else text


def fuzz_pods_and_nodes(seeds: Iterable[int]) -> int:
    placed = 0
    plain = npu_node_object("n1", P310, 3)
    registered = json.loads(plain["metadata"]["annotations"][REGISTER])
    for seed in seeds:
        rng = random.Random(seed)
        device_type = npu_device_type("310P3", rng.choice(("", "binpack", "spread")), soft=rng.random() < 0.2)
        cards = [mangled(card, rng) if rng.random() < 0.3 else card for card in registered]
        notes = {REGISTER: word(rng, json.dumps(cards)), "hami-vnpu-core": rng.choice(("false", "true", "x"))}
        node = {**plain, "metadata": {**plain["metadata"], "annotations": notes}}
        books = TinyLedger(device_type)
        books.add_node(convert(Node, node))
        wanted = npu_limits(P310, rng.choice(AMOUNTS), rng.choice((6144, None, *AMOUNTS)), rng.choice((None, 50)))
        held = npu_pod("held", wanted, soft=rng.random() < 0.2, node="n1", status=rng.choice((RUNNING, {})), annotations={
            HELD: word(rng, rng.choice(LISTS)), TOLD: word(rng, '[{"UUID":"n1-1","temp":"vir02"}]'),
            "hami.io/vgpu-node": rng.choice(("n1", "n1", "other")),
        })  # fmt: skip
        device_type.device_request(held)
        if "n1" not in books.inventories:
            continue
        books.replay(held, "n1")
        doubted, before = books.doubts.get("n1", {}), books.usages("n1")
        fit = books.try_pod(npu_pod("new", npu_limits(P310, 1, rng.choice((None, 3072, 6144, 12288)))), "n1")
        if isinstance(fit, Fit):
            placed += 1
            for container_device in fit.allocation.container_devices:
                card, usage = books.inventories["n1"].cards[container_device.card], before[container_device.card]
                assert container_device.card not in doubted, seed
                assert card.healthy, seed
                assert usage.memory + container_device.memory <= card.total, seed
                assert usage.shares < card.shares, seed
    return placed


def fuzz_configurations(seeds: Iterable[int]) -> int:
    """Of two chips one is spoilt: the other is there as before, whatever is said of the first."""
    read = 0
    for seed in seeds:
        rng = random.Random(seed)
        spoilt: Any = mangled(ENTRIES[0], rng)
        listed = [spoilt, ENTRIES[1]]
        text = json.dumps({"vnpus": rng.choice((listed, {"configs": listed, "hamiVnpuCore": rng.choice(VALUES)}))})
        text = text[: rng.randrange(len(text))] if rng.random() < 0.05 else text
        try:
            config = parse_device_config(text)
        except BadInput:
            continue
        if config.vnpus is None or not text.endswith("}"):
            continue
        read += 1
        words = {found.word for found in config.vnpus.chips}
        assert len(words) == len(config.vnpus.chips), seed
        named = [value for value in spoilt.values() if isinstance(value, str)] if isinstance(spoilt, dict) else []
        assert B2.word in words or {B2.word, B2.name, B2.resource} & set(named), seed
        for device_type in AscendHami.of_config(config, Settings()):
            assert isinstance(device_type, AscendHami)
            kind = device_type.chip
            assert 0 < kind.memory <= kind.capacity, seed
            assert all(0 < template.memory <= kind.memory for template in kind.templates), seed
            device_type.device_request(npu_pod("a", npu_limits(kind, 1, 3072)))
    return read


def test_no_annotation_of_a_node_or_pod_ends_anything_or_gives_a_card_away_twice() -> None:
    print(f"seed {SEED}")
    assert fuzz_pods_and_nodes(range(SEED, SEED + FOREVER // 200)) > 500


def test_no_device_configuration_ends_anything_or_takes_another_chip_with_it() -> None:
    print(f"seed {SEED}")
    assert fuzz_configurations(range(SEED, SEED + FOREVER // 5000)) > 50


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_texts_of_others_in_hamis_form() -> None:
    print(f"seed {SEED}")
    fuzz_pods_and_nodes(range(SEED, SEED + FOREVER * 9 // 10))
    fuzz_configurations(range(SEED, SEED + FOREVER // 10))
