"""Why a node refused, with numbers (spec deviceshare-nvidia 18; D-34, D-45)."""

from __future__ import annotations

from collections import Counter

from pumice.families.nvidia_vgpu.ask import ContainerAsk, VgpuAsk
from pumice.families.nvidia_vgpu.fit import Draft
from pumice.families.nvidia_vgpu.inventory import Facts
from pumice.families.nvidia_vgpu.rows import needs, unusable
from pumice.families.seam import NodeCards
from pumice.model.cards import Card, Mode
from pumice.model.refusal import CardMisfit, Misfit, Short
from pumice.wire import names

PREFIX = "hami-vgpuDeviceSharing"
"""Dashboards match on this word."""


def no_devices(node: str) -> Misfit:
    """A vGPU pod never passes a node without usable vGPU cards (D-10)."""
    return Misfit(node, Short.NO_DEVICES, f"{PREFIX}: no vGPU cards on the node", final=True)


def explain_node(ask: VgpuAsk, node: NodeCards, draft: Draft | None, final: bool) -> Misfit:
    """The refusal of a node that has cards: the failed walk's draft tells how far the pod came."""
    cards = node.inventory.cards
    if not cards:
        return no_devices(node.node)
    number = draft.failed if draft is not None and draft.failed >= 0 else 0
    container = ask.containers[number]
    if draft is None:
        usages = node.usages
        blank = [0] * len(cards)
        draft = Draft([u.shares for u in usages], [u.memory for u in usages], [u.cores for u in usages], blank, blank)
    found = [card_misfit(ask, container, card, node, draft) for card in cards]
    misfits = tuple(misfit for misfit in found if misfit is not None)
    short, wanted, best = _worst(misfits, container, len(cards))
    return Misfit(node.node, short, _text(ask, container, misfits, cards), wanted, best, final, misfits)


def card_misfit(ask: VgpuAsk, container: ContainerAsk, card: Card, node: NodeCards, draft: Draft) -> CardMisfit | None:
    """The first check that the card fails, in the order of section 7; None for a card that would do."""
    facts: Facts = node.inventory.config
    index = card.index
    if reason := node.quarantined.get(index):
        return CardMisfit(card.uuid, Short.QUARANTINE, detail=reason)
    static = unusable(ask, card, facts.types[index])
    if static is not None and static.short is not Short.TYPE:
        return static
    shares, memory, cores = draft.shares[index], draft.memory[index], draft.cores[index]
    if shares >= card.shares:
        return CardMisfit(card.uuid, Short.SHARES, shares + 1, card.shares, f"all {card.shares} shares are taken")
    if ask.rules & node.exclusive.get(index, frozenset()) and card.mode is not Mode.MIG:
        return CardMisfit(card.uuid, Short.EXCLUSIVE, detail="a pod of the same exclusivity rule is on the card")
    if ask.group and ask.group in node.groups.get(index, ()):
        return CardMisfit(card.uuid, Short.GROUP_SPREAD, detail=f"a pod of PodGroup {ask.group} is on the card")
    geometry = facts.geometries[index]
    need, need_mib = needs(container, card, geometry)
    if card.total - memory < need:
        free = max(0, card.total - memory)
        return CardMisfit(card.uuid, Short.MEMORY, need, free, f"wants memory {need}, {free} of {card.total} is free")
    if cores + container.cores > 100 or (container.cores == 0 and cores >= 100):
        free = max(0, 100 - cores)
        return CardMisfit(card.uuid, Short.CORES, container.cores, free, f"wants cores {container.cores}, {free} free")
    if container.cores == 100 and shares:
        return CardMisfit(card.uuid, Short.CORES, 100, 0, f"wants the card to itself, {shares} share(s) are on it")
    if static is not None:
        return static
    if geometry is not None:
        active, used = draft.group[index], draft.used[index]
        if geometry.first_fit(active, used, need_mib) is None or (used and active < 0):
            groups = geometry.groups
            offered = [groups[active]] if used and active >= 0 else groups
            best = max((m for g in offered for s, m in enumerate(g.memory) if not used >> s & 1), default=0)
            unit = geometry.factor
            detail = f"wants a slot of {need_mib} MiB, largest free one has {best} MiB"
            return CardMisfit(card.uuid, Short.SLOT, need, best // unit, detail)
    return None


def _worst(misfits: tuple[CardMisfit, ...], container: ContainerAsk, cards: int) -> tuple[Short, int, int]:
    """The dimension that refused most cards (the earlier check of equals), what was wanted there and the best offer."""
    counted = Counter(misfit.short for misfit in misfits)
    if not counted or (container.count > cards and len(counted) == 0):
        return Short.COUNT, container.count, cards
    short = counted.most_common(1)[0][0]
    same = [misfit for misfit in misfits if misfit.short is short]
    closest = max(same, key=lambda misfit: misfit.best - misfit.wanted)
    return short, closest.wanted, closest.best


def _text(ask: VgpuAsk, container: ContainerAsk, misfits: tuple[CardMisfit, ...], cards: tuple[Card, ...]) -> str:
    modes = {card.mode for card in cards}
    shorts = Counter(misfit.short for misfit in misfits)
    if shorts[Short.MODE] == len(cards) and len(modes) == 1:
        mode = cards[0].mode.value
        return f"{PREFIX}: pod required sharing mode {ask.mode} is not the same as the node mode {mode}"
    if shorts[Short.UUID] == len(cards):
        allow, deny = ",".join(ask.use_uuids), ",".join(ask.nouse_uuids)
        lists = f'{names.USE_GPU_UUID}="{allow}", {names.NOUSE_GPU_UUID}="{deny}"'
        return f"{PREFIX}: no GPU matches UUID constraints {lists}"
    if container.count > len(cards) and Mode.MIG not in modes:
        return f"{PREFIX}: no enough gpu cards, {container.count} wanted of {len(cards)}"
    parts = ", ".join(f"{short.value} {count}" for short, count in sorted(shorts.items(), key=lambda item: -item[1]))
    fitting = len(cards) - len(misfits)
    if not parts:
        return f"{PREFIX}: no enough gpu cards, {container.count} wanted, {fitting} of {len(cards)} fit"
    tail = f"; {container.count} wanted, {fitting} fit" if container.count > 1 else ""
    return f"{PREFIX}: {parts} of {len(cards)} cards{tail}"
