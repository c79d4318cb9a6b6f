"""Choice of the chips of one node for a pod, and the reason for none (Volcano pkg/scheduler/api/devices/ascend/mindcluster)."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from pumice.devices.ascend_mindcluster.device_request import CoreRequest
from pumice.devices.ascend_mindcluster.inventory import (
    EARLY,
    SHUT,
    Facts,
    chip_state,
    container_device_of,
    in_the_making,
    loss,
    others_made,
    takes,
    untouched,
    why_not,
)
from pumice.devices.protocol import Fit, NodeCards
from pumice.model.cards import IN_THE_MAKING, Allocation, Card
from pumice.model.hardware.npu import SliceKind, SliceTemplate
from pumice.model.refusal import CardFitError, FitError, Short
from pumice.wire.mindcluster import CHIPS, NPU_CORE

MOST_IDLE = CHIPS * 10
"""More AI cores than a node has idle."""
AS_REQUESTED = 2 * MOST_IDLE
"""The advantage of a node where the pod gets the template that is tried first: no fuller node outweighs it."""
TIE_ALONE = 1e-15
"""Without a weight the order of nodes only decides between those that every plugin holds equal."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A card with what is left of it."""

    card: Card
    cores: int
    cpus: int
    state: int
    closed: str

    @property
    def order(self) -> tuple[int, int, int]:
        """The fullest first."""
        return self.cores, self.cpus, self.card.index


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chips that were chosen. ``template`` None: the chips are given whole."""

    chips: tuple[Card, ...]
    template: SliceTemplate | None
    score: float


def chips_of(cards: NodeCards, kind: SliceKind) -> list[Chip]:
    facts: Facts = cards.inventory.config
    found = []
    for card in cards.inventory.cards:
        usage = cards.usages[card.index]
        state = chip_state(usage, kind, listed=facts.listed[card.index])
        closed = cards.quarantined.get(card.index, card.blocked) or ("" if card.healthy else "it is unhealthy")
        found.append(Chip(card, card.total - usage.memory, facts.cpus - usage.cores, state, closed))
    return found


def choose(want: CoreRequest, cards: NodeCards, kind: SliceKind, policy: str) -> Chosen | None:
    """The first template that some chip takes, on the fullest such chip or, by the policy, on the one that loses least by it;
    whole chips by their numbers."""
    every = chips_of(cards, kind)
    chips = [chip for chip in every if not chip.closed]
    idle = sum(chip.cores for chip in chips)
    if want.whole:
        return _whole(want, cards, chips, idle)
    for template in want.templates:
        fitting = [chip for chip in chips if takes(template, chip.cores, chip.cpus, chip.state)]
        if fitting:
            if any(chip.state & others_made(kind, template) for chip in every):
                return None
            best = _best(fitting, template, kind, policy)
            return Chosen((best.card,), template, node_score(idle, as_requested=template is want.templates[0]))
    return None


def _best(fitting: list[Chip], template: SliceTemplate, kind: SliceKind, policy: str) -> Chip:
    if policy != "expected":
        return min(fitting, key=lambda chip: chip.order)
    idle = any(chip.cores == chip.card.total for chip in fitting)
    return min(fitting, key=lambda chip: (loss(kind, template, chip.cores, chip.cpus, chip.state, idle=idle), *chip.order))


def _whole(want: CoreRequest, cards: NodeCards, chips: list[Chip], idle: int) -> Chosen | None:
    free = [chip.card for chip in chips if untouched(cards.usages[chip.card.index].shares, chip.state)]
    if not free or want.cores % free[0].total or len(free) * free[0].total < want.cores:
        return None
    return Chosen(tuple(free[: want.cores // free[0].total]), None, node_score(idle, as_requested=True))


def as_planned(
    want: CoreRequest, cards: NodeCards, kind: SliceKind, template: SliceTemplate | None, left: tuple[int, int, int]
) -> Chosen | None:
    """That slice of a chip of which so much is left, without a template whole chips, by the rules of ``choose``."""
    every = chips_of(cards, kind)
    chips = [chip for chip in every if not chip.closed]
    idle = sum(chip.cores for chip in chips)
    if template is None:
        return _whole(want, cards, chips, idle)
    if not takes(template, *left) or any(chip.state & others_made(kind, template) for chip in every):
        return None
    for chip in chips:
        if (chip.cores, chip.cpus, chip.state) == left:
            return Chosen((chip.card,), template, node_score(idle, as_requested=template is want.templates[0]))
    return None


def node_score(idle: int, *, as_requested: bool) -> float:
    """Return a score that puts nodes first where the pod gets what it asks for, the fullest of them before the others."""
    return AS_REQUESTED * as_requested + max(0, MOST_IDLE - idle)


def fit_of(device_type: str, found: Chosen, cards: NodeCards, scale: float) -> Fit:
    """Return the choice as a grant; ``scale``: by what the score of the node is multiplied."""
    facts: Facts = cards.inventory.config
    allocation = Allocation(
        device_type, cards.node, (tuple(container_device_of(card, found.template, facts.cpus) for card in found.chips),)
    )
    return Fit(replace(allocation, pending=in_the_making(allocation)), found.score * scale)


# -- why not --------------------------------------------------------------------------------------------------------------


def explain(want: CoreRequest, cards: NodeCards, kind: SliceKind) -> FitError:
    """Return why the node is refused, in the order in which its rules are asked."""
    facts: Facts = cards.inventory.config
    node, all_cards = cards.node, cards.inventory.cards
    if facts.refusal:
        return FitError(node, Short.NO_DEVICES, facts.refusal, final=True)
    if not all_cards:
        return FitError(node, Short.NO_DEVICES, f"{EARLY}: no chip is known", final=True)
    chips = chips_of(cards, kind)
    total = all_cards[0].total
    idle = sum(chip.cores for chip in chips if not chip.closed)
    largest = total * sum(card.healthy and not card.blocked for card in all_cards)
    fit_errors = tuple(found for chip in chips if (found := _fit_error(want, chip, cards)) is not None)
    final = largest < want.cores
    if idle < want.cores:
        text = f"{EARLY}: node not meet task request {NPU_CORE}:{want.cores}"
        return FitError(node, Short.CORES, text, want.cores, idle, final, fit_errors)
    if want.whole:
        if want.cores % total:
            text = f"task req npu should be a multiple of {total} here"
            return FitError(node, Short.REQUEST, text, want.cores, total, final=True)
        free = sum(not chip.closed and bool(untouched(cards.usages[chip.card.index].shares, chip.state)) for chip in chips)
        text = f"resource not enough: selectChipFromNodeWhole free whole chip {free} not enough for req {want.cores // total}"
        return FitError(node, Short.COUNT, text, want.cores // total, free, final, fit_errors)
    template = want.templates[-1]
    fits = any(not chip.closed and takes(template, chip.cores, chip.cpus, chip.state) for chip in chips)
    if fits:
        text = "another template is in the making: a pod is using the node, and not rewrite"
        return FitError(node, Short.LOCK, text, detail=_made(cards))
    text = f"resource not enough: selectChipFromNodeSegment available chip not found for req {want.cores}"
    best = max((chip.cores for chip in chips if not chip.closed), default=0)
    return FitError(node, Short.CORES, text, want.cores, best, final, fit_errors)


def _fit_error(want: CoreRequest, chip: Chip, cards: NodeCards) -> CardFitError | None:
    card, usage = chip.card, cards.usages[chip.card.index]
    if chip.closed:
        short = Short.HEALTH if not card.healthy else Short.CORDON if chip.closed == "cordoned" else Short.QUARANTINE
        return CardFitError(card.uuid, short, detail=chip.closed)
    if want.whole:
        if untouched(usage.shares, chip.state):
            return None
        return CardFitError(card.uuid, Short.CORES, card.total, chip.cores, "" if usage.shares else SHUT)
    template, left = want.templates[-1], (chip.cores, chip.cpus, chip.state)
    if takes(template, *left):
        return None
    return CardFitError(card.uuid, Short.CORES, template.cores, chip.cores, why_not(template, *left))


def _made(cards: NodeCards) -> str:
    slots = [
        container_device.slot
        for usage in cards.usages
        for allocated in usage.holders.values()
        for container_device in allocated
        if container_device.slot is not None
    ]
    return f"in the making: {', '.join(sorted({slot.profile for slot in slots if slot.number == IN_THE_MAKING}))}"
