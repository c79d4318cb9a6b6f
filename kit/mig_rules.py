"""NVIDIA's rules for placing GPU instances, written down a second time, to check the emulated machine against.

The table here is its own, typed from NVIDIA's MIG user guide ("Supported MIG profiles", `-lgip` and `-lgipp` print-outs); it
shares nothing with ``pumice.model.hardware``. What a driver refuses:

- a profile that the card does not have (invalid argument) and a placement that the profile does not have (invalid argument);
- an instance that would lie over another, or a second holder of the one set of media extensions (insufficient resources);
- destroying an instance that holds a compute instance (in use).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pumice.ports.slices import CutRefused, Place, Slice, SliceProfile


class Verdict(StrEnum):
    """The driver's answers; the values are NVML's names."""

    SUCCESS = "SUCCESS"
    INVALID = "INVALID_ARGUMENT"
    FULL = "INSUFFICIENT_RESOURCES"
    IN_USE = "IN_USE"
    NOT_FOUND = "NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Rule:
    """One profile: its name, memory slices an instance takes, and where it may begin."""

    name: str
    length: int
    begins: tuple[int, ...]
    media: bool = False


def _hopper_like(one: str, wide: str, two: str, three: str, four: str, seven: str) -> dict[int, Rule]:
    """Cards of seven compute slices over eight memory slices, from the A100 on, by NVIDIA's profile id."""
    return {
        19: Rule(one, 1, (0, 1, 2, 3, 4, 5, 6)),
        20: Rule(f"{one}+me", 1, (0, 1, 2, 3, 4, 5, 6), media=True),
        15: Rule(wide, 2, (0, 2, 4, 6)),
        14: Rule(two, 2, (0, 2, 4)),
        9: Rule(three, 4, (0, 4)),
        5: Rule(four, 4, (0,)),
        0: Rule(seven, 8, (0,)),
    }


RULES: dict[str, dict[int, Rule]] = {
    "A30": {
        14: Rule("1g.6gb", 1, (0, 1, 2, 3)),
        21: Rule("1g.6gb+me", 1, (0, 1, 2, 3), media=True),
        5: Rule("2g.12gb", 2, (0, 2)),
        6: Rule("2g.12gb+me", 2, (0, 2), media=True),
        0: Rule("4g.24gb", 4, (0,)),
    },
    "A100-SXM4-40GB": _hopper_like("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-SXM4-80GB": _hopper_like("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-SXM5-80GB": _hopper_like("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-NVL": _hopper_like("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "H200": _hopper_like("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200": _hopper_like("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}


@dataclass(slots=True)
class Placed:
    """A GPU instance as the checker knows it."""

    profile: int
    begin: int
    computing: int = 0


@dataclass(slots=True)
class Partitioned:
    """A card in MIG mode and what lies on it, by any key that the caller chooses."""

    rules: dict[int, Rule]
    instances: dict[int, Placed] = field(default_factory=dict)

    def taken(self) -> set[int]:
        """The memory slices under some instance."""
        return {
            slice_
            for made in self.instances.values()
            for slice_ in range(made.begin, made.begin + self.rules[made.profile].length)
        }

    def open_begins(self, profile: int) -> tuple[int, ...]:
        """Where an instance of the profile can be placed now."""
        rule = self.rules[profile]
        if rule.media and any(self.rules[made.profile].media for made in self.instances.values()):
            return ()
        taken = self.taken()
        return tuple(begin for begin in rule.begins if taken.isdisjoint(range(begin, begin + rule.length)))

    def verdict(self, profile: int, begin: int | None = None) -> Verdict:
        """Return the driver's answer to one more instance, at ``begin`` or at any placement."""
        if profile not in self.rules:
            return Verdict.INVALID
        if begin is not None and begin not in self.rules[profile].begins:
            return Verdict.INVALID
        openings = self.open_begins(profile)
        if begin is None:
            return Verdict.SUCCESS if openings else Verdict.FULL
        return Verdict.SUCCESS if begin in openings else Verdict.FULL

    def room(self, profile: int) -> int:
        """Return how many more instances of the profile fit."""
        openings = len(self.open_begins(profile))
        return min(openings, 1) if self.rules[profile].media else openings

    def place(self, key: int, profile: int, begin: int) -> None:
        """Books an instance that the driver made; raises ``AssertionError`` when it broke a rule."""
        assert begin in self.open_begins(profile), (self.rules[profile].name, begin, self.instances)
        self.instances[key] = Placed(profile, begin)

    def removal(self, key: int) -> Verdict:
        """Return the driver's answer to destroying the instance."""
        if key not in self.instances:
            return Verdict.NOT_FOUND
        return Verdict.IN_USE if self.instances[key].computing else Verdict.SUCCESS

    def remove(self, key: int) -> None:
        del self.instances[key]


# -- Slices without a driver: ``ports.slices.Slices`` by NVIDIA's rules as the checker of the emulated machine


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
