"""Which container of which pod holds which devices, with the answer that the plugin gave for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pumice_lab.kubelet.devices.plugin import Allocation


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of one resource in one container. ``by_numa`` as in the checkpoint: key ``-1`` is no NUMA node."""

    ids: frozenset[str]
    answer: Allocation
    by_numa: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(slots=True)
class Books:
    """pod uid -> container -> resource -> Held."""

    pods: dict[str, dict[str, dict[str, Held]]] = field(default_factory=dict)

    def insert(self, uid: str, container: str, resource: str, held: Held) -> None:
        self.pods.setdefault(uid, {}).setdefault(container, {})[resource] = held

    def get(self, uid: str, container: str, resource: str) -> Held | None:
        return self.pods.get(uid, {}).get(container, {}).get(resource)

    def of_container(self, uid: str, container: str) -> dict[str, Held]:
        return self.pods.get(uid, {}).get(container, {})

    def devices(self) -> dict[str, set[str]]:
        """Every device in use, by resource."""
        out: dict[str, set[str]] = {}
        for _, _, resource, held in self:
            out.setdefault(resource, set()).update(held.ids)
        return out

    def remove(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.pods.pop(uid, None)

    def __iter__(self) -> Iterator[tuple[str, str, str, Held]]:
        for uid, containers in self.pods.items():
            for container, resources in containers.items():
                for resource, held in resources.items():
                    yield uid, container, resource, held
