"""Choice of the cards of one node for a pod, and the reason for none (Volcano pkg/scheduler/api/devices/ascend/hami)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pumice.devices.ascend_hami.device_request import ContainerRequest, NpuRequest
from pumice.devices.ascend_hami.inventory import ALL_CORES, Facts, Units
from pumice.devices.card_policies import POLICIES, TIE
from pumice.devices.protocol import NodeCards
from pumice.model.cards import IN_THE_MAKING, Allocation, Card, ContainerDevice, Slot, Usage
from pumice.model.refusal import CardFitError, FitError, Short
from pumice.wire.ascend_hami import SOFT

REFUSED = "no ascend device available"
RING_SCORE = 10.0
Chosen = tuple[tuple[int, ...], ...]
"""Per slot the places of its cards."""


def choose(want: NpuRequest, cards: NodeCards, pairs: bool) -> Chosen | int:
    """Cards for every slot, none twice in a pod; or the slot that finds too few. Slots choose in order; where that fails the
    largest choose first, so that a small one takes no card that only a large one needs."""
    found = _walk(want, cards, pairs, range(len(want.slots)))
    if isinstance(found, int) and len(want.filled) > 1:
        sizes = [0 if slot is None else slot.memory or 1 << 31 for slot in want.slots]
        again = _walk(want, cards, pairs, sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)))
        return found if isinstance(again, int) else again
    return found


def _walk(want: NpuRequest, cards: NodeCards, pairs: bool, order: Iterable[int]) -> Chosen | int:
    chosen: list[tuple[int, ...]] = [()] * len(want.slots)
    taken: set[int] = set()
    for at in order:
        slot = want.slots[at]
        if slot is None:
            continue
        fitting = [
            card
            for card in cards.inventory.cards
            if card.index not in taken and fit_error(want, slot, card, cards) is None
        ]
        fitting.sort(key=lambda card: (-card_score(want.policy, card, cards), card.index))
        picked = _pick(slot.count, [card.index for card in fitting], cards.inventory.config, pairs)
        if picked is None:
            return at
        chosen[at] = picked
        taken.update(picked)
    return tuple(chosen)


def _pick(count: int, fitting: Sequence[int], facts: Facts, pairs: bool) -> tuple[int, ...] | None:
    """The first ``count`` of the fitting places; with several wanted, pairs of dies and rings stay together."""
    if pairs:
        fitting = _in_pairs(fitting)
    if len(fitting) < count:
        return None
    if count > 1 and facts.rings is not None:
        fitting = _by_ring(count, fitting, facts.rings)
    return tuple(fitting[:count])


def _in_pairs(fitting: Sequence[int]) -> list[int]:
    """Only dies whose twin fits too, twins side by side."""
    free = set(fitting)
    seen = dict.fromkeys(place // 2 for place in fitting if place ^ 1 in free)
    return [place for pair in seen for place in (2 * pair, 2 * pair + 1)]


def _by_ring(count: int, fitting: Sequence[int], rings: Sequence[int]) -> list[int]:
    """The smallest ring that holds all of them first, so that large ones stay whole; else the largest first."""
    members: dict[int, list[int]] = {}
    for place in fitting:
        members.setdefault(rings[place], []).append(place)
    sizes = {ring: len(places) for ring, places in members.items()}
    enough = sorted((ring for ring in sizes if sizes[ring] >= count), key=lambda ring: (sizes[ring], ring))
    order = enough or sorted(sizes, key=lambda ring: (-sizes[ring], ring))
    return [place for ring in order for place in members[ring]]


def fit_error(want: NpuRequest, slot: ContainerRequest, card: Card, cards: NodeCards) -> CardFitError | None:
    """Return the first rule that the card breaks, None for a card that would do."""
    usage, facts = cards.usages[card.index], cards.inventory.config
    if reason := cards.quarantined.get(card.index, card.blocked):
        return CardFitError(card.uuid, Short.CORDON if reason == "cordoned" else Short.QUARANTINE, detail=reason)
    if not card.healthy:
        return CardFitError(card.uuid, Short.HEALTH, detail="its node's plugin says that it is not healthy")
    if (want.use_uuids and card.uuid not in want.use_uuids) or card.uuid in want.nouse_uuids:
        return CardFitError(card.uuid, Short.UUID, detail="excluded by the pod's annotations")
    if want.soft and not facts.soft:
        return CardFitError(card.uuid, Short.MODE, detail="the node cuts by templates, the pod wants hami-core")
    if not want.soft and not slot.whole and (facts.soft or _soft_shares(cards, card.index)):
        return CardFitError(card.uuid, Short.MODE, detail="the card is shared by hami-core, where no template can be cut")
    if usage.shares >= card.shares:
        return CardFitError(card.uuid, Short.SHARES, usage.shares + 1, card.shares, f"all {card.shares} vNPUs are taken")
    need, idle = slot.memory or card.total, max(0, card.total - usage.memory)
    if idle < need or (slot.whole and usage.shares):
        return CardFitError(card.uuid, Short.MEMORY, need, idle, unit="MiB")
    if want.soft:
        return _short_of_cores(slot, card, usage.cores, usage.shares)
    missing = facts.units.missing(slot.template, slices_on(usage), unmade_on(usage)) if slot.template else None
    return None if missing is None else CardFitError(card.uuid, Short.CORES, missing.wanted, missing.left, missing.text)


def _short_of_cores(slot: ContainerRequest, card: Card, cores: int, shares: int) -> CardFitError | None:
    """Rules 5 to 7: 100 means all to itself, and nobody joins a card whose cores are all given."""
    if slot.cores > ALL_CORES - cores or (slot.cores == ALL_CORES and shares):
        return CardFitError(card.uuid, Short.CORES, slot.cores, max(0, ALL_CORES - cores), unit="%")
    if not slot.cores and cores >= ALL_CORES:
        return CardFitError(card.uuid, Short.CORES, detail="all cores are taken, and a pod without cores may not join")
    return None


def slices_on(usage: Usage) -> list[str]:
    """The templates of the slices there; of soft shares the mode."""
    return [slot.profile for slot in _slots_on(usage)]


def unmade_on(usage: Usage) -> list[str]:
    """The templates of those that wait for vGroups."""
    return [slot.profile for slot in _slots_on(usage) if slot.number == IN_THE_MAKING]


def _slots_on(usage: Usage) -> Iterator[Slot]:
    return (device.slot for devices in usage.holders.values() for device in devices if device.slot is not None)


def _soft_shares(cards: NodeCards, place: int) -> bool:
    """Return whether somebody holds a soft share there: the node may have changed its mind since."""
    return SOFT in slices_on(cards.usages[place])


def allocation_of(device_type: str, want: NpuRequest, chosen: Chosen, cards: NodeCards) -> Allocation:
    """Return what the pod is to hold. ``slot.profile``: the template, or that the share is soft; None: the whole card."""
    all_cards, units = cards.inventory.cards, cards.inventory.config.units
    containers = tuple(
        tuple(
            container_device_of(
                all_cards[place], slot.memory or all_cards[place].total, slot.cores, SOFT if want.soft else slot.template, units
            )
            for place in places
        )
        if slot is not None
        else ()
        for slot, places in zip(want.slots, chosen, strict=True)
    )
    return Allocation(device_type, cards.node, containers, starting=in_the_making(containers))


def container_device_of(card: Card, memory: int, cores: int, kind: str, units: Units, *, made: bool = False) -> ContainerDevice:
    number = 0 if made or not units.awaited(kind) else IN_THE_MAKING
    return ContainerDevice(card.index, card.uuid, memory, cores, memory, Slot("", number, kind, memory) if kind else None)


def in_the_making(containers: Iterable[Iterable[ContainerDevice]]) -> bool:
    return any(device.slot is not None and device.slot.number == IN_THE_MAKING for devices in containers for device in devices)


def card_score(policy: str, card: Card, cards: NodeCards) -> float:
    """Return a card's score before the pod is there."""
    known, usage = POLICIES.get(policy), cards.usages[card.index]
    return 0.0 if known is None or not card.total else float(known.score(usage.memory, card.total, usage.shares))


