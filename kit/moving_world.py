"""A world in which pods are moved: evicted ones are made anew by their controllers, and what is bound runs."""

from __future__ import annotations

import copy
from typing import Any

from kit.engine_world import World
from pumice.effects.vocabulary import Evict
from pumice.wire import names

Json = dict[str, Any]


class MovingWorld(World):
    """A world with a controller that makes evicted pods anew, and a kubelet that runs what is bound, while they are there."""

    def __init__(self, conf: str, *, seed: int = 1) -> None:
        super().__init__(conf, seed=seed)
        self.now = 1.8e9
        self.controller = self.kubelet = True
        self.made = 0
        self.gone: list[Json] = []

    def _evict(self, effect: Evict) -> None:
        old = self.pods.get(f"{effect.namespace}/{effect.name}")
        super()._evict(effect)
        if old is not None and f"{effect.namespace}/{effect.name}" not in self.pods:
            self.gone.append(old)

    def cycle(self) -> Any:
        found = super().cycle()
        self.live()
        return found

    def live(self) -> None:
        while self.controller and self.gone:
            self.made += 1
            old = self.gone.pop(0)
            fresh = copy.deepcopy(old)
            kept = {key: text for key, text in old["metadata"]["annotations"].items() if not key.startswith("volcano.sh/")}
            fresh["metadata"] |= {"name": f"{old['metadata']['name'].partition('-')[0]}-{self.made}", "annotations": kept,
                                  "uid": f"{old['metadata']['uid']}-{self.made}"}  # fmt: skip
            fresh["spec"].pop("nodeName")
            fresh["status"] = {"phase": "Pending"}
            self.add(fresh)
        for one in list(self.pods.values()) if self.kubelet else ():
            if one["spec"].get("nodeName") and one["status"]["phase"] == "Pending":
                self.set_phase(one["metadata"]["name"], "Running", one["metadata"]["namespace"])

    def on_card(self, card: str, *pods: Json) -> None:
        """Run pods on that card and no other."""
        every = [f"GPU-{name}-{i}" for name in self.nodes for i in range(4)]
        self.cordon(*(one for one in every if one != card))
        self.add(*pods)
        self.settle()
        self.cordon()

    def cordon(self, *cards: str) -> None:
        for found in self.nodes.values():
            found["metadata"]["annotations"][names.CORDONED_CARDS] = ",".join(cards)
            self.add(found)

    def where(self, start: str) -> str:
        return next((self.card_of(one["metadata"]["name"]) for one in self.pods.values()
                     if one["metadata"]["name"].partition("-")[0] == start), "gone")  # fmt: skip

    def told(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]

    @property
    def nothing_held(self) -> bool:
        held = [uid for uid in self.engine.state.ledger.placements if uid.startswith("held for")]
        return not held and not self.engine.state.nominations.kept and self.engine.state.moves.plan is None
