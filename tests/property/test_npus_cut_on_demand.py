"""Random lives on nodes whose Ascend chips are cut on demand: slices made late, reports that change, pods that go slowly.

The audit looks at the API objects after every cycle; a scheduler that comes up later knows what the first one knows; nobody who
fits is left waiting.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.npu_core_world import CORE, LABELS, chips, core_node_object, core_pod_object, device_info, gathered
from kit.objects import pod
from kit.scheduler_confs import conf, sharing
from kit.seeds import chosen_seed

from pumice.audit.auditor import npu_chips
from pumice.devices.ascend_mindcluster.inventory import after, takes, why_not
from pumice.devices.protocol import Fit
from pumice.model.hardware.npu import slice_kinds
from pumice.wire.device_reports import node_info, render_gathered_hosts
from pumice.wire.mindcluster import RealSlice, parse_assignment, render_real_slice

CONF = conf("priority", {"gang": {"enablePreemptable": False}}, "conformance", "predicates",
            sharing("AscendMindClusterVNPU", NpuPolicy='"%s"'), actions="%s")
KIND = slice_kinds()["Ascend310P"]
COUNTS, EACH = {"n1": 1, "n2": 2, "n3": 3}, {"n1": 8, "n2": 8, "n3": 10}
"""Chips of each node, and AI cores of each of them."""
STEPS = 60
SEED = chosen_seed()


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        actions = self.rng.choice(("enqueue, allocate, backfill", "enqueue, allocate, preempt, backfill"))
        self.world = World(CONF % (actions, self.rng.choice(("listed", "expected"))), seed=seed)
        self.world.grace = self.rng.random() < 0.5
        self.unhealthy: dict[str, set[int]] = {name: set() for name in COUNTS}
        self.next = 0
        for name, count in COUNTS.items():
            self.world.add(core_node_object(name, count, each=EACH[name]))
        self.report()

    def report(self) -> None:
        self.world.add(gathered({
            name: device_info(
                chips(*(set(range(count)) - self.unhealthy[name])), chips(*self.unhealthy[name]), self.rng.randint(1, 9)
            )
            for name, count in COUNTS.items()
        }))  # fmt: skip

    def step(self) -> None:
        world, rng = self.world, self.rng
        kinds = ("pod", "make", "pod", "make", "pod", "make", "end", "slow end", "gone", "sick", "host", "labels", "time")
        match rng.choice(kinds):
            case "pod":
                self.next += 1
                cores, priority = rng.choice((1, 2, 2, 4, 4, 8, 10, 16)), rng.choice((0, 0, 10))
                dvpp = rng.choice(("null", "null", "yes", "no")) if cores == 4 else "null"
                world.add(core_pod_object(f"p{self.next}", cores, rng.choice(("low", "high")), dvpp, priority=priority,
                                          annotations={"volcano.sh/preemptable": "true"}))  # fmt: skip
            case "make":
                self.make()
            case "end" if placed := self.placed():
                world.delete_pod(rng.choice(placed))
            case "slow end" if placed := self.placed():
                world.terminate(rng.choice(placed))
            case "gone":
                for name in self.going():
                    world.delete_pod(name)
            case "sick":
                name = rng.choice(sorted(COUNTS))
                self.unhealthy[name] ^= {rng.randrange(COUNTS[name])}
                self.report()
            case "host":
                world.add(render_gathered_hosts({"n3": node_info("PreSeparate")} if rng.random() < 0.5 else {}))
            case "labels":
                node = world.nodes["n2"]
                node["metadata"]["labels"] = dict(LABELS) if rng.random() < 0.6 else {"accelerator": "huawei-Ascend310P"}
                world.add(node)
            case "time":
                world.now += 5
        world.settle(1.0)

    def placed(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.world.pods.values() if pod["spec"].get("nodeName"))

    def going(self) -> list[str]:
        return sorted(p["metadata"]["name"] for p in self.world.pods.values() if p["metadata"].get("deletionTimestamp"))

    def make(self) -> None:
        """The node's plugin says what it made for the pod whose decision is the oldest."""
        for name in self.placed():
            pod = self.world.pods[f"default/{name}"]
            notes = pod["metadata"]["annotations"]
            decided = parse_assignment(notes.get("huawei.com/npu-core", ""))
            if decided is None or "huawei.com/AscendReal" in notes:
                continue
            if decided.template:
                beside = {text.rpartition("_")[2] for text in self.real_on(pod["spec"]["nodeName"], decided.chips[0])}
                group = next((number for number in range(4) if str(number) not in beside), 3)
                word = KIND.templates[decided.template].word
                made = render_real_slice(RealSlice(KIND.name, word, 100 + 16 * decided.chips[0], decided.chips[0], group))
            else:
                made = ",".join(chips(*decided.chips))
            notes["huawei.com/AscendReal"] = made
            self.world.add(pod)
            return

    def real_on(self, node: str, chip: int) -> list[str]:
        found = [p["metadata"]["annotations"].get("huawei.com/AscendReal", "") for p in self.world.pods.values()
                 if p["spec"].get("nodeName") == node]  # fmt: skip
        return [text for text in found if f"-{chip}_" in text]

    def check(self) -> None:
        engine, again = self.world.engine, self.world.restarted()
        if engine.state.nominations.kept:
            return  # room that is kept for somebody is known to nobody else
        assert fingerprint(again.state.ledger) == fingerprint(engine.state.ledger)

    def calm(self) -> None:
        """All slices are made and all who go are gone: whoever waits then fits nowhere."""
        for name in self.going():
            self.world.delete_pod(name)
        for _ in range(200):
            self.make()
            self.world.settle(1.0)
            for name in self.going():
                self.world.delete_pod(name)
        self.world.settle(90.0)
        engine = self.world.engine
        (device_type,) = engine.device_types
        device_table = engine.state.ledger.device_tables[device_type.name]
        for task in engine.state.tasks.values():
            if not task.node:
                takers = [
                    name
                    for name in device_table.nodes
                    if isinstance(device_type.fit(task.cls.device_requests[0], device_table.view(name)), Fit)
                ]
                assert takers == [], (task.name, takers)


