"""The legacy sharing in the words of ``card_rules``: a part of one card by ``gpu-memory``, or whole cards by ``gpu-number``; a
card is named by its number. Nothing of Pumice is imported here on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.audit.amounts import quantity
from pumice.audit.card_rules import Card, Want

Json = Mapping[str, Any]
MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
INDEX, UNHEALTHY = "volcano.sh/gpu-index", "volcano.sh/gpu-unhealthy-ids"
MANY = 1_000_000


@dataclass(frozen=True)
class Legacy:
    """``whole``: cards are given out one by one, else their memory is."""

    whole: bool

    @property
    def resources(self) -> tuple[str, ...]:
        return (NUMBER if self.whole else MEMORY,)

    def cards_of(self, node: Json) -> dict[str, Card]:
        """As many equal cards as the node's capacity says."""
        capacity = node.get("status", {}).get("capacity", {})
        memory, number = int(quantity(capacity.get(MEMORY, 0))), int(quantity(capacity.get(NUMBER, 0)))
        unhealthy = node["metadata"].get("annotations", {}).get(UNHEALTHY, "").split(",")
        return {str(i): Card(str(i), 1 if self.whole else MANY, memory // number, str(i) not in unhealthy, mig=False)
                for i in range(number) if MEMORY in capacity}  # fmt: skip

    def wants(self, pod: Json) -> list[Want]:
        """The pod as a whole, which runs no init container that asks for cards."""
        limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"].get("containers", ()))
        amount = sum(int(quantity(limit.get(self.resources[0], 0))) for limit in limits)
        if not amount:
            return []
        return [Want(amount, 0, 0, 0) if self.whole else Want(1, amount, 0, 0)]

    def assignment(self, pod: Json) -> str:
        """Return the devices in its annotations, as ``card_rules`` writes them."""
        memory = sum(want.memory for want in self.wants(pod))
        ids = pod["metadata"].get("annotations", {}).get(INDEX, "").split(",")
        return "".join(f"{number},NVIDIA,{memory},0:" for number in ids if number)
