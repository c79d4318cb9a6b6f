"""Reasons of a node that refused, with numbers (Volcano pkg/scheduler/api/devices/nvidia/vgpu; D-34, D-45)."""

from __future__ import annotations

from pumice.devices.nvidia_vgpu.device_request import ContainerRequest, VgpuRequest
from pumice.devices.nvidia_vgpu.draft import Draft
from pumice.devices.nvidia_vgpu.inventory import CORDONED, Facts
from pumice.devices.nvidia_vgpu.mig import TANGLED
from pumice.devices.nvidia_vgpu.rows import rows_of, unusable
from pumice.devices.protocol import NodeCards
from pumice.model.cards import Card, Mode, Usage
from pumice.model.refusal import CardFitError, FitError, Short
from pumice.wire import names

PREFIX = "hami-vgpuDeviceSharing"
"""Dashboards match on this word."""


def no_devices(node: str) -> FitError:
    """A vGPU pod never passes a node without usable vGPU cards (D-10)."""
    return FitError(node, Short.NO_DEVICES, f"{PREFIX}: no vGPU cards on the node", final=True)


def explain_node(device_request: VgpuRequest, node: NodeCards, draft: Draft | None, final: bool) -> FitError:
    """The refusal of a node that has cards: the failed walk's draft tells how far the pod came."""
    cards = node.inventory.cards
    if not cards:
        return no_devices(node.node)
    number = draft.failed if draft is not None and draft.failed >= 0 else 0
    container = device_request.containers[number]
    if draft is None:
        usages = node.usages
        blank = [0] * len(cards)
        draft = Draft([u.shares for u in usages], [u.memory for u in usages], [u.cores for u in usages], blank, blank)
    facts: Facts = node.inventory.config
    rows = rows_of(device_request, cards, facts)
    amounts = rows.needs[number]
    neighbours = bool(node.quarantined or (node.marks and (device_request.rules or device_request.group)))
    fit_errors: list[CardFitError] = []
    counts: dict[Short, int] = {}
    for card in cards:
        fit_error = _neighbour(device_request, card, node) if neighbours else None
        if fit_error is None:
            static = unusable(device_request, card, facts.types[card.index]) if rows.never[card.index] else None
            fit_error = _card(container, card, static, amounts[card.index], facts, draft, node.usages[card.index])
        if fit_error is not None:
            fit_errors.append(fit_error)
            counts[fit_error.short] = counts.get(fit_error.short, 0) + 1
    short, wanted, best = _worst(fit_errors, counts, container, len(cards))
    text = _text(device_request, container, counts, len(fit_errors), cards)
    return FitError(node.node, short, text, wanted, best, final, tuple(fit_errors))


def _neighbour(device_request: VgpuRequest, card: Card, node: NodeCards) -> CardFitError | None:
    """Return what other pods on the card forbid beyond what they use."""
    index = card.index
    if reason := node.quarantined.get(index):
        return CardFitError(card.uuid, Short.QUARANTINE, detail=reason)
    if device_request.rules and device_request.rules & node.rules(index) and card.mode is not Mode.MIG:
        return CardFitError(card.uuid, Short.EXCLUSIVE, detail="a pod of the same exclusivity rule is on the card")
    if device_request.group and device_request.group in node.groups(index):
        return CardFitError(card.uuid, Short.GROUP_SPREAD, detail=f"a pod of PodGroup {device_request.group} is on the card")
    return None


