"""A node that shares its cards by MPS: its control daemons and their servers in memory, and a plugin that may be killed at each
of its calls to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from kit.admitting import Refused
from kit.fake_cluster import Json
from kit.virtual_time import VirtualClock
from tests.property.plane import last_release, mps_judge
from tests.property.plane.node import Node, Running
from tests.property.plane.processes import Connection

from pumice.audit.card_rules import HELD
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.model.errors import Unavailable
from pumice.ports.cards import CardFacts
from pumice.ports.mps import DaemonSeen

T = TypeVar("T")
NEXT = (1 << 60, 100)
"""What a server grants its clients that nobody has bounded: MiB and per cent."""


@dataclass
class Daemon:
    """One card's. ``defaults``: of the server to come; ``bounds``: of that which runs, ``server``, by its pid."""

    pid: int
    stuck: bool = False
    defaults: tuple[int, int] = NEXT
    server: int = 0
    bounds: tuple[int, int] = NEXT


@dataclass
class Servers:
    """The control daemons of a machine, by card, and whose programs they serve. ``left``: the servers of daemons that died, and
    their clients."""

    told: Callable[[str], None]
    daemons: dict[str, Daemon] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    clients: dict[str, list[Running]] = field(default_factory=dict)
    left: dict[str, tuple[int, list[Running]]] = field(default_factory=dict)
    pids: Iterator[int] = field(default_factory=lambda: count(1000))

    # -- ports.mps.MpsControl ---------------------------------------------------------------------------------------------

    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self.notes))

    def look(self, card: str, *, ask: bool) -> DaemonSeen:
        if (daemon := self.daemons.get(card)) is None:
            return DaemonSeen(left=(self.left[card][0],) if card in self.left else ())
        if not ask:
            return DaemonSeen(daemon.pid)
        if daemon.stuck:
            return DaemonSeen(daemon.pid, answers=False)
        return DaemonSeen(daemon.pid, answers=True, clients=len(self.clients.get(card, ())))

    def start(self, card: str) -> None:
        if card in self.left:
            raise Unavailable("programs run on it that do not share it by MPS")
        if card in self.daemons:
            raise Unavailable("an instance of this daemon is already running")
        self.daemons[card] = Daemon(next(self.pids))
        self.notes.add(card)

    def say(self, card: str, *commands: str) -> list[str]:
        daemon = self._answering(card)
        for command in commands:
            words = command.removeprefix("set_").split()
            default, number = words[0].startswith("default_"), int(words[-1].rstrip("M"))
            if not default and int(words[1]) != daemon.server:
                raise Unavailable(f"no server {words[1]}")
            old = daemon.defaults if default else daemon.bounds
            new = (number, old[1]) if "mem_limit" in words[0] else (old[0], number)
            daemon.defaults, daemon.bounds = (new, daemon.bounds) if default else (daemon.defaults, new)
        return []

    def servers(self, card: str) -> tuple[int, ...]:
        daemon = self._answering(card)
        return (daemon.server,) if daemon.server else ()

    def kill(self, card: str, pid: int) -> None:
        if card in self.daemons and self.daemons[card].pid == pid:
            self.dies(card)

    def quit(self, card: str) -> None:
        self._answering(card)
        if self.clients.get(card):
            self.told(f"the control daemon of {card} was ended, and serves {[each.container for each in self.clients[card]]}")
        del self.daemons[card]

    def forget(self, card: str) -> None:
        if card in self.daemons or self.left.get(card):
            self.told(f"card {card} is open to everybody, and is shared by MPS")
        self.notes.discard(card)

    def _answering(self, card: str) -> Daemon:
        daemon = self.daemons.get(card)
        if daemon is None or daemon.stuck:
            raise Unavailable("cannot find MPS control daemon process")
        return daemon

    # -- what befalls them ------------------------------------------------------------------------------------------------

    def dies(self, card: str) -> None:
        """Its server goes on while it has clients."""
        daemon = self.daemons.pop(card, None)
        if daemon is not None and (served := self.clients.pop(card, [])):
            self.left[card] = daemon.server, served

    def reset(self) -> None:
        for each in (self.daemons, self.clients, self.left, self.notes):
            each.clear()

    # -- programs ---------------------------------------------------------------------------------------------------------

    def join(self, card: str, one: Running) -> tuple[int, int]:
        """Return to what its server bounds a program that begins. Raises Refused where nobody serves it."""
        daemon = self.daemons.get(card)
        if daemon is None or daemon.stuck:
            raise Refused("CUDA_ERROR_MPS_CONNECTION_FAILED")
        if not daemon.server:
            daemon.server, daemon.bounds = next(self.pids), daemon.defaults
        self.clients.setdefault(card, []).append(one)
        return daemon.bounds

    def leave(self, one: Running) -> None:
        for card in list(self.clients):
            self.clients[card] = [each for each in self.clients[card] if each is not one]
        for card, (server, served) in list(self.left.items()):
            self.left[card] = server, [each for each in served if each is not one]
            if not self.left[card][1]:
                del self.left[card]


