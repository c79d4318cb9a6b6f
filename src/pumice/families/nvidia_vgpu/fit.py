"""Choose cards for one pod on one node (spec deviceshare-nvidia 7 to 10). Changes nothing it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pumice.families.nvidia_vgpu.ask import ContainerAsk, VgpuAsk
from pumice.families.nvidia_vgpu.inventory import Facts
from pumice.families.nvidia_vgpu.mig import TANGLED, Geometry
from pumice.families.nvidia_vgpu.rows import Row, Rows, rows_of
from pumice.families.nvidia_vgpu.topology import together
from pumice.families.protocol import Fit, NodeCards
from pumice.model.cards import Card, Grant, Mode, Piece, Usage

TIE = 1e-4
"""Share of the score that orders nodes whose cards score alike: binpack goes on with the fuller node, spread with the
emptier one. Small enough never to change what upstream's rounding makes of a score."""

Picks = list[tuple[Piece, ...]]
MigChooser = Callable[[Geometry, int, int, int], tuple[float, int, int] | None]
"""(geometry, active group, used mask, need MiB) -> (cost, group, slot), or None; least cost first, then card order."""


@dataclass(slots=True)
class Draft:
    """The node's counters as the walk goes on; ``failed`` is the container that found too few cards."""

    shares: list[int]
    memory: list[int]
    cores: list[int]
    group: list[int]
    used: list[int]
    failed: int = -1
    found: int = 0


def fit_node(family: str, ask: VgpuAsk, node: NodeCards, choose: MigChooser | None) -> Fit | Draft | None:
    """The choice; else the draft of the failed walk (of the last mode tried), or None when no card can serve.

    Where the pod leaves the mode open and the node has both, HAMi-core is tried first: a share wastes nothing, a slot is
    rounded up. MIG takes what does not fit there; one pod never holds cards of both modes.
    """
    facts: Facts = node.inventory.config
    cards, usages = node.inventory.cards, node.usages
    rows = rows_of(ask, cards, facts)
    closed = closed_cards(ask, node)
    failure: Draft | None = None
    for mode, containers in rows.modes:
        outcome = _place(ask, mode, containers, cards, usages, closed, facts, choose)
        if not isinstance(outcome, Draft):
            score, picks = outcome
            return Fit(Grant(family, node.node, tuple(picks)), score)
        failure = outcome
    return failure


def hopeless(ask: VgpuAsk, node: NodeCards, choose: MigChooser | None) -> bool:
    """Whether the pod would not fit even if every other pod left the node (D-34)."""
    facts: Facts = node.inventory.config
    rows: Rows = rows_of(ask, node.inventory.cards, facts)
    if rows.hopeless is None:
        empty = [Usage()] * len(node.inventory.cards)
        alone = NodeCards(node.node, node.inventory, empty)
        rows.hopeless = not isinstance(fit_node("", ask, alone, choose), Fit)
    return rows.hopeless


def closed_cards(ask: VgpuAsk, node: NodeCards) -> Collection[int]:
    """Cards that neighbours or doubts keep from this pod: quarantine, PodGroup spread, exclusivity rules."""
    closed: set[int] = set(node.quarantined) if node.quarantined else set()
    if ask.group and node.groups:
        closed.update(card for card, groups in node.groups.items() if ask.group in groups)
    if ask.rules and node.exclusive:
        for card, rules in node.exclusive.items():
            if rules & ask.rules and node.inventory.cards[card].mode is not Mode.MIG:
                closed.add(card)
    return closed


