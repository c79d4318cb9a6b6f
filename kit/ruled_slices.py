"""Slices without a driver: ``ports.slices.Slices`` by NVIDIA's rules as the checker of the emulated machine knows them."""

from __future__ import annotations

from collections.abc import Iterable

from kit.mig_rules import RULES, Partitioned, Verdict
from pumice.ports.slices import CutRefused, Place, Slice, SliceProfile


class RuledSlices:
    """Cards by UUID, each of a model of ``kit.mig_rules.RULES``, or empty for one that is not in MIG mode. UUIDs of slices
    never come again."""

    def __init__(self, models: dict[str, str]) -> None:
        self._cards = {card: Partitioned(RULES[model]) for card, model in models.items() if model}
        self._known = frozenset(models)
        self._uuids: dict[Place, str] = {}
        self._made = 0
        self.busy: set[Place] = set()

    def profiles(self, card: str) -> tuple[SliceProfile, ...]:
        rules = self._cards[card].rules.values() if card in self._cards else ()
        return tuple(SliceProfile(rule.name, rule.length, rule.begins) for rule in rules)

    def slices(self, card: str) -> tuple[Slice, ...]:
        if card not in self._known:
            raise CutRefused(f"card {card}: Not Found")
        return tuple(sorted(self._all(card), key=lambda slice_: slice_.place))

    def allowed(self, card: str) -> str:
        return ""

    def make(self, place: Place) -> None:
        profile = self._profile(place)
        verdict = self._cards[place.card].verdict(profile, place.start)
        if verdict is not Verdict.SUCCESS:
            raise CutRefused(f"slice {place} of card {place.card}: {verdict}")
        self._made += 1
        self._cards[place.card].place(self._made, profile, place.start)

    def fill(self, place: Place) -> str:
        made = self._cards[place.card].instances[self._key(place)]
        if not made.computing:
            self._made += 1
            self._uuids[place] = f"MIG-{self._made}"
            made.computing = 1
        return self._uuids[place]

    def drain(self, place: Place) -> None:
        key = self._key(place)
        if place in self.busy:
            raise CutRefused(f"slice {place} of card {place.card}: In use by another client")
        self._cards[place.card].instances[key].computing = 0

    def remove(self, place: Place) -> None:
        key = self._key(place)
        if (verdict := self._cards[place.card].removal(key)) is not Verdict.SUCCESS:
            raise CutRefused(f"slice {place} of card {place.card}: In use ({verdict})")
        self._cards[place.card].remove(key)

    def _all(self, card: str) -> Iterable[Slice]:
        for made in self._cards[card].instances.values() if card in self._cards else ():
            rule = self._cards[card].rules[made.profile]
            place = Place(card, rule.name, made.begin)
            yield Slice(place, rule.length, self._uuids[place] if made.computing else "", made.computing, place in self.busy)

    def _profile(self, place: Place) -> int:
        rules = self._cards[place.card].rules if place.card in self._cards else {}
        for number, rule in rules.items():
            if rule.name == place.profile:
                return number
        raise CutRefused(f"card {place.card} has no profile {place.profile}")

    def _key(self, place: Place) -> int:
        for key, made in self._cards[place.card].instances.items():
            if (self._cards[place.card].rules[made.profile].name, made.begin) == (place.profile, place.start):
                return key
        raise CutRefused(f"slice {place} of card {place.card} is not there")
