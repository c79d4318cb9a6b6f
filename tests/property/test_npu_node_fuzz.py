"""Whatever stands on pods, in the node's configuration and in the journal, the NPU plugin answers."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress

import pytest
from kit.npu_world import chip
from kit.seeds import chosen_seed

from pumice.devices.ascend_hami.node.allocator import NpuAllocator
from pumice.devices.ascend_hami.node.answer import NpuSharing
from pumice.devices.ascend_hami.node.keeper import Sweeper, claim, look
from pumice.model.errors import BadInput
from pumice.node.pods import NodePod
from pumice.node.protocol import Conflict, Outdated, Partition, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import UNOPENED, Entry, Phase, Place, Vnpu
from pumice.wire.node_config import parse_npu_node_config
from pumice.wire.objects import convert

RESOURCE, WORD = "huawei.com/Ascend310P", "Ascend310P"
CARDS = tuple(CardFacts(at, f"U{at}", "310P3", 24 << 30, minor=at) for at in range(2))
LISTS = ["U0,Ascend310P,3072,0:;", "U0,Ascend310P,6144,0:;U1,Ascend310P,3072,0:;", ";", ";;", "",
         "U0,Ascend310P,21527,0:U1,Ascend310P,21527,0:;"]  # fmt: skip
INFOS = ['[{"UUID":"U0","temp":"vir01"}]',
         '[{"UUID":"U0","temp":"vir02"},{"UUID":"U1","temp":"vir01"}]', '[{"UUID":"U1"}]', "[]", "{"]  # fmt: skip
TIMES = ["1", "1760000000", "99999999999999999999999", "-1", "soon", ""]
SEED = chosen_seed()


def spoilt(rng: random.Random, text: str) -> str:
    """The text with a few characters lost, doubled or replaced, now and then."""
    letters = list(text)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 3))):
        at = rng.randrange(len(letters) + 1)
        letters[at : at + rng.randrange(2)] = rng.choice(["", ",", ":", ";", "[", "}", '"', "9", "U", "\x00", "é", "U1,"])
    return "".join(letters)


def pod(rng: random.Random, name: str) -> NodePod:
    given = rng.choices(LISTS, (6, 6, 1, 1, 1, 1))[0]
    notes = {
        f"hami.io/{WORD}-devices-allocated": spoilt(rng, given),
        f"hami.io/{WORD}-devices-to-allocate": spoilt(rng, given if rng.random() < 0.8 else rng.choice(LISTS)),
        f"huawei.com/{WORD}": spoilt(rng, dict(zip(LISTS, INFOS, strict=False)).get(given, "") if rng.random() < 0.8
                                     else rng.choice(INFOS)),
        "hami.io/vgpu-node": spoilt(rng, "n"), "hami.io/bind-phase": spoilt(rng, rng.choice(("allocating", "success"))),
        "hami.io/bind-time": rng.choice(TIMES), "predicate-time": rng.choice(TIMES),
    }  # fmt: skip
    sizes = [*re.findall(",(3072|6144),", given), 0, 0, 0]
    kept = {key: text for key, text in notes.items() if rng.random() < 0.98}
    containers = [
        {"name": f"c{at}", "resources": {"limits": {
            RESOURCE: rng.choice(["1", "1", "1", "2", 1, "0", "1k", "x", 1.5]),
            f"{RESOURCE}-memory": sizes[at] if rng.random() < 0.8 else rng.choice([3072, 0, "16Gi", "x", -1])}}}
        for at in range(rng.choice((1, 1, 2, 0, 3)))
    ]  # fmt: skip
    return convert(NodePod, {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": kept},
        "spec": {"nodeName": "n", "containers": containers, "initContainers": containers[:1] if rng.random() < 0.2 else []},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    })  # fmt: skip


def run(count: int, seed: int) -> int:
    rng, answered = random.Random(seed), 0
    for _ in range(count):
        allocator = NpuAllocator("n", NpuSharing(chip("310P3"), soft=rng.random() < 0.3))
        allocator.show(CARDS, {"U1": "ill"} if rng.random() < 0.1 else {})
        allocated = rng.choice((None, frozenset(), frozenset({("a", "c0")})))
        decision = allocator.allocate([pod(rng, "a"), pod(rng, "b")], ["x"] * rng.randrange(1, 3), allocated)
        answered += isinstance(decision, Serve | Partition)
        assert decision is None or isinstance(decision, Serve | Partition | Refuse | Outdated | Conflict)
        left_out = rng.choice([{}, [], {"index": [0, "1"]}, {"uuid": 3}, 3])
        node = {"nodes": [{"name": "n", "vDeviceCount": rng.choice([3, -1, "x", None]), "filterDevices": left_out}]}
        with suppress(BadInput):
            if rng.random() < 0.05:  # YAML is slow
                parse_npu_node_config(spoilt(rng, json.dumps(node)), "n")
        entries = [journal_entry(rng) for _ in range(rng.randrange(4))]
        seen = {card: tuple(Vnpu(100 + at, rng.choice(("vir01", "vir02")), container=rng.choice((0, UNOPENED, 7)))
                            for at in range(rng.randrange(3))) for card in ("U0", "U1")}  # fmt: skip
        books = look(claim(entries, Place("U0", "vir01", 0), "a", seen["U0"]), seen, {7: "a"})
        Sweeper(rng.choice(("owned", "all"))).sweep(books, seen, lambda uid: uid if uid == "a" else "")
    return answered


def journal_entry(rng: random.Random) -> Entry:
    place = Place(rng.choice(("U0", "U1", "gone")), rng.choice(("vir01", "")), rng.choice((0, 100, 101, -5)))
    texts = ("", "100", "100 101", "x", "-1 é", "0", "7", "²")
    return Entry(place, rng.choice(("a", "b", "")), rng.choice(list(Phase)), rng.choice(texts), rng.choice(texts))


def test_nothing_that_others_write_ends_the_plugin() -> None:
    print(f"seed {SEED}")
    assert run(10_000, SEED) > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_pods_and_configurations_never_raise() -> None:
    print(f"seed {SEED}")
    assert run(1_000_000, SEED) > 10_000
