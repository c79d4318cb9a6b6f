"""Slices of NPUs under kills at every call of the driver: none of ours stays for ever, and none of somebody else's is touched
(HAMi ascend-device-plugin; ADR 70)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from kit.seeds import chosen_seed
from tests.property.npu_kills import CARDS, TEMPLATES, Deed, Killed, KilledWorld

from pumice.devices.ascend_hami.node.keeper import Keeper
from pumice.ports.slices import Place

OPERATIONS = 1_000_000
SEED = chosen_seed()


@dataclass
class Pod:
    uid: str
    place: Place
    container: int = 0
    slice: int = 0
    answered: bool = False


class World(KilledWorld):
    """One node: pods that come and go, a runtime and a plugin that are killed, and a stranger who cuts by hand."""

    chance, calls = 0.2, 4

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.keeper = Keeper(self.driver, self.journal)
        self.pods: dict[str, Pod] = {}
        self.containers: dict[int, str] = {}

    def deeds(self) -> Mapping[Deed, int]:
        weights = {self.admit: 4, self.start: 6, self.stop: 4, self.end: 4, self.sweep: 5}
        return weights | dict.fromkeys((self.stranger, self.beside, self.clean), 1)

    def begin_anew(self, killed: Deed) -> None:
        if killed in (self.admit, self.sweep):
            self.keeper = Keeper(self.driver, self.journal)

    def check(self) -> None:
        super().check()
        for pod in self.pods.values():
            if pod.slice:
                assert self.driver.slices[pod.place.card][pod.slice].container == pod.container, "a pod's slice was taken"

    # -- what happens ------------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        pod = Pod(f"pod-{self.count}", Place(self.rng.choice(CARDS), self.rng.choice(list(TEMPLATES)), 0))
        self.pods[pod.uid] = pod
        self.keeper.claim([pod.place], pod.uid, dict(self.containers))
        pod.answered = True

    def start(self) -> None:
        """The runtime's hook: it may be killed between the making and the container's opening."""
        idle = [pod for pod in self.pods.values() if pod.answered and not pod.slice]
        if not idle:
            return
        pod = self.rng.choice(idle)
        ident = self.driver.make(pod.place.card, pod.place.profile)
        container = self.rng.getrandbits(47) + 1
        self.containers[container] = pod.uid
        try:
            self.driver.use(pod.place.card, ident, container, True)
        except Killed:  # what the container had opened is closed with it
            here = self.driver.slices[pod.place.card]
            if here[ident].busy:
                here[ident] = replace(here[ident], container=0, busy=False)
            raise
        pod.slice, pod.container = ident, container

    def stop(self) -> None:
        """The container ends; the hook after it may be killed before it destroys the slice."""
        running = [pod for pod in self.pods.values() if pod.slice]
        if running:
            self._stop(self.rng.choice(running))

    def end(self) -> None:
        if self.pods:
            pod = self.rng.choice(list(self.pods.values()))
            try:
                if pod.slice:
                    self._stop(pod)
            finally:
                del self.pods[pod.uid]

    def _stop(self, pod: Pod) -> None:
        card, ident, pod.slice = pod.place.card, pod.slice, 0
        lives, self.driver.lives = self.driver.lives, -1
        self.driver.use(card, ident, 0, False)  # the driver sees it whoever lives
        self.driver.lives = lives
        self.driver.destroy(card, ident)

    def sweep(self) -> None:
        self.keeper.sweep(CARDS, lambda uid: uid if uid in self.pods else "", dict(self.containers))

    def stranger(self) -> None:
        """Cuts by hand, but not what a container of ours is about to be given: those two nobody can tell apart (ADR 70)."""
        card, template = self.rng.choice(CARDS), self.rng.choice(list(TEMPLATES))
        known = {entry.place for entry in self.journal.entries}
        if self.driver.lives >= 0 or Place(card, template, 0) in known:
            return
        stale = {entry.place.start for entry in self.journal.entries if entry.place.card == card}
        ident = self.driver.make(card, template)
        if ident in stale:
            del self.driver.slices[card][ident]
            return
        self.theirs[card, ident] = self.driver.slices[card][ident]

    def beside(self) -> None:
        """Cuts by hand just what a pod has that runs: the sweeps before and after see that the pod's container made nothing."""
        running = [pod for pod in self.pods.values() if pod.slice and pod.uid in self.known()]
        alone = [pod for pod in running if sum(other.place == pod.place for other in self.pods.values()) == 1]
        if alone and self.driver.lives < 0:
            self.sweep()
            pod = self.rng.choice(alone)
            if sum(entry.place == pod.place for entry in self.journal.entries) > 1:
                return  # the claim of a pod that is gone stands a little longer
            ident = self.driver.make(pod.place.card, pod.place.profile)
            self.theirs[pod.place.card, ident] = self.driver.slices[pod.place.card][ident]
            self.sweep()

    def known(self) -> set[str]:
        return {entry.owner for entry in self.journal.entries}

    def clean(self) -> None:
        if self.theirs and self.driver.lives < 0:
            card, ident = self.rng.choice(list(self.theirs))
            del self.theirs[card, ident]
            self.driver.destroy(card, ident)
            self.sweep()  # else the next slice at its id could be either's

    def over(self) -> None:
        """Every pod ends, the runtime with them; two sweeps later, and two more for claims that nobody holds, nothing is left."""
        self.driver.lives = -1
        for pod in list(self.pods.values()):
            if pod.slice:
                self.driver.use(pod.place.card, pod.slice, 0, False)
        self.pods.clear()
        for _ in range(2):
            self.sweep()
        left = {(card, ident) for card in CARDS for ident in self.driver.slices[card]}
        assert left == set(self.theirs), "a slice of ours was left behind"
        assert not any(self.journal.entries), "the books are empty when nobody holds anything"


def play(operations: int, seed: int) -> World:
    done = 0
    while True:
        world = World(seed + done)
        for _ in range(min(500, operations - done)):
            world.step()
        world.over()
        done += world.count
        if done >= operations:
            return world


def test_no_slice_is_lost_and_none_of_somebody_elses_is_touched() -> None:
    print(f"seed {SEED}")
    assert play(OPERATIONS // 100, SEED).kills


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_slice_is_lost_in_a_million_operations() -> None:
    print(f"seed {SEED}")
    assert play(OPERATIONS, SEED).kills
