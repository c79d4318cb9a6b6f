"""Choose cards for one pod on one node (Volcano pkg/scheduler/api/devices/nvidia/vgpu). Changes nothing it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pumice.devices.card_policies import FOR_SLOTS, POLICIES, TIE
from pumice.devices.nvidia_vgpu.device_request import ContainerRequest, VgpuRequest
from pumice.devices.nvidia_vgpu.draft import Chosen, Draft, charge, copied, draft_of, ordered, passes
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.nvidia_vgpu.mig import TANGLED, Geometry
from pumice.devices.nvidia_vgpu.rows import Row, Rows, rows_of
from pumice.devices.nvidia_vgpu.search import STEPS, OutOfSteps, Search, largest_first
from pumice.devices.protocol import Fit, NodeCards
from pumice.devices.settings import LAST_RESORT
from pumice.model.cards import Allocation, Card, ContainerDevice, Mode, Usage

Picks = list[tuple[ContainerDevice, ...]]


def fit_node(
    device_type: str,
    device_request: VgpuRequest,
    node: NodeCards,
    choose: MigChooser | None,
    *,
    explain: bool = True,
    steps: int = STEPS,
) -> Fit | Draft | None:
    """The choice; else the draft of the failed walk (of the last mode tried), or None when no card can serve, or when nobody
    will ``explain``.

    Where the pod leaves the mode open, HAMi-core is tried first: a share wastes nothing, a slot is rounded up. MIG takes what
    does not fit there, and a node that has nothing better is a last resort; one pod never holds cards of both modes.
    """
    facts: Facts = node.inventory.config
    cards, usages = node.inventory.cards, node.usages
    rows = rows_of(device_request, cards, facts)
    closed = closed_cards(device_request, node)
    failure: Draft | None = None
    complete = True
    for mode, containers in rows.modes:
        if mode is Mode.HAMI_CORE and device_request.is_one_share:
            share = _one_share(device_request, containers[0], cards, usages, closed, facts)
            if share is not None:
                return Fit(Allocation(device_type, node.node, share[1]), share[0])
            if explain:
                failure = draft_of(usages, facts, mode, failed=0)
            continue
        outcome = _place(device_request, mode, containers, cards, usages, closed, facts, choose, steps)
        if not isinstance(outcome, Draft):
            score, picks = outcome
            if mode is Mode.MIG and device_request.mode is None:
                score -= LAST_RESORT
            return Fit(Allocation(device_type, node.node, tuple(picks)), score)
        complete = complete and outcome.complete
        failure = outcome
        failure.complete = complete
    return failure


def hopeless(device_request: VgpuRequest, node: NodeCards, choose: MigChooser | None, steps: int = STEPS) -> bool:
    """Return whether the pod would not fit even if every other pod left the node (D-34): known, not only not found."""
    facts: Facts = node.inventory.config
    rows: Rows = rows_of(device_request, node.inventory.cards, facts)
    if rows.hopeless is None:
        empty = [Usage()] * len(node.inventory.cards)
        alone = NodeCards(node.node, node.inventory, empty)
        outcome = fit_node("", device_request, alone, choose, steps=steps)
        rows.hopeless = outcome is None or (isinstance(outcome, Draft) and outcome.complete)
    return rows.hopeless


def closed_cards(device_request: VgpuRequest, node: NodeCards) -> Collection[int]:
    """Cards that neighbours or doubts keep from this pod: quarantine, PodGroup spread, exclusivity rules."""
    closed: set[int] = set(node.quarantined) if node.quarantined else set()
    if node.marks and device_request.group:
        closed.update(card.index for card in node.inventory.cards if device_request.group in node.groups(card.index))
    if node.marks and device_request.rules:
        cards = [card.index for card in node.inventory.cards if card.mode is not Mode.MIG]
        closed.update(card for card in cards if node.rules(card) & device_request.rules)
    return closed


def _place(device_request: VgpuRequest, mode: Mode, containers: Sequence[Sequence[Row]], cards: Sequence[Card],
           usages: Sequence[Usage], closed: Collection[int], facts: Facts, choose: MigChooser | None,
           steps: int) -> tuple[float, Picks] | Draft:  # fmt: skip
    walk = _Walk(device_request, mode, containers, cards, usages, closed, facts, choose if mode is Mode.MIG else None)
    upstreams = range(len(device_request.containers))
    failure = walk.go(upstreams)
    if failure is None:
        return walk.score(), walk.picks()
    parts = sum(container.count for container in device_request.containers)
    if len(device_request.containers) > 1:
        order = largest_first(device_request, containers)
        if order != [*upstreams] and walk.go(order) is None:
            return walk.score(), walk.picks()
    elif mode is Mode.HAMI_CORE or parts == 1:
        return failure  # one container looks at all cards anyway
    order, draft = largest_first(device_request, containers), draft_of(usages, facts, mode)
    try:
        found = Search(device_request, containers, order, draft, closed, mode is Mode.MIG, steps).run()
    except OutOfSteps:
        failure.complete = False
        return failure
    if found is None:
        return failure
    walk.take(found)
    return walk.score(), walk.picks()


@dataclass(slots=True)
class _Walk:
    """One walk over the containers: the cards that each finds on what the ones before it leave."""

    device_request: VgpuRequest
    mode: Mode
    containers: Sequence[Sequence[Row]]
    cards: Sequence[Card]
    usages: Sequence[Usage]
    closed: Collection[int]
    facts: Facts
    choose: MigChooser | None
    found: dict[int, tuple[ContainerDevice, ...]] = field(default_factory=dict)
    summed: float = 0.0

    def go(self, order: Sequence[int]) -> Draft | None:
        """None when every container finds its cards."""
        draft = self._begin()
        for number in order:
            chosen = self._chosen(number, draft)
            count = self.device_request.containers[number].count
            if len(chosen) < count:
                draft.failed, draft.found = number, len(chosen)
                return draft
            self._charge(draft, number, chosen[:count])
        return None

    def take(self, found: Mapping[int, Sequence[Chosen]]) -> None:
        """Cards that somebody else has chosen."""
        draft = self._begin()
        for number, chosen in found.items():
            self._charge(draft, number, chosen)

    def picks(self) -> Picks:
        return [self.found[number] for number in range(len(self.containers))]

    def score(self) -> float:
        policy = self.device_request.node_policy or (FOR_SLOTS if self.choose is not None else "")
        container_devices = sum(len(parts) for parts in self.found.values())
        return self.summed / max(1, container_devices) + node_tie(policy, self.usages, self.facts)

    def _begin(self) -> Draft:
        self.found.clear()
        self.summed = 0.0
        return draft_of(self.usages, self.facts, self.mode)

    def _chosen(self, number: int, draft: Draft) -> list[Chosen]:
        device_request, container, rows = self.device_request, self.device_request.containers[number], self.containers[number]
        if self.mode is Mode.MIG:
            return slots_for(rows, container, device_request.card_policy, draft, self.closed, self.choose)
        chosen = _shares(rows, container, device_request.card_policy, draft, self.closed)
        if self.facts.links and len(device_request.containers) == 1 and 1 < container.count < len(chosen):
            return together(chosen, container.count, self.cards, _tier(device_request, draft))
        return chosen

    def _charge(self, draft: Draft, number: int, chosen: Sequence[Chosen]) -> None:
        container, parts = self.device_request.containers[number], []
        policy = POLICIES.get(self.device_request.node_policy)
        for row, group, slot in chosen:
            cost = cost_of(draft, row, group, slot, self.choose)
            parts.append(charge(draft, row, container, self.cards[row.card].uuid, group, slot))
            if cost is not None:
                self.summed += mig_score(cost, row)
            elif policy is not None:
                self.summed += policy.score(draft.memory[row.card], row.total or 1, self.usages[row.card].shares)
        self.found[number] = tuple(parts)


def mig_score(cost: float, row: Row) -> float:
    """A chooser's cost as a node score: the least cost of all nodes has the highest score."""
    assert row.geometry is not None
    return 100.0 * (1.0 - cost / (4.0 * row.geometry.largest))