def play(seed: int) -> None:
    life = Life(seed)
    for step in range(STEPS):
        life.step()
        if step % 10 == 0:
            life.check()
    life.calm()
    life.check()


@pytest.mark.parametrize("number", range(6))
def test_no_chip_is_given_twice_and_whoever_fits_gets_one(number: int) -> None:
    print(f"PUMICE_SEED={SEED}")
    play(SEED + number)


def admitted(left: tuple[int, int, int], held: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[int, int, int]]]:
    """Every row of slices that a chip takes one after the other, and what is left of it then."""
    yield held, left
    for name, template in KIND.templates.items():
        if takes(template, *left):
            yield from admitted(after(template, *left), (*held, name))


@pytest.mark.parametrize("each", [8, 10])
def test_the_auditor_knows_no_other_chip_than_the_fit_does(each: int) -> None:
    """It admits every row of slices that the fit admits, and none that is over the chip's cores, CPUs or media units."""
    node, cpus = core_node_object("n", each=each), KIND.cpus[each]

    def found(*templates: str) -> list[str]:
        held = [f"0-{name}" if name else "0" for name in templates]
        return npu_chips([node], [pod("p", nodeName="n", annotations={CORE: text}) for text in held])

    assert not found("")
    rows = {tuple(sorted(held)): left for held, left in admitted((each, cpus, 0))}
    for held, left in rows.items():
        assert not found(*held), held
        assert not held or found(*held, ""), held
        for name, template in KIND.templates.items():
            if not takes(template, *left) and "vGroup" not in why_not(template, *left):
                assert found(*held, name), (held, name)


@pytest.mark.soak
@pytest.mark.timeout(36000)
def test_the_same_over_many_lives() -> None:
    print(f"PUMICE_SEED={SEED}")
    for number in range(int(os.environ.get("PUMICE_SOAK_NPUS", "2000"))):
        play(SEED + number)
