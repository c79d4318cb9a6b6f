"""One pod's draft over what is in use: devices are taken and given back, and each rule is asked about what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pumice.claims.attributes import Constraining, cards_of
from pumice.claims.objects import Amount, Device, DeviceID
from pumice.claims.reasons import FitError, Rule
from pumice.claims.requests import Ask
from pumice.claims.slices import NodePool, PooledDevice, PoolID, Slices
from pumice.claims.usage import NONE, Usage, amounts, free_counters


@dataclass(frozen=True, slots=True)
class Taken:
    """A device of the draft: what it holds, so that it can be given back."""

    ask: Ask
    place: PooledDevice
    consumed: dict[str, Fraction]
    counters: dict[tuple[str, str], Amount]
    constraints: Sequence[Constraining]

    @property
    def is_shared(self) -> bool:
        return self.place.device.allow_multiple_allocations


@dataclass(slots=True)
class Draft:
    """Devices with adminAccess hold nothing, and are held by nobody: only one claim does not get one twice."""

    usage: Usage
    slices: Slices
    pools: dict[PoolID, NodePool]
    taken: list[Taken] = field(default_factory=list)
    _exclusive: set[DeviceID] = field(default_factory=set)
    _of_claim: set[tuple[int, DeviceID]] = field(default_factory=set)
    _shares: dict[DeviceID, int] = field(default_factory=lambda: defaultdict(int))
    _consumed: dict[tuple[DeviceID, str], Fraction] = field(default_factory=dict)
    _drawn: dict[tuple[PoolID, str, str], Amount] = field(default_factory=dict)
    _free: dict[PoolID, dict[tuple[str, str], Amount] | DeviceID] = field(default_factory=dict)
    """Of counters, before this draft."""

    def fit_error(self, ask: Ask, place: PooledDevice) -> FitError | None:
        """Return the first rule that keeps the device from the request now; selectors and constraints aside."""
        return self.in_use(ask, place) or self.fit_error_if_free(ask, place)

    def fit_error_if_free(self, ask: Ask, place: PooledDevice) -> FitError | None:
        """Return the first rule that keeps the device from the request, had nobody else the device itself."""
        device, admin = place.device, ask.asked.admin_access
        found = _untolerated(ask, device)
        if found is not None:
            return found
        shares = ask.shares_of(place)
        if isinstance(shares, FitError):
            return shares
        if admin:
            return None
        return (self._capacity(place, shares) if device.allow_multiple_allocations else None) or self._counters(place)

    def take(self, ask: Ask, place: PooledDevice, constraints: Sequence[Constraining]) -> None:
        """Take a device that fits: ``constraints`` are those of its claim that concern the request."""
        device, id_ = place.device, place.id
        admin, shared = ask.asked.admin_access, device.allow_multiple_allocations
        shares = ask.shares_of(place) if shared and not admin else {}
        assert not isinstance(shares, FitError)
        draws = not admin and not (shared and self._is_shared_out(id_))
        taken = Taken(ask, place, shares, amounts(device.consumes_counters) if draws else {}, constraints)
        self.taken.append(taken)
        if not shared:
            self._of_claim.add((ask.claim_at, id_))
        if not admin:
            self._shares[id_] += shared
            if not shared:
                self._exclusive.add(id_)
        self._count(taken, 1)
        for constraint in constraints:
            constraint.add(device, id_.driver)

    def give_back(self) -> None:
        """Undo the last ``take``."""
        taken = self.taken.pop()
        id_ = taken.place.id
        for constraint in taken.constraints:
            constraint.remove()
        self._count(taken, -1)
        if not taken.is_shared:
            self._of_claim.discard((taken.ask.claim_at, id_))
        if not taken.ask.asked.admin_access:
            self._shares[id_] -= taken.is_shared
            if not taken.is_shared:
                self._exclusive.discard(id_)

    def _count(self, taken: Taken, sign: int) -> None:
        id_ = taken.place.id
        for name, amount in taken.consumed.items():
            self._consumed[id_, name] = self._consumed.get((id_, name), NONE) + sign * amount
        for (set_, name), drawn in taken.counters.items():
            key = (taken.place.slice.pool, set_, name)
            self._drawn[key] = self._drawn.get(key, 0) + sign * drawn

    def _is_shared_out(self, id_: DeviceID) -> bool:
        return id_ in self.usage.shared or self._shares[id_] > 0

    def in_use(self, ask: Ask, place: PooledDevice) -> FitError | None:
        id_ = place.id
        if (ask.claim_at, id_) in self._of_claim:
            return FitError(Rule.IN_USE, detail="this claim has it")
        if ask.asked.admin_access:
            return None
        if id_ in self.usage.exclusive:
            return FitError(Rule.IN_USE, detail="another claim has it")
        if id_ in self._exclusive:
            return FitError(Rule.IN_USE, detail="another claim of this pod takes it")
        if self.usage.cards and (who := self._held_otherwise(place)):
            return FitError(Rule.IN_USE, detail=who)
        if not place.device.allow_multiple_allocations and id_ in self.usage.shared:
            return FitError(Rule.IN_USE, detail="other claims have shares of it, from when it could be shared")
        return None

    def _held_otherwise(self, place: PooledDevice) -> str:
        """Return who holds the card of the device, where that is no claim: a card serves claims or others."""
        held, cards = self.usage.cards, cards_of(place.device, place.id.driver)
        return next((held[card] for card in (*cards, "") if card in held), "") if cards else ""

    def _capacity(self, place: PooledDevice, shares: dict[str, Fraction]) -> FitError | None:
        used = self.usage.consumed.get(place.id, {})
        lacking: list[FitError] = []
        for name, share in shares.items():
            free = place.device.capacity[name].value - used.get(name, NONE) - self._consumed.get((place.id, name), NONE)
            if share > free:
                lacking.append(FitError(Rule.CAPACITY, name, share, free))
        return replace(lacking[0], beside=tuple(lacking[1:])) if len(lacking) > 1 else lacking[0] if lacking else None

    def _counters(self, place: PooledDevice) -> FitError | None:
        """A shared device has paid once it is shared. A counter that others have over-committed closes it all the same."""
        device, pool = place.device, place.slice.pool
        if not device.consumes_counters:
            return None
        paid = device.allow_multiple_allocations and self._is_shared_out(place.id)
        if pool not in self._free:
            self._free[pool] = free_counters(self.usage, self.pools[pool], self.slices)
        free = self._free[pool]
        if isinstance(free, DeviceID) and paid:
            return None
        if isinstance(free, DeviceID):
            return FitError(Rule.COUNTER, detail=f"{free} is in use and published no more: nobody knows what it consumes")
        for (set_, name), amount in amounts(device.consumes_counters).items():
            left = free[set_, name] - self._drawn.get((pool, set_, name), 0)
            if (0 if paid else amount) > left:
                return FitError(Rule.COUNTER, f"{set_}/{name}", amount, left)
        return None


def _untolerated(ask: Ask, device: Device) -> FitError | None:
    """Other effects than these two keep nobody away."""
    for taint in device.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            one.tolerates(taint) for one in ask.asked.tolerations
        ):
            return FitError(Rule.TAINT, f"{taint.key}={taint.value}:{taint.effect}", detail="not tolerated")
    return None