class OwnServers:
    """What one process of the plugin does with them."""

    def __init__(self, servers: Servers, process: Connection) -> None:
        self._servers, self._process = servers, process
        self.known, self.look, self.servers = servers.known, servers.look, servers.servers

    def start(self, card: str) -> None:
        self._process.local("start daemon", partial(self._servers.start, card))

    def say(self, card: str, *commands: str) -> list[str]:
        return self._process.local("bound daemon", partial(self._servers.say, card, *commands))

    def kill(self, card: str, pid: int) -> None:
        self._process.local("kill daemon", partial(self._servers.kill, card, pid))

    def quit(self, card: str) -> None:
        self._process.local("quit daemon", partial(self._servers.quit, card))

    def forget(self, card: str) -> None:
        self._process.local("forget card", partial(self._servers.forget, card))


MACHINES: dict[Path, tuple[Servers, Connection]] = {}
"""The servers and the plugin of each node, by the folder of its pipes."""


class MpsNode(Node):
    def __init__(self, name: str, cards: tuple[CardFacts, ...], root: Path, rng: Random, started: Any) -> None:
        super().__init__(name, cards, root, rng, started)
        self.complaints: list[str] = []
        self.served = Servers(self.complaints.append)
        self.pipes = root / "mps"
        (root / "config.json").write_text(json.dumps({"nodeconfig": [{"name": name, "operatingmode": "mps"}]}))

    def settings(self) -> vgpu_plugin.Settings:
        return replace(super().settings(), node_config=self.root / "config.json", mps_root=self.pipes)

    async def run_plugin(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        MACHINES[self.pipes] = self.served, cluster
        await super().run_plugin(cluster, clock, rng, stop)

    def reboot(self) -> None:
        super().reboot()
        self.served.reset()

    def held_up(self, pod: Json) -> bool:
        """Programs of a daemon that died hold its card."""
        return any(card in pod["metadata"]["annotations"].get(HELD, "") for card in self.served.left)

    def befall_daemon(self, card: int, what: str) -> None:
        uuid = self.cards.cards[card].uuid
        if what == "dies":
            self.served.dies(uuid)
        elif uuid in self.served.daemons:
            self.served.daemons[uuid].stuck = True

    def rest(self) -> None:
        """A daemon that does not answer is ended by the plugin, not by the world."""

    # -- programs ---------------------------------------------------------------------------------------------------------

    def begun(self, one: Running) -> Running:
        if card := mps_judge.card_of(one, self.pipes):
            bounds = self.served.join(card, one)
            self.complaints += mps_judge.bounded_wrongly(one, bounds)
        return one

    def ended(self, one: Running) -> None:
        self.served.leave(one)

    def left(self, one: Running) -> None:
        self.served.leave(one)

    # -- what holds -------------------------------------------------------------------------------------------------------

    def told(self) -> list[str]:
        found = list(self.complaints)
        self.complaints.clear()
        return found

    async def said_wrongly(self, given: Any, alive: set[str]) -> list[str]:
        bounds = {card: daemon.bounds if daemon.server else daemon.defaults for card, daemon in self.served.daemons.items()}
        kept = [card.uuid for card in self.cards.cards if card.uuid not in self.served.left]
        return mps_judge.at_rest(bounds, kept, self.running.values())


@contextmanager
def mps_effects() -> Iterator[None]:
    """A plugin that keeps control daemons has those of its node."""
    with ExitStack() as patches:
        for plugin in last_release.both("devices.nvidia_vgpu.plugin.daemon"):
            patches.enter_context(patch.object(plugin, "MpsPrograms", lambda root, program: OwnServers(*MACHINES[root])))
        try:
            yield
        finally:
            MACHINES.clear()
