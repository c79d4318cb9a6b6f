"""Histories on the whole scheduler daemon with its reflectors, before an API server that fails, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import combinations, islice
from random import Random
from typing import Any

from kit.fake_cluster import Json, merged
from kit.kube_rules import Cluster
from kit.virtual_time import VirtualClock, run_virtually
from tests.property.history.checker import told
from tests.property.history.door import Door
from tests.property.history.failing_api import NO_ANSWER, FailingApi, Fault
from tests.property.history.registry import DAEMON, Op

from pumice.apps.scheduler.daemon import Scheduler, Settings
from pumice.wire.names import SCHEDULER_CONFIGMAP, SYSTEM_NAMESPACE

CALM = 12.0
"""Seconds after a fault within which a gang may still be completed or given up."""
SETTLED = 1.8
"""And after a pod came, who may wait that long for a PodGroup of its owner."""
BREATH = 0.2
"""Seconds after any change within which a cycle is still to come."""
AGAIN = 8.0
"""Seconds within which a Binding to the same node is the same decision, sent again."""
MANY = 64
"""Sets of so many pods in doubt that are looked at."""
RESTLESS = 400
"""Cycles within one wait after which nothing will ever be at rest."""
SLOW = 200.0
"""Seconds for which a pod whose Binding failed may wait for another try."""


class DaemonDoor(Door):
    name = DAEMON
    pauses = (0.5, 3.0, 3.0, 15.0)

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self.clock = VirtualClock()
        self.api = FailingApi(self.store, self.clock, Random(rng.random()))
        self.api.bindings, self.api.failed, self.api.deleted = self._decided, self._failed, self.checker.deleted
        self.api.graceful = self.checker.makes_room
        self.calm_from = self.arrived = self.changed = 0.0
        self.decided: dict[str, tuple[str, float]] = {}
        """Uid to the node of its last Binding, and when that came in."""
        self.doubted: dict[str, tuple[Json, float]] = {}
        """Pods whose Binding is not answered yet, or was a moment ago by an error: the scheduler may take them to be there."""
        self.dying = False
        self.cycles = 0
        """Of the running wait."""
        self.clock_of_cycles: dict[str, Callable[[], float]] = {}
        """``tick``, where a cycle has another clock than the machine's."""
        self.store.heard.append(self._heard)
        data = {"volcano-scheduler.conf": conf}
        meta = {"name": SCHEDULER_CONFIGMAP, "namespace": SYSTEM_NAMESPACE}
        self.store.create({"kind": "ConfigMap", "metadata": meta, "data": data})

    # -- the daemon ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        self._start()
        await self.clock.sleep(1.0)

    def _start(self) -> None:
        self.stop, ready = asyncio.Event(), asyncio.Event()
        self.scheduler = Scheduler(Settings(listen=""), self.api, self.clock, Random(self.rng.random()), self.stop, ready)
        engine, cycle = self.scheduler.engine, self.scheduler.engine.cycle

        def counted(*args: Any, **more: Any) -> Any:
            self.cycles += 1
            if self.cycles == RESTLESS:
                self.checker.complain("restless", f"{RESTLESS} cycles within one wait")
            return cycle(*args, **self.clock_of_cycles, **more)

        engine.cycle = counted  # type: ignore[method-assign]
        self.task = asyncio.create_task(self.scheduler.run())
        self._uncalm()
        self.arrived = self.clock.monotonic()

    async def end(self) -> None:
        if hasattr(self, "task"):
            await self._kill()

    async def _kill(self) -> None:
        self.task.cancel()
        found = (await asyncio.gather(self.task, return_exceptions=True))[0]
        if isinstance(found, Exception):
            self.checker.complain("crash", f"the scheduler ended by {told(found)}")
        for task in list(self.scheduler.binder._running):  # a process that is killed sends nothing any more
            task.cancel()
        await asyncio.sleep(0)
        self.doubted.clear()  # its successor knows what the API server shows, and no more

    def _uncalm(self) -> None:
        self.calm_from = self.clock.monotonic() + CALM

    def _heard(self, change: str, obj: Json) -> None:
        self.changed = asyncio.get_running_loop().time()
        if change == "ADDED":
            self.arrived = self.changed

    # -- what befalls it ----------------------------------------------------------------------------------------

    async def befall(self, op: Op) -> None:
        match op["do"]:
            case "wait":
                await self._wait(op["seconds"])
            case "restart":
                self.stop.set()
                with contextlib.suppress(asyncio.CancelledError):  # it is killed meanwhile
                    await self.task
                self.dying = self.killed = False
                self._start()
            case "kill":  # as soon as a Binding comes in, or at once
                if op["amid"]:
                    self.dying = True
                else:
                    await self._kill()
                    self._start()
            case "deaf":
                self.api.deaf = True
                self.api.hang_up()
            case "relist":
                self.api.deaf = False
                self.api.hang_up(forget=True)
                self._uncalm()
            case "outage":
                self.api.outage = True
                self.api.hang_up()
                await self._wait(op["seconds"])
                self.api.outage = False
                self._uncalm()
            case "fault":
                self.api.faults.append(Fault(op["code"], op["count"], op["done"]))
            case "spared":
                self.api.spared.append(Fault(op["code"], op["count"]))
            case "clock":
                self.clock.offset += op["seconds"]

    async def _wait(self, seconds: float) -> None:
        self.cycles = 0
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left, 0.25))
            if self.killed:
                self.dying = self.killed = False
                await self._kill()
                self._start()
            elif self.task.done():
                self.task.result()
                raise AssertionError("the scheduler ended by itself")

    killed = False

    async def look(self) -> None:
        if not hasattr(self, "scheduler"):
            return  # it has not begun
        now, engine = self.clock.monotonic(), self.scheduler.engine
        if not self.api.heard or now < self.changed + BREATH:
            return
        if self.scheduler.binder.in_flight or engine.state.terminating.unanswered or engine.has_work(self.clock.now()):
            return
        if now > self.calm_from:
            self.checker.whole(self.store.tables)
        if now > self.arrived + SETTLED:
            self.checker.asleep(self.store.tables, now)

    # -- what it decides ----------------------------------------------------------------------------------------

    def _decided(self, pod: Json, node: str, annotations: Json) -> None:
        uid, now = pod["metadata"]["uid"], self.clock.monotonic()
        if self.dying:
            self.killed = True
            self.task.cancel()
        node_before, at = self.decided.get(uid, ("", 0.0))
        self.decided[uid] = (node, now)
        # What is not answered, or failed a moment ago, stands for the scheduler or does not: it is right by either picture.
        lately = {uid: pod for uid, (pod, at) in self.doubted.items() if now - at < NO_ANSWER + CALM}
        self.doubted[uid] = (merged(pod, {"spec": {"nodeName": node}}), now)
        if (node_before == node and now - at < AGAIN) or not self.api.heard:
            self.checker.granted[uid] = self.checker.sharing.assignment(merged(pod, {"metadata": {"annotations": annotations}}))
            return
        before, found = list(self.checker.complaints), None
        for picture in self._pictures(lately):
            self.checker.complaints = list(before)
            self.checker.placed(pod, node, annotations, Cluster({**self.store.tables, "Pod": picture}))
            if len(self.checker.complaints) == len(before):
                return
            found = found or self.checker.complaints
        self.checker.complaints = found or before

    def _pictures(self, lately: dict[str, Json]) -> Iterator[Mapping[str, Json]]:
        """Yield the possible views of the scheduler: the pods as shown, or with any of the doubtful ones on their nodes."""
        shown = self.store.tables["Pod"]
        yield shown
        unsure = [key for key, p in shown.items() if p["metadata"]["uid"] in lately and not p["spec"].get("nodeName")]
        for number in range(len(unsure), 0, -1):
            for some in islice(combinations(unsure, number), MANY):
                yield {**shown, **{key: lately[shown[key]["metadata"]["uid"]] for key in some}}

    def _failed(self, pod: Json, node: str) -> None:
        uid, now = pod["metadata"]["uid"], self.clock.monotonic()
        self.doubted[uid] = (merged(pod, {"spec": {"nodeName": node}}), now)
        self.checker.slow[uid] = now + SLOW
        self.checker.disturb(pod)
        self._uncalm()


class BusyDaemonDoor(DaemonDoor):
    """The same on a processor that others keep busy: from one look at its clock to the next a cycle may lose all of its time."""

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self._elapsed, self._longest, self._pace = 0.0, 10 ** rng.uniform(-3.0, 0.5), Random(rng.random())
        self.clock_of_cycles = {"tick": self._tick}

    def _tick(self) -> float:
        self._elapsed += self._longest * self._pace.random()
        return self._elapsed


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a history of this door."""
    return run_virtually(work)
