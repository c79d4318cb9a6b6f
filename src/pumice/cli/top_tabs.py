"""The tabs of ``pumice top``: cards by NVML, programs by the bookings, pods and queues of a cluster that answers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pumice.cli.daemon import default_data_dir, is_held, kubeconfig_of
from pumice.cli.laboratory import driver_of_machines
from pumice.cli.local_view import FILLS, Fill, as_json, places, shares_table
from pumice.cli.tables import GAP, bar, cards_table, width_of
from pumice.devices.device_type import CardRow
from pumice.devices.registry import all_card_rows
from pumice.local.place import Place
from pumice.local.shares import Share, shares
from pumice.model.amount import MIB
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cards import CardReading, Cards, CardsUnavailable
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.wire import variables
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from pumice.wire.objects import Node, Pod, convert

if TYPE_CHECKING:
    from pumice.adapters.kube import KubeClient
    from pumice.adapters.nvml import NvmlCards
    from pumice.scheduler.explaining.queues import QueueView

Answer = TypeVar("Answer")
PATIENCE = 3.0
"""Seconds for a cluster to answer before the page says that it does not."""


@dataclass(frozen=True, slots=True)
class Tab:
    """One page. ``render`` is given the terminal's width, 0 where lines may be as long as they are; ``data`` says the same for
    programs."""

    name: str
    render: Callable[[int], RenderableType]
    data: Callable[[], list[Json]]
    count: int | None = None

    @property
    def title(self) -> str:
        """The name, and of how many where that is known beforehand."""
        return self.name if self.count is None else f"{self.name} ({self.count})"


@dataclass(frozen=True, slots=True)
class Sources:
    """All that there is to be watched: places with programs, the cards of one machine, a cluster. What is not there is None."""

    where: list[Place]
    cards: NvmlCards | None
    place: Place | None
    kubeconfig: Path | None


def sources(stack: contextlib.ExitStack, emulated: str | None, data_dir: Path | None, kubeconfig: Path | None = None) -> Sources:
    """Open what there is; the stack closes it."""
    where = places(emulated)
    cards, place = cards_here(where) or (None, None)
    if cards is not None:
        stack.callback(cards.close)
    return Sources(where, cards, place, kubeconfig or _cluster(data_dir))


def tabs(there: Sources) -> list[Tab]:
    """The pages that there is something to show on. Raises BadInput when there is nothing at all."""
    where, cards, place, kubeconfig = there.where, there.cards, there.place, there.kubeconfig
    found = []
    if cards is not None and place is not None:
        found.append(Tab("cards", lambda width: _cards_page(cards, place, width), lambda: _cards_data(cards, place),
                         len(cards.readings())))  # fmt: skip
    if cards is not None or shares(where):
        found.append(Tab("processes", lambda width: _processes_page(where, width),
                         lambda: [as_json(share) for share in shares(where)]))  # fmt: skip
    if kubeconfig is not None:
        found.append(Tab("pods", lambda width: _pods_page(kubeconfig, width), lambda: [asdict(row) for row in _rows(kubeconfig)]))
        found.append(Tab("queues", lambda width: _queues_page(kubeconfig, width), lambda: _queues_data(kubeconfig)))
    if not found:
        raise BadInput("nothing to watch: no NVIDIA driver, no program of `pumice run`, no cluster of `pumice up`; "
                       "try: pumice run --emulated -- pumice burn --seconds 60")
    return found


# ---- this machine


def cards_here(where: list[Place]) -> tuple[NvmlCards, Place] | None:
    """The cards of one machine (a process meets one only): the real ones, else the emulated one that is in use."""
    from pumice.adapters.nvml import NvmlCards

    emulated = [place for place in where if place.machine is not None]
    real = [place for place in where if place.machine is None]
    if real and not os.environ.get(variables.MACHINE):
        with contextlib.suppress(CardsUnavailable):
            return NvmlCards(), real[0]
    busy = [place for place in emulated if shares([place])]
    for place in (*busy, *emulated):
        os.environ[variables.MACHINE] = str(place.machine)
        with contextlib.suppress(Unavailable):  # by its driver, or for want of the laboratory
            return NvmlCards(driver_of_machines()), place
    return None


CARDS = ("CARD", "TYPE", "BUSY", "MEMORY IN USE", "BOOKED", "PROGRAMS")
SHORT_TYPE = 10
"""Characters of a card's type that are shown however narrow the terminal is."""


def _cards_page(cards: Cards, place: Place, width: int) -> RenderableType:
    booked = shares([place])
    here = [(card, [share for share in booked if share.booking.on(card.uuid)]) for card in cards.readings()]
    for fill in FILLS:
        titles = CARDS if fill.words else tuple(title for title in CARDS if title != "BOOKED")
        rows = [tuple(cells[title] for title in titles) for cells in (_card_row(card, on, fill) for card, on in here)]
        needed = width_of(titles, rows)
        over = sum(needed) + GAP * (len(titles) - 1) - width if width else 0
        if over <= max(0, needed[1] - SHORT_TYPE):
            break
    needed[1] = min(needed[1], max(SHORT_TYPE, needed[1] - over))
    table = Table(pad_edge=False, box=None, header_style="bold")
    for title, most in zip(titles, needed, strict=True):
        table.add_column(title, no_wrap=True, overflow="ellipsis", width=most)
    for row in rows:
        table.add_row(*row)
    if place.machine is None:
        return table
    return Group(Text(f"on the emulated machine {place.machine}", style="italic", no_wrap=True, overflow="ellipsis"), table)