def _place(ask: VgpuAsk, mode: Mode, containers: Sequence[Sequence[Row]], cards: Sequence[Card], usages: Sequence[Usage],
           closed: Collection[int], facts: Facts, choose: MigChooser | None) -> tuple[float, Picks] | Draft:  # fmt: skip
    if mode is Mode.HAMI_CORE and len(containers) == 1 and ask.containers[0].count == 1:
        row = _one_share(containers[0], ask.containers[0].cores, ask.card_policy, usages, closed)
        if row is None:
            return _draft(usages, facts, mode, failed=0)
        usage, need = usages[row.card], row.need
        piece = Piece(row.card, cards[row.card].uuid, need, ask.containers[0].cores, need)
        score = 0.0
        if ask.node_policy == "binpack":
            score = 100.0 * (usage.memory + need) / row.total if row.total else 0.0
        elif ask.node_policy == "spread":
            score = 0.0 if usage.shares else 100.0
        return score + node_tie(ask.node_policy, usages, facts), [(piece,)]
    draft = _draft(usages, facts, mode)
    choose = choose if mode is Mode.MIG else None
    picks: Picks = []
    sum_of_scores, pieces = 0.0, 0
    for number, container in enumerate(ask.containers):
        rows = containers[number]
        if mode is Mode.MIG:
            chosen = _slots(rows, container, ask.card_policy, draft, closed, choose)
        else:
            chosen = _shares(rows, container, ask.card_policy, draft, closed)
            if facts.links and len(ask.containers) == 1 and 1 < container.count < len(chosen):
                chosen = together(chosen, container.count, cards, _tier(ask, draft))
        if len(chosen) < container.count:
            draft.failed, draft.found = number, len(chosen)
            return draft
        parts = []
        for row, group, slot in chosen[: container.count]:
            cost = _cost(draft, row, group, slot, choose)
            piece = _charge(draft, row, container, cards[row.card].uuid, group, slot)
            parts.append(piece)
            if cost is not None:
                sum_of_scores += mig_score(cost, row)
            elif ask.node_policy == "binpack":
                sum_of_scores += 100.0 * draft.memory[row.card] / row.total if row.total else 0.0
            elif ask.node_policy == "spread":
                sum_of_scores += 0.0 if usages[row.card].shares else 100.0
        pieces += len(parts)
        picks.append(tuple(parts))
    policy = ask.node_policy or ("binpack" if mode is Mode.MIG and choose is not None else "")
    return sum_of_scores / max(1, pieces) + node_tie(policy, usages, facts), picks


def mig_score(cost: float, row: Row) -> float:
    """A chooser's cost as a node score: the least cost of all nodes has the highest score."""
    assert row.geometry is not None
    return 100.0 * (1.0 - cost / (4.0 * row.geometry.largest))


def _cost(draft: Draft, row: Row, group: int, slot: int, choose: MigChooser | None) -> float | None:
    if choose is None or row.geometry is None:
        return None
    offer = choose(row.geometry, draft.group[row.card], draft.used[row.card], row.need_mib)
    if offer is not None and offer[1:] == (group, slot):
        return offer[0]
    return float(row.geometry.memory(group, slot) - row.need_mib)  # a further slot of the same container


def node_tie(policy: str, usages: Sequence[Usage], facts: Facts) -> float:
    """The part of the score that orders nodes of equal card scores; see TIE."""
    if policy == "binpack":
        used = 0
        for usage in usages:
            used += usage.memory
        return TIE * (used / facts.total)
    if policy == "spread":
        used = 0
        for usage in usages:
            used += usage.shares
        return TIE * (1.0 - used / facts.shares)
    return 0.0


def _one_share(rows: Sequence[Row], cores: int, policy: str, usages: Sequence[Usage],
               closed: Collection[int]) -> Row | None:  # fmt: skip
    """The first card in the policy's order that passes checks b to g; the common case, hence without a draft."""
    best: Row | None = None
    rank = 0
    for row in rows if policy else reversed(rows):
        index, total, limit, need, _, _ = row
        usage = usages[index]
        shares, used = usage.shares, usage.cores
        if shares >= limit or total - usage.memory < need or used + cores > 100:
            continue
        if (cores == 100 and shares) or (cores == 0 and used >= 100) or index in closed:
            continue
        if not policy:
            return row
        key = usage.memory if policy == "binpack" else -shares
        if best is None or key > rank:
            best, rank = row, key
    return best


def _draft(usages: Sequence[Usage], facts: Facts, mode: Mode, failed: int = -1) -> Draft:
    group, used = [-1] * len(usages), [0] * len(usages)
    if mode is Mode.MIG:
        for index, geometry in enumerate(facts.geometries):
            holders = usages[index].holders
            if geometry is not None and holders:
                group[index], used[index] = geometry.held(usages[index])
    return Draft([u.shares for u in usages], [u.memory for u in usages], [u.cores for u in usages], group, used, failed)


def passes(row: Row, cores: int, draft: Draft) -> bool:
    """Checks b and d to g of section 7."""
    index, total, limit, need, _, _ = row
    shares, used = draft.shares[index], draft.cores[index]
    if shares >= limit or total - draft.memory[index] < need or used + cores > 100:
        return False
    return not ((cores == 100 and shares) or (cores == 0 and used >= 100))


def _ordered(rows: Sequence[Row], policy: str, draft: Draft) -> list[Row]:
    """The order of section 9 at the start of a container."""
    if policy == "binpack":
        return sorted(rows, key=lambda row: (-draft.memory[row.card], row.card))
    if policy == "spread":
        return sorted(rows, key=lambda row: (draft.shares[row.card], row.card))
    return list(reversed(rows))


