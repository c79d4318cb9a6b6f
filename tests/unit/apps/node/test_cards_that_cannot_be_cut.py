"""Cards that cannot be cut take no pods from the first moment on in which they are shown."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pumice.apps.node.card_watch import CardWatch
from pumice.node.health import XidRule
from pumice.ports.cards import CardFacts, Cards
from pumice.ports.clock import SystemClock

WHY = "this process may not cut it"


class Machine:
    """Cards that are in MIG mode, and the driver's other answers."""

    def __init__(self) -> None:
        self.minors = [0]

    def facts(self) -> tuple[CardFacts, ...]:
        return tuple(CardFacts(at, f"GPU-{at}", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=at, mig=True) for at in self.minors)

    def subscribe(self, cards: Any) -> dict[str, str]:
        return {}

    def events(self) -> list[Any]:
        return []

    def answers(self, card: str) -> bool:
        return True


def test_they_are_told_with_the_first_look_and_a_new_one_is_never_shown_without() -> None:
    async def work() -> None:
        machine, shown = Machine(), []
        watch = CardWatch(cast(Cards, machine), SystemClock(), XidRule.parse("", ""), every=0.01, full_every=0.02)

        def uncut(cards: list[str]) -> dict[str, str]:
            shown.append([card.uuid for card in watch.facts])
            return dict.fromkeys(cards, WHY)

        watch.uncut = uncut
        await watch.start()
        assert (shown, watch.unhealthy) == ([[]], {"GPU-0": WHY})
        machine.minors.append(1)
        looking = asyncio.create_task(watch.run())
        while len(watch.facts) < 2:
            assert "GPU-1" not in {card.uuid for card in watch.facts}
            await asyncio.sleep(0)
        assert watch.unhealthy == {"GPU-0": WHY, "GPU-1": WHY}
        looking.cancel()
        watch.close()

    asyncio.run(asyncio.wait_for(work(), 60))
