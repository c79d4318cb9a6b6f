"""Allocations of MindCluster's mode on a node, under kills at every call of the driver and of the disk: nothing is lost,
nobody else's is touched, and no two pods have one thing (ADR 81)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from kit.seeds import chosen_seed
from tests.property.npu_kills import CARDS, TEMPLATES, Deed, Killed, KilledWorld

from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper, ids_text
from pumice.ports.slices import UNOPENED, NpuRefused, Place

OPERATIONS = 1_000_000
SEED = chosen_seed()


@dataclass
class Pod:
    """``given``: what its container was told; empty before it was served. ``runs``: a container has it open."""

    uid: str
    places: tuple[Place, ...]
    ids: str
    given: tuple[Place, ...] = ()
    runs: bool = False


class World(KilledWorld):
    """One node with a plugin that is killed, containers that open what they were given, and a stranger who cuts by hand."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keeper = self.fresh()
        self.pods: dict[str, Pod] = {}

    def fresh(self) -> ChipKeeper:
        return ChipKeeper("Ascend310P", self.driver, self.journal)

    def deeds(self) -> Mapping[Deed, int]:
        weights = {self.admit: 5, self.swap: 2, self.start: 4, self.stop: 2, self.end: 4, self.sweep: 4}
        return weights | dict.fromkeys((self.stranger, self.clean, self.reset), 1)

    def begin_anew(self, killed: Deed) -> None:
        self.keeper = self.fresh()

    def check(self) -> None:
        super().check()
        given = [place for pod in self.pods.values() for place in pod.given]
        assert all(count == 1 for count in Counter((place.card, place.start) for place in given).values()), "two have one slice"
        for pod in self.pods.values():
            for place in pod.given:
                if place.profile:
                    there = self.driver.slices[place.card].get(place.start)
                    assert there is not None, "a pod's slice is gone"
                    assert there.template == place.profile
                else:
                    assert [other for other in given if other.card == place.card] == [place], "a whole chip is shared"

    # -- what happens ------------------------------------------------------------------------------------------------------

    def pod(self, template: str | None = None) -> Pod:
        card = self.rng.randrange(len(CARDS))
        wanted = template if template is not None else self.rng.choice([*TEMPLATES, ""])
        chips = range(len(CARDS)) if not wanted and self.rng.random() < 0.3 else (card,)
        places = tuple(Place(CARDS[chip], wanted, chip) for chip in chips)
        ids = ids_text(f"npu-core-{self.rng.randrange(16)}-{self.count}" for _ in range(2))
        return Pod(f"pod-{self.count}-{self.rng.getrandbits(20)}", places, ids)

    def admit(self) -> None:
        self.served(pod := self.pod(), pod)

    def served(self, holder: Pod, matched: Pod) -> None:
        """A call for ``holder`` that is taken for ``matched``'s. Where it fails, the kubelet fails the pod."""
        self.pods[matched.uid] = matched
        self.pods[holder.uid] = holder
        try:
            found, _ = self.keeper.give(matched.places, matched.uid, holder.ids.split(","), CARDS, self)
        except (Killed, NpuRefused):
            del self.pods[holder.uid]
            self.pods.pop(matched.uid, None)
            raise
        holder.given = tuple(slice_.place for slice_ in found.values()) or matched.places

    def swap(self) -> None:
        """Two pods of one size, each served with what was the other's; then the kubelet writes both down."""
        template = self.rng.choice(list(TEMPLATES))
        first, second = self.pod(template), self.pod(template)
        second.ids += ",second"
        try:
            self.served(first, second)
            self.served(second, first)
        except (Killed, NpuRefused):
            self.pods.pop(first.uid, None)
            self.pods.pop(second.uid, None)
            raise
        self.sweep()

    def start(self) -> None:
        for pod in self.rng.sample(list(self.pods.values()), min(1, len(self.pods))):
            self.opened(pod, True)

    def stop(self) -> None:
        """Its container ends, to be started again: what it has stays."""
        for pod in self.rng.sample(list(self.pods.values()), min(1, len(self.pods))):
            self.opened(pod, False)

    def opened(self, pod: Pod, runs: bool) -> None:
        self.driver.lives = -1
        for place in pod.given:
            if place.profile and pod.runs != runs:
                self.driver.use(place.card, place.start, 7 if runs else 0, runs)
        pod.runs = runs

    def end(self) -> None:
        for pod in self.rng.sample(list(self.pods.values()), min(1, len(self.pods))):
            self.opened(pod, False)
            del self.pods[pod.uid]

    def sweep(self) -> None:
        record = {pod.uid: pod.ids for pod in self.pods.values() if pod.given}
        state = self.keeper.sweep(CARDS, self, record, set(self.pods))
        for pod in self.pods.values():
            owned = {entry.place for entry in state.entries if entry.owner == pod.uid}
            assert set(pod.given) <= owned, "the books say who has what the kubelet says"

    def holds(self, uid: str) -> str:
        return uid if uid in self.pods else ""

    runs = holds

    def reset(self) -> None:
        """Every slice vanishes, and every container with it; the plugin makes those anew that pods know by their numbers."""
        if self.driver.lives < 0 and self.rng.random() < 0.3:
            self.theirs.clear()
            for card in CARDS:
                self.driver.slices[card].clear()
            for pod in self.pods.values():
                pod.runs = False
            self.keeper = self.fresh()
            self.sweep()

    def stranger(self) -> None:
        """Cuts by hand; not just the number that was written down for a slice when the plugin was killed (ADR 81)."""
        card, template = self.rng.choice(CARDS), self.rng.choice(list(TEMPLATES))
        whole = {place.card for pod in self.pods.values() for place in pod.given if not place.profile}
        stale = {entry.place.start for entry in self.journal.entries if entry.place.card == card}
        free = [ident for ident in range(100, 116) if ident not in self.driver.slices[card] and ident not in stale]
        if self.driver.lives < 0 and card not in whole:
            ident = self.driver.make(card, template, free[0])
            self.theirs[card, ident] = self.driver.slices[card][ident]

    def clean(self) -> None:
        if self.theirs and self.driver.lives < 0:
            card, ident = self.rng.choice(list(self.theirs))
            del self.theirs[card, ident]
            self.driver.destroy(card, ident)

    def over(self) -> None:
        """Every pod ends: the next sweep leaves nothing of theirs."""
        self.driver.lives = -1
        for pod in self.pods.values():
            self.opened(pod, False)
        self.pods.clear()
        self.sweep()
        left = {(card, ident) for card in CARDS for ident in self.driver.slices[card]}
        assert left == set(self.theirs), "a slice of ours was left behind"
        assert not self.journal.entries, "the books are empty when nobody holds anything"


def play(operations: int, seed: int) -> int:
    done = kills = 0
    while done < operations:
        world = World(seed + done)
        for _ in range(min(500, operations - done)):
            world.step()
        world.over()
        done, kills = done + world.count, kills + world.kills
    return kills


def test_nothing_is_lost_and_nobody_elses_is_touched() -> None:
    print(f"seed {SEED}")
    assert play(OPERATIONS // 100, SEED)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_a_million_operations() -> None:
    print(f"seed {SEED}")
    assert play(OPERATIONS, SEED)


def test_a_slice_that_a_container_has_open_stays_until_it_ends() -> None:
    world = World(1)
    pod = Pod("p", (Place("A", "vir02", 0),), "npu-core-0,npu-core-1")
    world.served(pod, pod)
    world.driver.use("A", 100, UNOPENED - 1, True)
    world.pods.clear()
    world.sweep()
    assert list(world.driver.slices["A"]) == [100]
    world.driver.use("A", 100, 0, False)
    world.sweep()
    assert not world.driver.slices["A"]