def _tier(ask: VgpuAsk, draft: Draft) -> Callable[[Row], tuple[int, ...]]:
    """Cards of one tier are equal for the card policy and for the node's score, so that topology may choose among them."""

    def tier(row: Row) -> tuple[int, ...]:
        memory, shares = draft.memory[row.card], draft.shares[row.card]
        rank = memory if ask.card_policy == "binpack" else shares if ask.card_policy == "spread" else 0
        scored = (memory, row.total) if ask.node_policy == "binpack" else (int(shares == 0),) if ask.node_policy else ()
        return (rank, *scored)

    return tier


def _shares(rows: Sequence[Row], ask: ContainerAsk, policy: str, draft: Draft,
            closed: Collection[int]) -> list[tuple[Row, int, int]]:  # fmt: skip
    """All cards that pass, in order: the caller takes the first ``count`` of them, each card at most once."""
    cores = ask.cores
    passing = [row for row in rows if passes(row, cores, draft) and row.card not in closed]
    if len(passing) >= ask.count:
        passing = _ordered(passing, policy, draft)
    return [(row, -1, -1) for row in passing]


def _slots(rows: Sequence[Row], ask: ContainerAsk, policy: str, draft: Draft, closed: Collection[int],
           choose: MigChooser | None) -> list[tuple[Row, int, int]]:  # fmt: skip
    """Slots for one container: different cards as far as they reach, then further slots of the same cards (E-36b)."""
    ordered = [row for row in _ordered(rows, policy, draft) if row.card not in closed]
    found = _rounds(ordered, ask, draft, choose)
    if len(found) < ask.count and ask.count > 1:
        grouped = _grouped(ordered, ask, draft)
        found = max(found, grouped, key=len)
    return found[: ask.count]


def _rounds(ordered: Sequence[Row], ask: ContainerAsk, draft: Draft,
            choose: MigChooser | None) -> list[tuple[Row, int, int]]:  # fmt: skip
    mine = _copy(draft)
    found: list[tuple[Row, int, int]] = []
    while len(found) < ask.count:
        taken: set[int] = set()
        while len(found) < ask.count:
            pick = _next_slot(ordered, ask.cores, mine, taken, choose)
            if pick is None:
                break
            row, group, slot = pick
            _charge(mine, row, ask, "", group, slot)
            taken.add(row.card)
            found.append(pick)
        if not taken:
            break
    return found


def _next_slot(ordered: Sequence[Row], cores: int, draft: Draft, taken: Collection[int],
               choose: MigChooser | None) -> tuple[Row, int, int] | None:  # fmt: skip
    best: tuple[Row, int, int] | None = None
    least = 0.0
    for row in ordered:
        geometry = row.geometry
        if row.card in taken or geometry is None or not passes(row, cores, draft):
            continue
        active, used = draft.group[row.card], draft.used[row.card]
        if active == TANGLED:
            continue
        if choose is None:
            choice = geometry.first_fit(active, used, row.need_mib)
            if choice is not None:
                return row, *choice
            continue
        offer = choose(geometry, active, used, row.need_mib)
        if offer is not None and (best is None or offer[0] < least):
            least, best = offer[0], (row, offer[1], offer[2])
    return best


def _grouped(ordered: Sequence[Row], ask: ContainerAsk, draft: Draft) -> list[tuple[Row, int, int]]:
    """The other way to several slots: empty cards open the first group that holds as many as possible of them."""
    found: list[tuple[Row, int, int]] = []
    mine = _copy(draft)
    for row in ordered:
        geometry = row.geometry
        if geometry is None or geometry.anywhere:  # there, first fit leaves as much room as any order
            continue
        index, missing = row.card, ask.count - len(found)
        if not mine.used[index]:
            most = min(missing, max(group.room(row.need_mib, 0) for group in geometry.groups))
            mine.group[index] = geometry.first_with_room(row.need_mib, most)
        group = mine.group[index]
        if group < 0:
            continue
        while len(found) < ask.count and passes(row, ask.cores, mine):
            slot = geometry.groups[group].first(row.need_mib, mine.used[index])
            if slot < 0:
                break
            _charge(mine, row, ask, "", group, slot)
            found.append((row, group, slot))
    return found


def _copy(draft: Draft) -> Draft:
    return Draft(draft.shares[:], draft.memory[:], draft.cores[:], draft.group[:], draft.used[:])


def _charge(draft: Draft, row: Row, ask: ContainerAsk, uuid: str, group: int, slot: int) -> Piece:
    index = row.card
    memory, place = row.need, None
    if row.geometry is not None:
        place = row.geometry.slot(group, slot)
        memory = place.memory
        draft.group[index], draft.used[index] = row.geometry.taken(draft.group[index], draft.used[index], group, slot)
    draft.shares[index] += 1
    draft.memory[index] += memory
    draft.cores[index] += ask.cores
    return Piece(index, uuid, memory, ask.cores, row.need, place)
