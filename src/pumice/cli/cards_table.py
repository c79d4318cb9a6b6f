"""Cards and the pods on them, from API objects alone: what ``pumice status`` and the demo show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.model.cards import Grant
from pumice.wire import names
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.nvidia_vgpu import device_of, parse_pod_devices, parse_register
from pumice.wire.objects import Node, Pod
from pumice.wire.quantity import round_up

BAR = 10  # characters
TYPE_MOST, PODS_LEAST, NODE_LEAST = 20, 16, 4  # characters, too


@dataclass(frozen=True, slots=True)
class Holder:
    """What one pod holds of a card: MiB and percent; ``cores`` None where none are told. ``template``: by what it was cut, where
    that says it all."""

    pod: str
    memory: int
    cores: int | None = None
    template: str = ""

    def __str__(self) -> str:
        if not self.memory:
            return f"{self.pod} ({self.template or 'whole'})"
        return f"{self.pod} ({self.memory} MiB{'' if self.cores is None else f', {self.cores} %'})"


@dataclass(slots=True)
class CardRow:
    """One card. Memory in MiB, cores in percent; ``holders`` are the pods on it."""

    node: str
    index: int
    uuid: str
    type: str
    total: int
    healthy: bool = True
    memory: int = 0
    cores: int = 0
    holders: list[Holder] = field(default_factory=list)


def card_rows(nodes: Sequence[Node], pods: Sequence[Pod]) -> list[CardRow]:
    """The cards of all nodes with what live pods hold of them by their annotations."""
    rows: list[CardRow] = []
    for node in nodes:
        register = parse_register(node.metadata.annotations.get(names.NODE_VGPU_REGISTER, ""))
        cards = [CardRow(node.metadata.name, c.index, c.uuid, c.type, c.total, c.healthy) for c in register.cards]
        here = [pod for pod in pods if pod.spec.node_name == node.metadata.name
                and pod.status.phase not in ("Succeeded", "Failed")]  # fmt: skip
        legacy = _legacy_cards(node) if not cards or any(names.GPU_INDEX in p.metadata.annotations for p in here) else []
        for pod in here:
            _charge_vgpu(pod, {card.uuid: card for card in cards}, _slices(node, pod))
            _charge_legacy(pod, {card.index: card for card in legacy})
        rows += legacy if any(card.holders for card in legacy) or not cards else cards
    return rows


def _legacy_cards(node: Node) -> list[CardRow]:
    count = round_up(node.status.capacity.get(names.GPU_NUMBER, 0))
    memory = round_up(node.status.capacity.get(names.GPU_MEMORY, 0)) // count if count else 0
    return [CardRow(node.metadata.name, i, str(i), "by gpu-memory", memory) for i in range(count)]


def _slices(node: Node, pod: Pod) -> dict[str, int]:
    """By slice, as the pod's annotation names it, what it holds: the pod has all of it, whatever it asked for."""
    if "[" not in pod.metadata.annotations.get(names.VGPU_IDS, ""):
        return {}
    from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
    from pumice.devices.nvidia_vgpu.family import NvidiaVgpu  # only here: most clusters have no slices
    from pumice.devices.settings import Settings

    family = NvidiaVgpu(None, Settings(sections=(VgpuArguments(mig_off_group=True),)))
    known = family.inventory(node)
    grant = family.replay(pod, node.metadata.name, known) if known is not None else None
    pieces = grant.pieces if isinstance(grant, Grant) else ()
    return {device_of(piece).id: piece.memory for piece in pieces if piece.slot is not None}


def _charge_vgpu(pod: Pod, cards: dict[str, CardRow], slices: Mapping[str, int]) -> None:
    for container in parse_pod_devices(pod.metadata.annotations.get(names.VGPU_IDS, "")).containers:
        for device in container:
            card = cards.get(device.uuid)
            if card is not None:
                memory = slices.get(device.id, device.memory)
                card.memory += memory
                card.cores += device.cores
                card.holders.append(Holder(pod.key, memory, device.cores))


def _charge_legacy(pod: Pod, cards: dict[int, CardRow]) -> None:
    asked = sum(round_up(c.resources.limits.get(names.GPU_MEMORY, 0)) for c in pod.spec.containers)
    for index in parse_index(pod.metadata.annotations.get(names.GPU_INDEX)) or ():
        if index in cards:
            cards[index].memory += asked
            cards[index].holders.append(Holder(pod.key, asked))


COLUMNS = ("Node", "Card", "Type", "Memory (MiB)", "Cores", "Pods")
WITHOUT_TYPE, SHORTEST = ("Node", "Card", "Memory (MiB)", "Cores", "Pods"), ("Node", "Card", "Memory (MiB)", "Pods")
SHAPES = ((COLUMNS, BAR, True), (COLUMNS, 0, True), (WITHOUT_TYPE, 0, True), (SHORTEST, 0, False))
"""Columns, lengths of bars, and whether there is a line below the head, from a wide terminal to a narrow one: who is on a card
stays in each."""


def cards_table(rows: Sequence[CardRow], width: int = 0) -> Table:
    """``width`` is the terminal's, 0 where nothing bounds the lines."""
    for titles, length, lined in SHAPES:
        cells = [_cells(row, length) for row in rows]
        needed = {title: max([len(title), *(Text.from_markup(cell[title]).cell_len for cell in cells)]) for title in titles}
        if width:
            needed["Type"] = min(needed.get("Type", 0), TYPE_MOST)
        needed["Pods"] = min(needed["Pods"], PODS_LEAST)
        over = sum(needed.values()) + (3 if lined else 2) * (len(titles) - 1) + (2 if lined else 0) - width
        if not width or over <= 0:
            break
    else:
        needed["Node"] = max(NODE_LEAST, needed["Node"] - over)
    table = Table(box=box.SIMPLE_HEAD if lined else None, pad_edge=False, padding=(0, 1))
    for title in titles:
        if title == "Pods":
            table.add_column(title, overflow="fold", min_width=needed[title])
        else:
            side: Literal["left", "right"] = "right" if title == "Card" else "left"
            table.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", width=needed[title])
    for cell in cells:
        table.add_row(*(cell[title] for title in titles))
    return table


def _cells(row: CardRow, length: int) -> dict[str, str]:
    health = "" if row.healthy else " [red]unhealthy[/red]"
    return {
        "Node": escape(row.node),
        "Card": str(row.index),
        "Type": escape(model_of(row.type)) + health,
        "Memory (MiB)": f"{bar(row.memory, row.total, length)} {row.memory}/{row.total}".strip() if row.total else "",
        "Cores": f"{bar(row.cores, 100, length)} {row.cores} %".strip(),
        "Pods": escape("\n".join(map(str, row.holders))) or "[dim]free[/dim]",
    }


def model_of(card_type: str) -> str:
    """A card's registered type without its maker, whom the plugin writes in front of a name that often begins with it."""
    return card_type.removeprefix("NVIDIA-").removeprefix("NVIDIA ")


def bar(used: int, total: int, length: int = BAR) -> str:
    """A bar of so many characters; anything used shows at least one."""
    filled = min(length, max(1 if used else 0, round(length * used / total))) if total else 0
    return f"[green]{'█' * filled}[/green][dim]{'░' * (length - filled)}[/dim]" if length else ""
