"""Supervision of a card's MPS control daemon, while daemon, servers and supervisor are killed at random moments."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from pumice.apps.node.control_daemons import ASK_EVERY
from pumice.node.mps import LONGEST, MISSES, SETTLING, Bounds, Step, Supervisor
from pumice.ports.mps import DaemonSeen

LIVES = 2000
LOOKS = 60


@dataclass
class World:
    """One card: a daemon, its server, and programs that hold shares. ``open`` are those that were let on the card."""

    rng: random.Random
    now: float = 0.0
    pid: int = 0
    stuck: bool = False
    server: int = 0
    clients: int = 0
    defaults: Bounds | None = None
    left: list[int] = field(default_factory=list)
    starts: int = 0
    asked: float = 0.0

    def look(self, ask: bool) -> DaemonSeen:
        if not self.pid:
            return DaemonSeen(left=tuple(self.left))
        if not ask:
            return DaemonSeen(self.pid)
        return DaemonSeen(self.pid, answers=False) if self.stuck else DaemonSeen(self.pid, answers=True, clients=self.clients)

    def start(self) -> None:
        assert not self.pid, "two daemons for one card"
        assert not self.left, "a daemon beside the server of the one before"
        self.starts += 1
        self.pid, self.stuck, self.defaults = self.starts, False, None

    def daemon_dies(self) -> None:
        if self.server and self.clients:
            self.left.append(self.server)
        self.pid = self.server = self.clients = 0
        self.stuck = False

    def clients_end(self) -> None:
        self.clients, self.left = 0, []


def step(supervisor: Supervisor, world: World, failing: float) -> None:
    """As ``apps/node/control_daemons.py`` takes them."""
    for _ in range(3):
        ask = supervisor.requested(world.now) or world.now >= world.asked + ASK_EVERY
        world.asked = world.now if ask else world.asked
        seen = world.look(ask)
        taken = supervisor.next(seen, world.now)
        if taken in (Step.REST, Step.FORGET):
            assert taken is Step.REST or not (world.pid or world.left)
            return
        if taken is Step.QUIT:
            assert not world.clients, "a daemon that serves somebody was ended"
            world.daemon_dies()
        elif taken is Step.KILL:
            assert world.stuck
            world.daemon_dies()
        elif world.rng.random() < failing or world.stuck:
            supervisor.failed("it went wrong", world.now)
            return
        elif taken is Step.START:
            world.start()
            supervisor.started(world.now)
        else:
            world.defaults = supervisor.bounds(world.now)
            supervisor.bounded(world.defaults)


@pytest.mark.parametrize("seed", range(8))
def test_no_program_is_let_on_before_its_bounds_nobody_is_thrown_off_and_a_daemon_comes_back(seed):
    rng = random.Random(seed)
    for _ in range(LIVES // 8):
        world, supervisor, wanted = World(rng), Supervisor(), Bounds(1000, 50)
        supervisor.want(wanted)
        for _ in range(LOOKS):
            match rng.choice(["grant", "daemon", "keeper", "stuck", "leave", "nothing", "nothing", "change"]):
                case "grant":
                    mine = Bounds(rng.randrange(1, 20000), rng.randrange(1, 101))
                    supervisor.allocation(mine, world.now)
                    step(supervisor, world, 0.2)
                    if not supervisor.closed and world.pid:
                        assert world.defaults is not None, "a program is let on, and its server is bounded by nothing"
                        assert (world.defaults | mine) == world.defaults, "a program is let on, and its server gives it less"
                        world.server, world.clients = world.pid, world.clients + 1
                    wanted = wanted | mine
                    supervisor.want(wanted)
                case "daemon":
                    world.daemon_dies()
                case "keeper":
                    supervisor = Supervisor()
                    supervisor.want(wanted)
                case "stuck":
                    world.stuck = bool(world.pid)
                case "leave":
                    world.clients_end()
                    wanted = Bounds(1000, 50)
                    supervisor.want(wanted)
                case "change":
                    supervisor.want(None if rng.random() < 0.3 else wanted)
            step(supervisor, world, 0.2)
            world.now += rng.choice([0.2, 1.0, 1.0, 5.0, 70.0])
        world.clients_end()
        supervisor.want(wanted)
        for _ in range(MISSES + 3):
            world.now += LONGEST + SETTLING
            step(supervisor, world, 0.0)
        assert world.pid, "nobody brought it back"
        assert not supervisor.closed
        assert world.defaults == wanted
        supervisor.want(None)
        step(supervisor, world, 0.0)
        assert not world.pid, "a daemon that nobody wants was left"


def test_pauses_between_starts_grow_and_are_short_again_after_a_steady_while():
    supervisor, now, tries = Supervisor(), 0.0, []
    supervisor.want(Bounds(1, 1))
    while len(tries) < 9:
        if supervisor.next(DaemonSeen(), now) is Step.START:
            tries.append(now)
            supervisor.failed("it does not start", now)
        now += 0.5
    pauses = [later - sooner for sooner, later in pairwise(tries)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    supervisor.started(now)
    supervisor.bounded(Bounds(1, 1))
    assert supervisor.next(DaemonSeen(7), now + 100) is Step.REST
    assert supervisor.next(DaemonSeen(), now + 101) is Step.START
    supervisor.started(now + 101)
    supervisor.bounded(Bounds(1, 1))
    assert supervisor.next(DaemonSeen(), now + 102) is Step.REST
    assert supervisor.next(DaemonSeen(), now + 103) is Step.START


def test_a_wide_share_that_has_gone_is_not_kept_by_the_narrow_ones_that_come_after_it() -> None:
    supervisor = Supervisor()
    supervisor.want(Bounds())
    supervisor.allocation(Bounds(21000, 30), 0.0)
    for moment in range(1, 10):
        supervisor.allocation(Bounds(2000, 25), float(moment))
        assert supervisor.bounds(float(moment)) == (Bounds(21000, 30) if moment < SETTLING else Bounds(2000, 25))
    assert supervisor.bounds(9.0 + SETTLING) == Bounds()
