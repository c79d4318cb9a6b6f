"""Whatever nodes say is held, while pods come and go: nobody else comes onto a held card, and nothing is held beyond its time."""

from __future__ import annotations

from random import Random

import pytest
from kit.engine_world import MovingWorld
from kit.objects import group, node, pod
from kit.scheduler_confs import conf, sharing
from kit.seeds import chosen_seed

from pumice.wire import names
from pumice.wire.held_places import HeldPlace, render_held_places
from pumice.wire.times import stamp

CONF = conf("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"))
SEED = chosen_seed()


class Holding:
    """A cluster, and who may come onto which card until when, as it follows from what the nodes say."""

    def __init__(self, seed: int) -> None:
        self.rng, self.world = Random(seed), MovingWorld(CONF)
        self.world.add(*(node(f"n{at}", cards=2, mib=8000) for at in range(2)), group("g", minimum=2))
        self.cards = [f"GPU-n{at}-{number}" for at in range(2) for number in range(2)]
        self.made = 0

    def step(self) -> None:
        rng, world = self.rng, self.world
        match rng.choice(("come", "come", "go", "hold", "hold", "free", "nonsense")):
            case "come":
                self.made += 1
                world.add(pod(f"p{self.made}", mib=rng.choice((2000, 4000, 8000)), owner=rng.choice(("", "a", "b")),
                              group=rng.choice((None, None, "g"))))  # fmt: skip
            case "go" if world.pods:
                world.delete_pod(rng.choice(sorted(world.pods)).partition("/")[2])
            case "hold":
                self.say(render_held_places(tuple(self.place() for _ in range(rng.randint(1, 3)))))
            case "free":
                self.say("")
            case "nonsense":
                self.say(rng.choice(("[", "[7]", "{}", '[{"cards":["GPU-n0-0"],"until":"never"}]')))
        before = {card: self.on(card) for card in self.cards}
        holds = {card: [one for one in world.engine.state.held_places if card in one.asked.cards] for card in self.cards}
        world.settle(rng.choice((0.25, 1, 5, 40)))
        assert all(one.until > world.now - 1 for one in world.engine.state.held_places)
        for card, those in holds.items():
            lasting = [one for one in those if one.until > world.now]
            if lasting:
                came = self.on(card) - before[card]
                may = {one.asked.pod for one in lasting} | {uid for uid in came if self.owner(uid) in
                                                           {one.asked.controller for one in lasting} - {""}}  # fmt: skip
                given = not set(lasting) <= set(world.engine.state.held_places)  # then the rest of the card is anybody's
                assert given or came <= may, (card, came)

    def place(self) -> HeldPlace:
        rng, world = self.rng, self.world
        uid = rng.choice([str(one["metadata"]["uid"]) for one in world.pods.values()] or ["nobody"])
        whom = rng.choice((("", ""), (uid, ""), (uid, self.owner(uid)), ("nobody", ""), (uid, "job-none")))
        until = stamp(world.now + rng.choice((-5, 3, 60, 5000)))
        return HeldPlace(tuple(rng.sample(self.cards[:2], rng.randint(1, 2))), until, *whom)

    def say(self, text: str) -> None:
        found = self.world.nodes["n0"]
        notes = {**found["metadata"]["annotations"], names.HELD_PLACES: text}
        self.world.add({**found, "metadata": {**found["metadata"], "annotations": notes}})

    def on(self, card: str) -> set[str]:
        return {str(one["metadata"]["uid"]) for one in self.world.pods.values()
                if card in one["metadata"]["annotations"].get(names.VGPU_IDS, "")}  # fmt: skip

    def owner(self, uid: str) -> str:
        owners = [one["metadata"].get("ownerReferences") for one in self.world.pods.values() if one["metadata"]["uid"] == uid]
        return str(owners[0][0]["uid"]) if owners and owners[0] else ""


@pytest.mark.parametrize("seed", range(SEED, SEED + 6))
def test_nobody_comes_onto_a_held_card_but_whom_it_is_held_for(seed: int) -> None:
    holding = Holding(seed)
    for _ in range(60):
        holding.step()
    holding.say("")
    holding.world.settle(3)
    assert not [uid for uid in holding.world.engine.state.ledger.placements if "held on" in uid]