def node_score(want: NpuRequest, chosen: Chosen, cards: NodeCards) -> float:
    """Per requesting container the score of its first card, and ten times the part of its cards that share a ring."""
    facts: Facts = cards.inventory.config
    total = 0.0
    for places in chosen:
        if places:
            total += card_score(want.policy, cards.inventory.cards[places[0]], cards)
            if facts.rings is not None:
                total += RING_SCORE * max(Counter(facts.rings[place] for place in places).values()) / len(places)
    return total + node_tie(want.policy, cards)


def node_tie(policy: str, cards: NodeCards) -> float:
    """Orders nodes whose cards score alike."""
    known = POLICIES.get(policy)
    if known is None:
        return 0.0
    all_cards, usages = cards.inventory.cards, cards.usages
    memory, total = sum(usage.memory for usage in usages), max(1, sum(card.total for card in all_cards))
    shares, limit = sum(usage.shares for usage in usages), max(1, sum(card.shares for card in all_cards))
    return TIE * float(known.tie(memory, total, shares, limit))


def explain(want: NpuRequest, at: int, cards: NodeCards) -> FitError:
    """Return why the node is refused, by the slot that found too few cards."""
    slot = want.slots[at]
    assert slot is not None
    all_cards = cards.inventory.cards
    found = {card.index: fit_error(want, slot, card, cards) for card in all_cards}
    fit_errors = tuple(found[card.index] for card in all_cards if found[card.index] is not None)
    counts = Counter(fit_error.short for fit_error in fit_errors if fit_error is not None)
    short = counts.most_common(1)[0][0] if counts else Short.COUNT
    of_short = [fit_error for fit_error in fit_errors if fit_error is not None and fit_error.short is short]
    wanted = max((fit_error.wanted for fit_error in of_short), default=slot.count)
    best = max((fit_error.best for fit_error in of_short), default=len(all_cards) - len(fit_errors))
    parts = ", ".join(f"{reason.value} {number}" for reason, number in counts.most_common())
    fitting = len(all_cards) - len(fit_errors)
    tail = f"; {slot.count} wanted, {fitting} fit" if slot.count > 1 or not counts or fitting else ""
    text = f"{REFUSED}: {parts or 'cards'} of {len(all_cards)} cards{tail}"
    return FitError(
        cards.node, short, text, wanted, best, _never(want, slot, cards), tuple(m for m in fit_errors if m is not None)
    )


def _never(want: NpuRequest, slot: ContainerRequest, cards: NodeCards) -> bool:
    """Return whether the node could not take it even if it were empty: of pods, and of claims that close a card."""
    of_others = (Short.SHARES, Short.MEMORY, Short.CORES, Short.QUARANTINE)
    could = 0
    for card in cards.inventory.cards:
        found = fit_error(want, slot, card, cards)
        could += found is None or (found.short in of_others and card.total >= (slot.memory or 1))
    return could < slot.count
