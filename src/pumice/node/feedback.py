"""The feedback of a monitor, one pure round of it (HAMi cmd/vGPUmonitor/feedback.go, volcano-sh/devices pkg/plugin/nvidia).

The library tells of a launch by setting ``recent`` to 2; each round counts that down, so a tenant stays active for one to two
rounds after its last launch. While somebody more important is active on one of its cards, a tenant's launches wait. Alone at
work it runs without its core limit, and one that may burst has what its active neighbours did not ask for.
A round must be longer than the half second within which the library repeats itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

WAIT: Final = -1
"""``recent_kernel`` of a tenant whose launches wait."""
ACTIVE: Final = 2
"""``recent_kernel`` after a launch; no library writes more, and who does gains nothing by it."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Tenant:
    """The cards that were granted to it, priority (lower comes first), what its region says or is to say: ``recent_kernel``, and
    whether its core limit is in force (``utilization_switch``); for how many rounds in a row it has waited; and whether it may
    make others wait. ``cores`` it asked for, of each card (0: no limit), and up to ``burst`` percent it may have; 0: no more than
    it asked for. Only ``recent`` and ``limited`` may come from the region, which the tenant can write."""

    uuids: tuple[str, ...]
    priority: int
    recent: int
    limited: bool = True
    waited: int = 0
    goes_first: bool = True
    cores: tuple[int, ...] = ()
    burst: int = 0

    def asked(self, uuid: str) -> int:
        """Return the percent of the card that is its own: without a limit all of it may be."""
        return sum(cores or 100 for card, cores in zip(self.uuids, self.cores, strict=False) if card == uuid)

    def yields_to(self, other: Tenant) -> bool:
        return other.goes_first and other.priority < self.priority


@dataclass(frozen=True, slots=True)
class Word:
    """The fields that a round writes to a region; None leaves the field as it is. ``burst``: the percent that it may have until
    the next round in place of its cores; 0: they hold."""

    recent: int | None = None
    limited: bool | None = None
    burst: int = 0


def feedback(
    tenants: Mapping[K, Tenant], *, lift_limits: bool = True, aged: bool = True, patience: int = 0
) -> dict[K, Word]:
    """One round: what is to be written to whom, nothing for those to whom nothing changes.

    ``aged``: a round has passed since the last one. A look between two rounds lets who has begun be waited for at once, and
    counts nobody down.
    ``patience``: rounds after which who has waited goes on for one; 0: waiting has no end. Upstream's has none.
    ``lift_limits``: a tenant who is alone at work on its cards runs without its core limit, as upstream's monitors have it.
    All cards of a tenant count, not the first that somebody works on (upstream's Volcano). What nobody active asked for of a card
    is shared alike by the active who may burst there.
    """
    counted = {key: min(t.recent, ACTIVE) - aged if t.recent > 0 else t.recent for key, t in tenants.items()}
    active: dict[str, list[Tenant]] = {}
    for key, tenant in tenants.items():
        if counted[key] > 0:
            for uuid in set(tenant.uuids):
                active.setdefault(uuid, []).append(tenant)
    words = {key: _word(tenant, counted[key], active, lift_limits, patience) for key, tenant in tenants.items()}
    return {key: word for key, word in words.items() if word != Word()}


def _word(tenant: Tenant, recent: int, active: Mapping[str, list[Tenant]], lift_limits: bool, patience: int) -> Word:
    here = [active[uuid] for uuid in tenant.uuids if uuid in active]
    waits = any(tenant.yields_to(other) for others in here for other in others)
    crowded = waits or any(sum(not other.yields_to(tenant) for other in others) > 1 for others in here)
    recent = WAIT if waits and not 0 < patience <= tenant.waited else max(recent, 0)
    limited = crowded if lift_limits else True
    burst = 0 if recent < 0 else _burst(tenant, active)
    return Word(recent if recent != tenant.recent else None, limited if limited != tenant.limited else None, burst)


def _burst(tenant: Tenant, active: Mapping[str, list[Tenant]]) -> int:
    """Return what it may have of each of its cards, which is more than it asked for, or 0."""
    found = []
    for uuid in tenant.uuids if tenant.burst else ():
        others = [other for other in active.get(uuid, ()) if other is not tenant]
        left = 100 - tenant.asked(uuid) - sum(other.asked(uuid) for other in others)
        sharers = 1 + sum(other.burst > 0 for other in others)
        found.append(min(tenant.burst, 99, tenant.asked(uuid) + left // sharers) if left > 0 else 0)
    least = min(found, default=0)
    return least if all(least > cores for cores in tenant.cores) else 0