def node_tie(name: str, usages: Sequence[Usage], facts: Facts) -> float:
    """The part of the score that orders nodes of equal card scores; see TIE."""
    policy = POLICIES.get(name)
    if policy is None:
        return 0.0
    memory = shares = 0
    for usage in usages:
        memory += usage.memory
        shares += usage.shares
    return float(TIE * policy.tie(memory, facts.total, shares, facts.shares))


def _one_share(
    device_request: VgpuRequest,
    rows: Sequence[Row],
    cards: Sequence[Card],
    usages: Sequence[Usage],
    closed: Collection[int],
    facts: Facts,
) -> tuple[float, tuple[tuple[ContainerDevice]]] | None:
    """The common case, hence without a draft."""
    cores = device_request.containers[0].cores
    row = _first_open(rows, cores, device_request.card_policy, usages, closed)
    if row is None:
        return None
    usage, need = usages[row.card], row.need
    policy = POLICIES.get(device_request.node_policy)
    score = 0.0 if policy is None else policy.score(usage.memory + need, row.total or 1, usage.shares)
    container_device = ContainerDevice(row.card, cards[row.card].uuid, need, cores, need)
    return score + node_tie(device_request.node_policy, usages, facts), ((container_device,),)


def _first_open(rows: Sequence[Row], cores: int, policy: str, usages: Sequence[Usage],
                closed: Collection[int]) -> Row | None:  # fmt: skip
    """The first card in the policy's order that passes checks b to g."""
    known = POLICIES.get(policy)
    best: Row | None = None
    rank = 0
    for row in rows if known else reversed(rows):
        index, total, limit, need, _, _ = row
        usage = usages[index]
        shares, used = usage.shares, usage.cores
        if shares >= limit or total - usage.memory < need or used + cores > 100:
            continue
        if (cores == 100 and shares) or (cores == 0 and used >= 100) or index in closed:
            continue
        if known is None:
            return row
        key = known.rank(usage.memory, shares, used, total or 1)
        if best is None or key > rank:
            best, rank = row, key
    return best