def _card(container: ContainerRequest, card: Card, static: CardFitError | None, amount: tuple[int, int], facts: Facts,
          draft: Draft, usage: Usage) -> CardFitError | None:  # fmt: skip
    """Return the first check that the card fails, in Volcano's order; None for a card that would do."""
    if static is not None and static.short is not Short.TYPE:
        return static
    index = card.index
    shares, memory, cores, wanted = draft.shares[index], draft.memory[index], draft.cores[index], container.cores
    need, need_mib = amount
    if shares >= card.shares:
        return CardFitError(card.uuid, Short.SHARES, shares + 1, card.shares, f"all {card.shares} shares are taken")
    if card.total - memory < need:
        return CardFitError(card.uuid, Short.MEMORY, need, max(0, card.total - memory), unit=facts.unit)
    if cores + wanted > 100:
        return CardFitError(card.uuid, Short.CORES, wanted, max(0, 100 - cores), unit="%")
    if wanted == 0 and cores >= 100:
        return CardFitError(card.uuid, Short.CORES, 0, 0, "all cores are taken, and a pod without cores may not join")
    if wanted == 100 and shares:
        return CardFitError(card.uuid, Short.CORES, 100, 0, f"wants the card to itself, {shares} share(s) are on it")
    if static is not None:
        return static
    geometry = facts.geometries[index]
    if geometry is None:
        return None
    active, used = draft.group[index], draft.used[index]
    if active == TANGLED:
        return CardFitError(card.uuid, Short.QUARANTINE, detail="the pods on the card claim slots that cannot be true together")
    if geometry.first_fit(active, used, need_mib) is not None:
        return None
    best = geometry.roomiest(active, used)
    detail = f"wants a slot of {need_mib} MiB, largest free one has {best} MiB"
    if geometry.free is not None and geometry.free.first_fit(*geometry.free.allocated(usage), need_mib):
        detail += "; a place outside the groups is free, but the node's plugin does not announce that it can cut there"
    return CardFitError(card.uuid, Short.SLOT, need, best // geometry.factor, detail)


def _worst(fit_errors: list[CardFitError], counts: dict[Short, int], container: ContainerRequest,
           cards: int) -> tuple[Short, int, int]:  # fmt: skip
    """The dimension that refused most cards (the earlier found of equals), what was wanted there and the best offer."""
    if not counts:
        return Short.COUNT, container.count, cards
    short = max(counts, key=counts.__getitem__)
    closest: CardFitError | None = None
    for fit_error in fit_errors:
        if fit_error.short is short and (closest is None or fit_error.best - fit_error.wanted > closest.best - closest.wanted):
            closest = fit_error
    assert closest is not None
    return short, closest.wanted, closest.best


def _text(
    device_request: VgpuRequest,
    container: ContainerRequest,
    counts: dict[Short, int],
    refused: int,
    cards: tuple[Card, ...],
) -> str:
    total = len(cards)
    if counts.get(Short.MODE) == total and all(card.mode is cards[0].mode for card in cards):
        mode = cards[0].mode.value
        return f"{PREFIX}: pod required sharing mode {device_request.mode} is not the same as the node mode {mode}"
    if counts.get(Short.UUID) == total:
        allow, deny = ",".join(device_request.use_uuids), ",".join(device_request.nouse_uuids)
        lists = f'{names.USE_GPU_UUID}="{allow}", {names.NOUSE_GPU_UUID}="{deny}"'
        return f"{PREFIX}: no GPU matches UUID constraints {lists}"
    if container.count > total and all(card.mode is not Mode.MIG for card in cards):
        return f"{PREFIX}: no enough gpu cards, {container.count} wanted of {total}"
    fitting = total - refused
    if not counts:
        mig = sum(1 for card in cards if card.mode is Mode.MIG)
        if 0 < mig < total:
            modes = f"{total - mig} hami-core and {mig} mig would do"
            return f"{PREFIX}: no enough gpu cards of one mode, {container.count} wanted, {modes}"
        return f"{PREFIX}: no enough free slots, {container.count} wanted on {total} cards"
    parts = ", ".join(f"{short.value} {count}" for short, count in sorted(counts.items(), key=lambda item: -item[1]))
    unknown = sorted({card.blocked for card in cards if card.mode is Mode.MIG and card.blocked not in ("", CORDONED)})
    tail = f"; {container.count} wanted, {fitting} fit" if container.count > 1 else ""
    return f"{PREFIX}: {parts} of {total} cards{tail}{'; ' if unknown else ''}{'; '.join(unknown)}"
