"""The way of a card from the slices it has to the wanted ones: as much as can stay, stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pumice.devices.nvidia_vgpu.node.mig_slices import removal
from pumice.node.slices import Fill, Make, Step
from pumice.ports.slices import Place, Slice, SliceProfile


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices that stay, go and come; ``refill`` are halves of slices that want their second half."""

    stays: tuple[Slice, ...]
    goes: tuple[Slice, ...]
    comes: tuple[Place, ...]
    refill: tuple[Place, ...] = ()

    @property
    def steps(self) -> list[Step]:
        steps = [step for slice_ in self.goes for step in removal(slice_)]
        for place in self.comes:
            steps += [Make(place), Fill(place)]
        return steps + [Fill(place) for place in self.refill]


def arrange(
    card: str,
    offered: Sequence[SliceProfile],
    seen: Sequence[Slice],
    counts: Mapping[str, int],
    places: Sequence[tuple[str, int]],
    *,
    fixed: Callable[[Slice], str],
) -> Layout | str:
    """The layout with the fewest changes, or why there is none. ``counts`` slices come wherever there is room, beside those
    of ``places``. ``fixed`` says why a slice cannot go; empty where it can."""
    profiles = {profile.name: profile for profile in offered}
    wanted = Counter(counts)
    for name in (*wanted, *(profile for profile, _ in places)):
        if name not in profiles:
            return f"it has no profile {name}; its driver offers {', '.join(profiles) or 'none: MIG mode is off'}"
    named = [Place(card, profile, start) for profile, start in places]
    wanted.subtract(profile for profile, _ in places if profile in wanted)  # an export says both
    wanted = +wanted
    there = {slice_.place: slice_ for slice_ in seen if slice_.parts <= 1}
    must = {slice_.place: why for slice_ in seen if (why := fixed(slice_))}
    for place, why in sorted(must.items()):
        if place not in named and not wanted[place.profile]:
            return f"slice {place} would have to go: {why}"
    loose = [place for place in there if place not in named]
    for keep in _fewest_changes(loose, wanted):
        kept = set(keep)
        if any(place not in kept and place not in named for place in must):
            continue
        target = _fill_up([*named, *keep], wanted - Counter(place.profile for place in keep), profiles, card)
        if target is not None:
            return _changes(target, seen, there)
    return "these slices have no room beside each other" + (f"; {'; '.join(must.values())}" if must else "")


def _fewest_changes(loose: Sequence[Place], wanted: Counter[str]) -> Iterator[tuple[Place, ...]]:
    """Return which of the slices that are there may stay, most first."""
    for size in range(len(loose), -1, -1):
        for keep in combinations(sorted(loose), size):
            if Counter(place.profile for place in keep) <= wanted:
                yield keep


def _fill_up(
    placed: list[Place], missing: Counter[str], profiles: Mapping[str, SliceProfile], card: str
) -> list[Place] | None:
    """The placed ones and the missing ones, where all of them fit."""
    used = 0
    for place in placed:
        profile = profiles[place.profile]
        cover = (1 << profile.size) - 1 << place.start
        if place.start not in profile.starts or cover & used:
            return None
        used |= cover
    rest = sorted(missing.elements(), key=lambda name: (-profiles[name].size, name))
    found = _put(rest, used, profiles, card)
    return None if found is None else [*placed, *found]


def _put(rest: Sequence[str], used: int, profiles: Mapping[str, SliceProfile], card: str) -> list[Place] | None:
    if not rest:
        return []
    profile = profiles[rest[0]]
    for start in profile.starts:
        cover = (1 << profile.size) - 1 << start
        if not cover & used:
            others = _put(rest[1:], used | cover, profiles, card)
            if others is not None:
                return [Place(card, profile.name, start), *others]
    return None


def _changes(target: Sequence[Place], seen: Sequence[Slice], there: Mapping[Place, Slice]) -> Layout:
    stays = tuple(there[place] for place in sorted(target) if place in there)
    return Layout(
        stays,
        tuple(slice_ for slice_ in seen if slice_.place not in target or slice_.parts > 1),
        tuple(place for place in target if place not in there),
        tuple(slice_.place for slice_ in stays if slice_.half),
    )
