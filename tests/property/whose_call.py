"""Histories of pods on one node whose Allocate calls come in any order, with the plugin cut off and restarted between them.

``play`` draws one by a seed and judges it: whoever starts has what the scheduler gave it, and nobody has what is another's.
"""

from __future__ import annotations

import asyncio
import operator
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.admitting import AdmittingKubelet, Refused, Seen
from kit.node_objects import A, B, container, gives, pod_object
from kit.plugin_world import World

from pumice.ports.cluster import ApiError
from pumice.wire import limits_page, names, variables
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_devices

NUMBER = names.VGPU_NUMBER
SIZES = (1000, 1000, 1000, 2000, 4000, 8000)
ROOM, SHARES = 32768, 10


@dataclass
class History:
    """One world and what happened in it. ``strict``: the runtime knows CDI, and nobody at all may be refused; else whoever was
    answered with another card than his own."""

    world: World
    rng: random.Random
    strict: bool
    bound: list[dict[str, Any]] = field(default_factory=list)
    admitted: list[dict[str, Any]] = field(default_factory=list)
    started: dict[tuple[str, str], Seen] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    """Rejected by the kubelet, which has not said so yet."""
    plugin: AsyncExitStack | None = None
    away: bool = False
    deaf: bool = False
    """Lists are not answered either."""
    uid_tracker: int = 0

    @property
    def kubelet(self) -> AdmittingKubelet:
        assert isinstance(self.world.kubelet, AdmittingKubelet)
        return self.world.kubelet

    # -- what happens ------------------------------------------------------------------------------------------------------

    async def bind(self) -> None:
        """One to three pods at once, whose names are in no order."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.uid_tracker += 1
            parts = [self._part() for _ in range(self.rng.choice((1, 1, 1, 2)))]
            if not all(parts):
                return
            containers = [container(f"c{at}", len(part), part[0][1], part[0][2]) for at, part in enumerate(parts)]
            inits = (container("i", 1, parts[0][0][1], 10),) if self.rng.random() < 0.2 else ()
            text = ";".join("".join(gives(*device) for device in part) for part in parts)
            name = f"{self.rng.choice('abcxyz')}{self.uid_tracker}"
            made = pod_object(
                name,
                text,
                *containers,
                uid=f"u{self.uid_tracker}",
                time=1760000000 + self.uid_tracker // 3,
                inits=inits,
            )
            self.world.cluster.put(made)
            self.bound.append(made)
            self.told.append(f"bound {name} {text}")

    def _part(self) -> list[tuple[str, int, int]]:
        """Cards for one container, where there is room for two such."""
        size = self.rng.choice(SIZES)
        cards = self.rng.sample((A, B), self.rng.choice((1, 1, 1, 2)))
        held = [self._held(card) for card in cards]
        fits = all(memory + 2 * size <= ROOM and shares + 2 <= SHARES for memory, shares in held)
        return [(card, size, 10) for card in cards] if fits else []

    def _held(self, card: str) -> tuple[int, int]:
        """Memory and shares."""
        everybody = (*self.bound, *self.admitted)
        devices = [device for pod in everybody
                   for part in parse_pod_devices(pod["metadata"]["annotations"][names.VGPU_IDS]).containers
                   for device in part if device.uuid == card]  # fmt: skip
        return sum(device.memory for device in devices), len(devices)

    async def admit(self) -> None:
        """The kubelet takes one up: mostly the oldest."""
        if not self.bound or self.plugin is None:
            return
        pod = self.bound.pop(0 if self.rng.random() < 0.6 else self.rng.randrange(len(self.bound)))
        name = pod["metadata"]["name"]
        match self.rng.random():
            case chance if chance < 0.1:  # for a reason of its own, without asking
                self.told.append(f"rejected {name}")
                if self.rng.random() < 0.5:  # a kubelet that has just started says first only that it has looked at it
                    told = {"phase": "Pending", "conditions": [], "startTime": "2026-08-20T10:00:05Z"}
                    self.world.cluster.change("pods", name, {"status": told})
                    self.untold.append(name)
                else:
                    self._tell_rejected(name)
                return
            case chance if chance < 0.15:  # deleted by force; the kubelet may have heard of it or not
                self.told.append(f"deleted {name}")
                self.world.cluster.remove("pods", name)
                if self.rng.random() < 0.5:
                    return
                gone = True
            case _:
                gone = False
        self.told.append(f"admits {name}")
        try:
            await self.kubelet.admit(pod, NUMBER)
        except Refused as error:
            self._reject(pod, error.text, gone)
            return
        if gone:
            self.kubelet.leave(pod["metadata"]["uid"])
        else:
            self.admitted.append(pod)

    def _tell_rejected(self, name: str) -> None:
        self.world.cluster.change("pods", name, {"status": {"phase": "Failed", "reason": "SysctlForbidden"}})

    async def tell(self) -> None:
        """The kubelet says what became of those that it rejected."""
        while self.untold:
            name = self.untold.pop()
            pod = self.world.cluster.found("pods", name)
            answered_wrongly = self._wrong_card(pod)  # in the record that it still is in: that alone ends it
            self.kubelet.leave(pod["metadata"]["uid"])
            assert answered_wrongly or not self._ended(name), (f"{name} was rejected, and ended by us", self.told)
            self._tell_rejected(name)

    async def start(self) -> None:
        """One container that waits, or one that starts again."""
        if not self.admitted or self.plugin is None:
            return
        pod = self.rng.choice(self.admitted)
        for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            if pod in self.admitted:
                await self.start_one(pod, each)

    async def rush(self) -> None:
        """Containers of several pods start while the kubelet admits others, and perhaps while the plugin goes."""
        if self.plugin is None:
            return
        waiting = [pod for pod in self.admitted if self.rng.random() < 0.7]

        async def starts(pod: dict[str, Any]) -> None:
            for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
                if pod in self.admitted:
                    await self.start_one(pod, each)

        async def admits() -> None:
            for _ in range(3):
                await self.admit()

        await asyncio.gather(admits(), *(starts(pod) for pod in waiting))

    async def start_one(self, pod: dict[str, Any], each: dict[str, Any], tries: int = 1) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        for left in reversed(range(tries)):
            try:
                seen = await self.kubelet.start_container(pod, each)
            except Refused as error:
                self.told.append(f"start of {name}/{each['name']} refused: {error.text}")
                if self._ended(name):
                    self._may_be_refused(pod, error.text, at_allocate=False)
                    self.refused[uid] = error.text
                    self.admitted.remove(pod)
                    self.kubelet.leave(uid)
                    self.world.cluster.change("pods", name, {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}})
                    return
                if left == 0 and tries > 1:
                    raise AssertionError(f"{name}/{each['name']} never starts: {self.told}") from error
                await asyncio.sleep(5)
            else:
                self.judge(pod, each, seen)
                self.world.cluster.change("pods", name, {"status": {"startTime": "2026-08-20T10:00:05Z"}})
                return

    def _may_be_refused(self, pod: dict[str, Any], text: str, *, at_allocate: bool) -> None:
        """By guess alone: who is answered with another card's, or asked for while the plugin cannot learn of him."""
        unwritten = self.away and "annotations could not be written" in text
        fair = self.deaf or unwritten or text.startswith("failed to connect") if at_allocate else self._wrong_card(pod)
        assert fair, (f"{pod['metadata']['name']} could have been served: {text}", self.told)

    def _wrong_card(self, pod: dict[str, Any]) -> bool:
        """Return whether the answer to a call for this pod opens other cards than its container's."""
        for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
            held = self.kubelet.books.entries.get((pod["metadata"]["uid"], each["name"]))
            if held is None:  # it was rejected before it asked
                continue
            visible = held.response.envs.get(variables.NVIDIA_VISIBLE_DEVICES, "")
            if not self.strict and sorted(visible.split(",")) != sorted(device.uuid for device in part_of(pod, each)):
                return True
        return False

    def _ended(self, name: str) -> bool:
        return bool(self.world.cluster.found("pods", name)["spec"].get("activeDeadlineSeconds"))

    def _reject(self, pod: dict[str, Any], text: str, gone: bool) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.told.append(f"rejected {name}: {text}")
        self.kubelet.leave(uid)
        if not gone:
            self._may_be_refused(pod, text, at_allocate=True)
            self.refused[uid] = text
            self.world.cluster.change("pods", name, {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}})

    async def finish(self) -> None:
        """A pod ends and is deleted."""
        if self.admitted and self.rng.random() < 0.5:
            pod = self.admitted.pop(self.rng.randrange(len(self.admitted)))
            self.told.append(f"ends {pod['metadata']['name']}")
            self.kubelet.leave(pod["metadata"]["uid"])
            self.started = {key: seen for key, seen in self.started.items() if key[0] != pod["metadata"]["uid"]}
            self.world.cluster.remove("pods", pod["metadata"]["name"])

    async def cut_off(self) -> None:
        """The plugin's watch ends and does not come back; lists may be answered."""
        lists, lost = self.rng.random() < 0.7, self.rng.random() < 0.5

        async def away(verb: str, path: str) -> None:
            if lost and verb == "PATCH" and "/pods/" in path:  # what is on its way is carried out, and nobody hears of it
                self.world.cluster.way_back = away_back
            if verb == "WATCH" or (verb == "GET" and not lists):
                raise ApiError(503, "ServiceUnavailable", "away")

        async def away_back(verb: str, path: str) -> None:
            if verb == "PATCH":
                raise ApiError(0, "Unreachable", "reset by peer")

        self.told.append(f"cut off, lists {lists}, answers lost {lost}")
        self.away, self.deaf = True, not lists
        self.world.cluster.gate = away
        self.world.cluster.hang_up(forget=self.rng.random() < 0.5)

    async def come_back(self) -> None:
        if self.away:
            self.told.append("comes back")
            self.away = self.deaf = False
            self.world.cluster.gate = self.world.cluster.way_back = _open
        await asyncio.sleep(self.rng.choice((0, 0.01, 10)))

    async def restart_plugin(self) -> None:
        await self.stop_plugin()
        await self.come_back()
        if self.rng.random() < 0.5:
            await self.bind()
        await self.start_plugin()

    async def stop_plugin(self) -> None:
        if self.plugin is not None:
            self.told.append("plugin stopped")
            await self.plugin.aclose()
            self.plugin = None

    async def start_plugin(self) -> None:
        self.plugin = AsyncExitStack()
        self.kubelet.registered.clear()
        more = {"named_shares": "on", "cdi_folder": self.kubelet.cdi_folder} if self.strict else {"named_shares": "off"}
        await self.plugin.enter_async_context(self.world.plugin(**more))
        self.told.append("plugin started")

    async def restart_kubelet(self) -> None:
        """Running or waiting, containers keep what they have; the record is all that it remembers."""
        if self.plugin is None or self.away:
            return
        self.told.append("kubelet restarted")
        await self.kubelet.stop()
        begun = {uid for uid, _ in self.started}
        for pod in [pod for pod in self.admitted if pod["metadata"]["uid"] not in begun]:
            if self.rng.random() < 0.2:  # its devices seem to be gone; what the record says of it stays for a while
                self.admitted.remove(pod)
                name = pod["metadata"]["name"]
                self.told.append(f"rejected {name} after its restart")
                told = {"phase": "Pending", "conditions": [], "startTime": "2026-08-20T10:00:05Z"}
                self.world.cluster.change("pods", name, {"status": told})
                self.untold.append(name)
        for pod in list(self.admitted):
            if not self.rng.randrange(3):  # it starts before the plugin is back: nobody is asked
                for each in pod["spec"]["containers"]:
                    try:
                        self.judge(pod, each, await self.kubelet.start_container(pod, each, pre_start=False))
                    except Refused as error:
                        self.told.append(f"start of {pod['metadata']['name']} without the plugin refused: {error.text}")
        self.kubelet.registered.clear()
        await self.kubelet.start()
        await self.kubelet.until(NUMBER, lambda units: len(units) == 20)

    # -- what holds --------------------------------------------------------------------------------------------------------

    def judge(self, pod: dict[str, Any], each: dict[str, Any], seen: Seen) -> None:
        """It has what the scheduler gave it, and in a place of its own."""
        name = f"{pod['metadata']['name']}/{each['name']}"
        part = part_of(pod, each)
        page = limits_page.parse(Path(seen.mounts[limits_page.PATH]).read_bytes())
        assert page is not None
        given = sorted((card.uuid, card.memory >> 20, card.cores) for card in page.cards)
        mine = sorted((device.uuid, device.memory, device.cores) for device in part)
        assert given == mine, (name, given, mine, self.told)
        visible = sorted(seen.env[variables.NVIDIA_VISIBLE_DEVICES].split(","))
        assert visible == sorted(device.uuid for device in part), (name, visible, self.told)
        if self.strict:  # elsewhere the page alone counts: the answer's words are those of whom was guessed
            assert seen.env[variables.memory_limit_of(0)] == f"{part[0].memory}m", (name, dict(seen.env), self.told)
        region = seen.env[variables.SHARED_CACHE]
        assert page.region == region, (name, page.region, region, self.told)
        assert Path(seen.mounts[region]).parent == Path(seen.mounts["/tmp/vgpu"]), (name, seen.mounts, self.told)
        assert Path(seen.mounts["/tmp/vgpu"]).name == f"{pod['metadata']['uid']}_{each['name']}", (name, seen.mounts, self.told)
        key = (pod["metadata"]["uid"], each["name"])
        for other, theirs in self.started.items():
            assert other == key or theirs.mounts[limits_page.PATH] != seen.mounts[limits_page.PATH], (name, other, self.told)
        self.started[key] = seen
        self.told.append(f"started {name}")

    async def settle(self) -> None:
        """At rest everybody that was bound has started or is told why not."""
        if self.plugin is None:
            await self.start_plugin()
        await self.come_back()
        await asyncio.sleep(20)
        while self.bound:
            await self.admit()
        await self.tell()
        for pod in list(self.admitted):
            for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
                if pod in self.admitted:
                    await self.start_one(pod, each, tries=6)
        assert not self.strict or not self.refused, (self.refused, self.told)
        with suppress(TimeoutError):
            await self.world.cluster.until(lambda: operator.eq(*self._booked()), 60)
        held, due = self._booked()
        assert held == due, (held, due, self.told)

    def _booked(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what was handed out by the plugin's word, and what those who are there were given."""
        from pumice.wire.nvidia_vgpu import parse_handed_out

        text = self.world.cluster.notes("nodes", self.world.settings.node_name).get(names.HANDED_OUT, "")
        held = {uid: [sorted((d.uuid, d.memory, d.cores) for d in part) for part in given.containers]
                for uid, given in parse_handed_out(text).items() if any(given.containers)}  # fmt: skip
        due = {}
        for pod in self.admitted:
            parts = parse_pod_devices(pod["metadata"]["annotations"][names.VGPU_IDS]).containers
            due[pod["metadata"]["uid"]] = [sorted((d.uuid, d.memory, d.cores) for d in part) for part in parts]
        return held, due


def part_of(pod: dict[str, Any], each: dict[str, Any]) -> tuple[PodDevice, ...]:
    """Return the devices that the scheduler gave to one container; an init container borrows of the first one's."""
    parts = parse_pod_devices(pod["metadata"]["annotations"][names.VGPU_IDS]).containers
    return parts[0][:1] if each["name"] == "i" else parts[int(each["name"][1:])]


async def play(world: World, seed: int, steps: int = 25, strict: bool = False) -> History:
    rng = random.Random(seed)
    history = History(world, rng, strict)
    world.cluster.gate = _open
    happenings = [history.bind] * 6 + [history.admit] * 8 + [history.start] * 5 + [history.come_back] * 3 + [history.rush] * 3 + [
        history.finish, history.tell, history.cut_off, history.cut_off, history.restart_plugin, history.restart_kubelet]
    try:
        await history.start_plugin()
        await history.kubelet.until(NUMBER, lambda units: len(units) == 20)
        for _ in range(steps):
            await rng.choice(happenings)()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice((0, 0.01, 1)))
        await history.settle()
    finally:
        world.cluster.gate = world.cluster.way_back = _open
        await history.stop_plugin()
    return history


async def _open(verb: str, path: str) -> None:
    return