def _cards_data(cards: Cards, place: Place) -> list[Json]:
    booked = shares([place])
    return [
        {
            "card": card.index,
            "uuid": card.uuid,
            "model": card.name,
            "emulatedMachine": str(place.machine) if place.machine else None,
            "memoryUsedBytes": card.memory_used,
            "memoryTotalBytes": card.memory_total,
            "utilizationPercent": card.utilization if card.utilization >= 0 else None,
            "programs": [share.booking.id for share in booked if share.booking.on(card.uuid)],
        }
        for card in cards.readings()
    ]


def _card_row(card: CardReading, here: list[Share], fill: Fill) -> dict[str, str]:
    used, total = card.memory_used // MIB, card.memory_total // MIB
    allocated = [device for share in here if (device := share.booking.on(card.uuid))]
    memory, cores = sum(device.memory for device in allocated), sum(device.cores for device in allocated)
    busy = f"{bar(card.utilization, 100, fill.bar)} {card.utilization} %" if card.utilization >= 0 else "not told"
    return {
        "CARD": str(card.index),
        "TYPE": card.name.removeprefix("NVIDIA "),
        "BUSY": busy.strip(),
        "MEMORY IN USE": f"{bar(used, total, fill.bar)} {used}/{total} MiB".strip(),
        "BOOKED": f"{memory} MiB, {cores} %",
        "PROGRAMS": " ".join(share.booking.id for share in here) or "none",
    }


def _processes_page(where: list[Place], width: int) -> RenderableType:
    found = shares(where)
    return shares_table(found, width) if found else Text("No program runs under `pumice run`.", style="dim")


# ---- a cluster


def _cluster(data_dir: Path | None) -> Path | None:
    """The kubeconfig of the cluster of ``pumice up`` that runs; None when none does."""
    where = (data_dir or default_data_dir()).expanduser().absolute()
    return kubeconfig_of(where) if is_held(where) and kubeconfig_of(where).exists() else None


def _ask(kubeconfig: Path, question: Callable[[KubeClient], Awaitable[Answer]]) -> Answer:
    import asyncio  # these two take as long as all the rest, and mostly there is no cluster

    from pumice.adapters.kube import KubeClient

    async def ask() -> Answer:
        async with asyncio.timeout(PATIENCE), KubeClient.from_kubeconfig(kubeconfig) as kube:
            return await question(kube)

    try:
        return asyncio.run(ask())
    except (ApiError, OSError, TimeoutError) as error:
        raise Unavailable(f"the cluster does not answer: {error}") from error


def _pods_page(kubeconfig: Path, width: int) -> RenderableType:
    return cards_table(_rows(kubeconfig), width)


def _rows(kubeconfig: Path) -> list[CardRow]:
    return cards_and_pods(kubeconfig)[0]


def cards_and_pods(kubeconfig: Path) -> tuple[list[CardRow], dict[str, str]]:
    """The cards of a cluster with who is on them, and the names of its pods by UID. Raises Unavailable."""
    from pumice.devices.claimed_rows import with_claims

    async def lists(kube: KubeClient) -> tuple[list[Json], ...]:
        return (await kube.list(NODES))["items"], (await kube.list(PODS))["items"], *await claims_in(kube)

    nodes, pods, slices, claims = _ask(kubeconfig, lists)
    found = [convert(Pod, pod) for pod in pods]
    names = {pod.metadata.uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in found}
    return with_claims(all_card_rows([convert(Node, node) for node in nodes], found), slices, claims), names


async def claims_in(kube: Cluster) -> tuple[list[Json], list[Json]]:
    """Return what drivers publish, and all ResourceClaims; none where the cluster has no such kinds, or does not let us see
    them."""
    try:
        return (await kube.list(RESOURCE_SLICES))["items"], (await kube.list(RESOURCE_CLAIMS))["items"]
    except ApiError as error:
        if error.code in (403, 404):
            return [], []
        raise


def queues_of(kubeconfig: Path) -> list[QueueView]:
    """As an engine under the cluster's configuration sees them."""
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.cli.snapshot_source import Source, collect
    from pumice.scheduler.explaining.queues import queue_views

    case = _ask(kubeconfig, lambda kube: collect(kube, Source().configmap))
    return queue_views(engine_of(case), case.now)


def _queues_page(kubeconfig: Path, width: int) -> RenderableType:
    from pumice.cli.explain_workloads import queues_table

    return queues_table(queues_of(kubeconfig), width)


def _queues_data(kubeconfig: Path) -> list[Json]:
    from pumice.cli.explain_workloads import as_json

    return [as_json(view) for view in queues_of(kubeconfig)]