def _tier(device_request: VgpuRequest, draft: Draft) -> Callable[[Row], tuple[float, ...]]:
    """Cards of one tier are equal for the card policy and for the node's score, so that topology may choose among them."""
    on_card, on_node = POLICIES.get(device_request.card_policy), POLICIES.get(device_request.node_policy)

    def tier(row: Row) -> tuple[float, ...]:
        memory, shares = draft.memory[row.card], draft.shares[row.card]
        rank = on_card.rank(memory, shares, draft.cores[row.card], row.total or 1) if on_card else 0
        return (rank, on_node.score(memory + row.need, row.total or 1, shares)) if on_node else (rank,)

    return tier


def _shares(rows: Sequence[Row], device_request: ContainerRequest, policy: str, draft: Draft,
            closed: Collection[int]) -> list[Chosen]:  # fmt: skip
    """All cards that pass, in order: the caller takes the first ``count`` of them, each card at most once."""
    cores = device_request.cores
    passing = [row for row in rows if passes(row, cores, draft) and row.card not in closed]
    if len(passing) >= device_request.count:
        passing = ordered(passing, policy, draft)
    return [(row, -1, -1) for row in passing]


def together(ordered: Sequence[Chosen], count: int, cards: Sequence[Card],
             tier: Callable[[Row], tuple[float, ...]]) -> list[Chosen]:  # fmt: skip
    """Rewrite the first ``count`` of ``ordered``: a tier that is taken only in part gives its closest cards.

    Grows from each possible first card and keeps the set with the widest links; ties keep the policy's order.
    """
    border = tier(ordered[count - 1][0])
    fixed = [item for item in ordered[:count] if tier(item[0]) != border]
    equal = [item for item in ordered if tier(item[0]) == border]
    missing = count - len(fixed)
    if missing >= len(equal):
        return list(ordered)
    starts = [[]] if fixed else [[item] for item in equal]
    grown = [_grow(fixed, start, equal, missing, cards) for start in starts]
    best = max(grown, key=lambda chosen: closeness([row.card for row, _, _ in chosen], cards))
    order = {item[0].card: place for place, item in enumerate(ordered)}
    return sorted(best, key=lambda item: order[item[0].card])


