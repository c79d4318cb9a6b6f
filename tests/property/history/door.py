"""The common part of the ways into the system: objects change in the store, and the checker learns what others did to gangs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

from kit.fake_cluster import Json, Store
from tests.property.history import world
from tests.property.history.checker import Checker
from tests.property.history.legacy_card_rules import Legacy
from tests.property.history.registry import Op, View
from tests.property.history.sharings import Sharing, Vgpu

HIERARCHY = "enableHierarchy: true"
MAKES_ROOM = ("allocate, preempt, reclaim, backfill", "allocate, gangpreempt, gangreclaim, backfill")
VGPU_ENABLE = "deviceshare.VGPUEnable: true"


class Door(ABC):
    """Plays operations. ``name`` chooses the kinds of steps that it knows."""

    name: str
    with_claims = False
    """True where some histories have claims of devices."""
    pauses: tuple[float, ...] = (2.0,)
    """Seconds, one of which passes after every other step."""
    quiet = 70.0
    """Seconds at the end of a history in which whatever is written after a pause is written."""

    def __init__(self, conf: str, rng: Random) -> None:
        self.conf, self.rng = conf, rng
        self.store = Store()
        sharing: Sharing = Vgpu() if VGPU_ENABLE in conf else Legacy("GPUNumberEnable: true" in conf)
        shares = next((name for name in ("proportion", "capacity") if f"name: {name}" in conf), "")
        shares += " tree" if HIERARCHY in conf else ""
        makes_room = any(actions in conf for actions in MAKES_ROOM)
        self.checker = Checker(shares, "name: gang" in conf, makes_room, ranked="name: drf" not in conf, sharing=sharing)

    def beginning(self, view: View, rng: Random) -> list[Op]:
        """Return the operations that make the first objects."""
        return world.beginning(view, rng)

    def amid(self, ops: list[Op], view: View, rng: Random) -> list[Op]:
        """Return the operations of a step with what happens before and amid them."""
        return ops

    async def begin(self) -> None:
        """The first objects are there."""
        return

    async def end(self) -> None:
        """Nothing more will be asked."""
        return

    @abstractmethod
    async def befall(self, op: Op) -> None:
        """An operation on the scheduler itself."""

    @abstractmethod
    async def look(self) -> None:
        """After a step: let the checker look at whatever is at rest."""

    async def perform(self, op: Op) -> None:
        store = self.store
        match op["do"]:
            case "create":
                store.create(op["object"])
            case "patch":
                old = store.tables[op["kind"]].get(op["key"])
                if old is None or (op["kind"] == "Pod" and not self._suits(op, old)):
                    return
                self._disturb(op["kind"], op["key"], old)
                if "doubt" in op:
                    self.checker.doubt(old, op["doubt"])
                store.patch(op["kind"], op["key"], op["patch"])
            case "delete":
                old = store.delete(op["kind"], op["key"])
                if old is not None:
                    self._disturb(op["kind"], op["key"], old)
            case "terminate":
                old = store.tables["Pod"].get(op["key"])
                if old is None:
                    return
                self._disturb("Pod", op["key"], old)
                if old["spec"].get("nodeName"):
                    store.patch("Pod", op["key"], {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}})
                else:
                    store.delete("Pod", op["key"])  # nobody runs it: it is gone at once
            case _:
                await self.befall(op)

    @staticmethod
    def _suits(op: Op, pod: Json) -> bool:
        wanted = op.get("if")
        return wanted is None or (wanted == "bound") == bool(pod["spec"].get("nodeName"))

    def _disturb(self, kind: str, key: str, obj: Json) -> None:
        if kind == "Pod":
            self.checker.disturb(obj)
        elif kind == "PodGroup":
            self.checker.disturbed.add(key)
