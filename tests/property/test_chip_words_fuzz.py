"""Whatever stands on pods, in reports of chips and in the journal, MindCluster's node side answers (Volcano
pkg/scheduler/api/devices/ascend/mindcluster, MindCluster ascend-device-plugin)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from kit.npu_core_world import device_info, own_host
from kit.seeds import chosen_seed
from tests.property.npu_kills import KilledDriver, KilledJournal

from pumice.devices.ascend_mindcluster.node.allocator import ChipAllocator
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper, realised, report
from pumice.model.hardware.npu import slice_kinds
from pumice.node.pods import NodePod
from pumice.node.protocol import Partition, Refuse
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Entry, Phase, Place
from pumice.wire.device_reports import node_info, render_own_devices
from pumice.wire.objects import ConfigMap, convert
from pumice_lab.clusterd import Gathered

CORE = "huawei.com/npu-core"
CARDS = tuple(CardFacts(at, card, "310P3", 24 << 30, minor=at) for at, card in enumerate("AB"))
KIND = slice_kinds()["Ascend310P"]
GIVEN: dict[str, Any] = {"0-vir01": 1, "1-vir02_1c": "2", "0-vir04": 4, "0": "8", "1": 8, "0,1": 16, "0-vir": 1, "0-": 0,
                         "-vir01": 1, "99": 8, "0,0": 16, "": 2}  # fmt: skip
TIMES = ["1", "18446744073709551615", "99999999999999999999999", "-1", "soon", ""]
SEED = chosen_seed()


def spoilt(rng: random.Random, text: str) -> str:
    """The text with a few characters lost, doubled or replaced, now and then."""
    letters = list(text)
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        at = rng.randrange(len(letters) + 1)
        letters[at : at + rng.randrange(2)] = rng.choice(["", ",", "-", "_", "{", '"', "9", "vir", "\x00", "é", "²"])
    return "".join(letters)


def pod(rng: random.Random, name: str) -> NodePod:
    given = rng.choice(list(GIVEN))
    notes = {CORE: spoilt(rng, given), "predicate-time": rng.choice(TIMES)}
    if rng.random() < 0.2:
        notes["huawei.com/AscendReal"] = spoilt(rng, "Ascend310P-2c.1cpu-100-0_0")
    asks = [GIVEN[given] if rng.random() < 0.8 else rng.choice([1, "16", "0", "1k", "x", 1.5, -1])
            for _ in range(rng.choice((1, 1, 1, 0, 2)))]  # fmt: skip
    kept = {key: text for key, text in notes.items() if rng.random() < 0.95}
    containers = [{"name": f"c{at}", "resources": {"limits": {CORE: ask}}} for at, ask in enumerate(asks)]
    return convert(NodePod, {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": kept},
        "spec": {"nodeName": "n", "containers": containers},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    })  # fmt: skip


def reported(rng: random.Random) -> ConfigMap:
    free = [f"Ascend310P-{at}" for at in range(rng.randrange(3))]
    if rng.random() < 0.7:
        found: dict[str, Any] = render_own_devices("n1", device_info(free, time=rng.choice((0, 1, 1 << 40))))
    else:
        found = own_host("n1", node_info("PreSeparate"))
    data = {spoilt(rng, key): spoilt(rng, text) for key, text in found["data"].items()}
    return convert(ConfigMap, {**found, "metadata": {"name": spoilt(rng, found["metadata"]["name"])}, "data": data})


class Living:
    def runs(self, uid: str) -> str:
        return uid if uid in "ab" else ""

    holds = runs


def run(count: int, seed: int) -> int:
    rng, answered, gathered = random.Random(seed), 0, Gathered()
    for _ in range(count):
        chips = ChipAllocator("n", KIND, 8)
        chips.show(CARDS, {"B": "ill, error codes 0x80E01801, 0x"} if rng.random() < 0.1 else {})
        pods = [pod(rng, "a"), pod(rng, "b")]
        ids = [f"npu-core-{at}" for at in range(rng.choice((1, 2, 4, 8, 16)))]
        decision = chips.allocate(pods, ids, rng.choice((None, frozenset(), frozenset({("a", "c0")}))))
        answered += isinstance(decision, Partition)
        assert decision is None or isinstance(decision, Partition | Refuse)
        driver = KilledDriver(rng)
        keeper = ChipKeeper(KIND.name, driver, KilledJournal(driver, tuple(entry(rng) for _ in range(rng.randrange(4)))))
        state = keeper.sweep("AB", Living(), {"a": ",".join(ids), "b": rng.choice(("", "x"))}, {"a", "b"})
        list(realised(pods, {"a": ",".join(ids)}, state, chips.chips, KIND))
        json.dumps(report(KIND.name, chips.chips, chips.unhealthy, state, 1))
        if gathered.take(reported(rng), deleted=rng.random() < 0.1):
            gathered.config_maps()
    return answered


def entry(rng: random.Random) -> Entry:
    place = Place(rng.choice(("A", "B", "gone")), rng.choice(("vir01", "vir02", "")), rng.choice((0, 100, 101, -5)))
    return Entry(place, rng.choice(("a", "b", "c", "")), rng.choice(list(Phase)), rng.choice(("", "x", "npu-core-0")))


def test_nothing_that_others_write_ends_the_plugin_or_what_gathers_its_reports() -> None:
    print(f"seed {SEED}")
    assert run(3_000, SEED) > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_pods_and_reports_never_raise() -> None:
    print(f"seed {SEED}")
    assert run(1_000_000, SEED) > 10_000