def _grow(fixed: list[Chosen], start: list[Chosen], equal: Sequence[Chosen], missing: int,
          cards: Sequence[Card]) -> list[Chosen]:  # fmt: skip
    chosen = [*fixed, *start]
    rest = [item for item in equal if item not in start]
    while len(chosen) < len(fixed) + missing:
        members = [row.card for row, _, _ in chosen]
        nearest = max(rest, key=lambda item: closeness([*members, item[0].card], cards))
        rest.remove(nearest)
        chosen.append(nearest)
    return chosen


def closeness(members: Sequence[int], cards: Sequence[Card]) -> tuple[int, int]:
    """(sum of NVLink widths, pairs on one NUMA node) inside a set of cards."""
    inside = set(members)
    widths = sum(width for index in members for peer, width in cards[index].links if peer in inside)
    numa = [cards[index].numa for index in members if cards[index].numa >= 0]
    return widths, sum(numa.count(node) for node in numa)


# -- slots ------------------------------------------------------------------------------------------------------------

# Which MIG slots one container gets, as far as one walk over the cards can tell (Volcano pkg/scheduler/api/devices/nvidia/vgpu).

MigChooser = Callable[[Geometry, int, int, int], tuple[float, int, int] | None]
"""(geometry, active group, used mask, need MiB) -> (cost, group, slot), or None; least cost first, then card order."""


def slots_for(rows: Sequence[Row], device_request: ContainerRequest, policy: str, draft: Draft, closed: Collection[int],
              choose: MigChooser | None) -> list[Chosen]:  # fmt: skip
    """Different cards as far as they reach, then further slots of the same cards (E-36b)."""
    in_order = [row for row in ordered(rows, policy, draft) if row.card not in closed]
    found = _rounds(in_order, device_request, draft, choose)
    if len(found) < device_request.count and device_request.count > 1:
        grouped = _grouped(in_order, device_request, draft)
        found = max(found, grouped, key=len)
    return found[: device_request.count]


def cost_of(draft: Draft, row: Row, group: int, slot: int, choose: MigChooser | None) -> float | None:
    """Return the cost of this slot by the chooser; None where nobody counts costs."""
    if choose is None or row.geometry is None:
        return None
    offer = choose(row.geometry, draft.group[row.card], draft.used[row.card], row.need_mib)
    if offer is not None and offer[1:] == (group, slot):
        return offer[0]
    return float(row.geometry.memory(group, slot) - row.need_mib)  # a further slot of the same container


def _rounds(ordered: Sequence[Row], device_request: ContainerRequest, draft: Draft,
            choose: MigChooser | None) -> list[Chosen]:  # fmt: skip
    mine = copied(draft)
    found: list[Chosen] = []
    while len(found) < device_request.count:
        taken: set[int] = set()
        while len(found) < device_request.count:
            pick = _next_slot(ordered, device_request.cores, mine, taken, choose)
            if pick is None:
                break
            row, group, slot = pick
            charge(mine, row, device_request, "", group, slot)
            taken.add(row.card)
            found.append(pick)
        if not taken:
            break
    return found


def _next_slot(ordered: Sequence[Row], cores: int, draft: Draft, taken: Collection[int],
               choose: MigChooser | None) -> Chosen | None:  # fmt: skip
    best: Chosen | None = None
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


def _grouped(ordered: Sequence[Row], device_request: ContainerRequest, draft: Draft) -> list[Chosen]:
    """The other way to several slots: empty cards open the first group that holds as many as possible of them."""
    found: list[Chosen] = []
    mine = copied(draft)
    for row in ordered:
        geometry = row.geometry
        if geometry is None or geometry.anywhere:  # there, first fit leaves as much room as any order
            continue
        index, missing = row.card, device_request.count - len(found)
        if not mine.used[index]:
            most = min(missing, max(group.room(row.need_mib, 0) for group in geometry.groups))
            mine.group[index] = geometry.first_with_room(row.need_mib, most)
        group = mine.group[index]
        if group < 0:
            continue
        while len(found) < device_request.count and passes(row, device_request.cores, mine):
            slot = geometry.groups[group].first(row.need_mib, mine.used[index])
            if slot < 0:
                break
            charge(mine, row, device_request, "", group, slot)
            found.append((row, group, slot))
    return found
