"""Cards and the pods on them, from API objects alone: what ``pumice status`` and the demo show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from pumice.wire import names
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.nvidia_vgpu import parse_pod_devices, parse_register
from pumice.wire.objects import Node, Pod
from pumice.wire.quantity import round_up

BAR = 10  # characters


@dataclass(slots=True)
class CardRow:
    """One card. Memory in MiB, cores in percent; ``holders`` are ``namespace/pod`` with what each holds."""

    node: str
    index: int
    uuid: str
    type: str
    total: int
    healthy: bool = True
    memory: int = 0
    cores: int = 0
    holders: list[str] = field(default_factory=list)


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
            _charge_vgpu(pod, {card.uuid: card for card in cards})
            _charge_legacy(pod, {card.index: card for card in legacy})
        rows += legacy if any(card.holders for card in legacy) or not cards else cards
    return rows


def _legacy_cards(node: Node) -> list[CardRow]:
    count = round_up(node.status.capacity.get(names.GPU_NUMBER, 0))
    memory = round_up(node.status.capacity.get(names.GPU_MEMORY, 0)) // count if count else 0
    return [CardRow(node.metadata.name, i, str(i), "by gpu-memory", memory) for i in range(count)]


def _charge_vgpu(pod: Pod, cards: dict[str, CardRow]) -> None:
    for container in parse_pod_devices(pod.metadata.annotations.get(names.VGPU_IDS, "")).containers:
        for device in container:
            card = cards.get(device.uuid)
            if card is not None:
                card.memory += device.memory
                card.cores += device.cores
                card.holders.append(f"{pod.key} ({device.memory} MiB, {device.cores} %)")


def _charge_legacy(pod: Pod, cards: dict[int, CardRow]) -> None:
    asked = sum(round_up(c.resources.limits.get(names.GPU_MEMORY, 0)) for c in pod.spec.containers)
    for index in parse_index(pod.metadata.annotations.get(names.GPU_INDEX)) or ():
        if index in cards:
            cards[index].memory += asked
            cards[index].holders.append(f"{pod.key} ({asked} MiB)")


def cards_table(rows: Sequence[CardRow], width: int = 120) -> Table:
    """``width`` is the terminal's: bars are left out where they would crowd out the pods."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("Node", no_wrap=True)
    table.add_column("Card", justify="right", no_wrap=True)
    table.add_column("Type", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("Memory (MiB)", no_wrap=True)
    table.add_column("Cores", no_wrap=True)
    table.add_column("Pods", overflow="fold", min_width=20)
    for row in rows:
        health = "" if row.healthy else " [red]unhealthy[/red]"
        memory, cores = (bar(row.memory, row.total), bar(row.cores, 100)) if width >= 110 else ("", "")
        table.add_row(row.node, str(row.index), row.type.removeprefix("NVIDIA-").removeprefix("NVIDIA ") + health,
                      f"{memory} {row.memory}/{row.total}".strip(), f"{cores} {row.cores} %".strip(),
                      "\n".join(row.holders) or "[dim]free[/dim]")  # fmt: skip
    return table


def bar(used: int, total: int, length: int = BAR) -> str:
    """A bar of so many characters; anything used shows at least one."""
    filled = min(length, max(1 if used else 0, round(length * used / total))) if total else 0
    return f"[green]{'█' * filled}[/green][dim]{'░' * (length - filled)}[/dim]" if length else ""
