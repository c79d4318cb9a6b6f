"""The kinds of steps. One is a small function of what there is and of a random generator:

    @kind("a pod ends", weight=2)
    def ends(view: View, rng: Random) -> list[Op] | None:
        found = view.pods(bound=True)
        return [patch(rng.choice(found), {"status": {"phase": "Succeeded"}})] if found else None

None: its precondition does not hold now. Operations (``Op``) are data; each door knows how to carry them out:
create, patch, delete and terminate objects; wait; and what befalls the scheduler, by ``do``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from kit.fake_cluster import Json, Store

Op = dict[str, Any]
ENGINE, DAEMON = "engine", "daemon"


class View:
    """The bounds of a history. ``without``: features that pods must not have, and kinds of steps that do not happen.
    ``sharing``: the resources by which the scheduler gives out cards."""

    def __init__(self, store: Store, without: frozenset[str] = frozenset(), sharing: Sequence[str] = ()) -> None:
        self.tables, self.without, self.sharing = store.tables, without, sharing
        self._store = store

    def fresh(self, prefix: str) -> str:
        """A name that nobody has had."""
        return f"{prefix}{self._store.version}"

    def pods(self, *, bound: bool | None = None, ours: bool = True) -> list[Json]:
        return [p for p in self.tables["Pod"].values()
                if (bound is None or bool(p["spec"].get("nodeName")) == bound)
                and (not ours or p["spec"]["schedulerName"] == "volcano")]  # fmt: skip

    def live(self, *, bound: bool | None = None) -> list[Json]:
        """Pods that neither ended nor are leaving."""
        return [p for p in self.pods(bound=bound) if p["status"]["phase"] in ("Pending", "Running")
                and "deletionTimestamp" not in p["metadata"]]  # fmt: skip

    def all(self, kind: str) -> list[Json]:
        return list(self.tables[kind].values())


Draw = Callable[[View, Random], list[Op] | None]


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    weight: float
    draw: Draw
    doors: tuple[str, ...]


KINDS: dict[str, Kind] = {}


def kind(name: str, weight: float, *doors: str) -> Callable[[Draw], Draw]:
    """Register a kind of step, for these doors only when any are named."""

    def register(draw: Draw) -> Draw:
        assert name not in KINDS
        KINDS[name] = Kind(name, weight, draw, doors or (ENGINE, DAEMON))
        return draw

    return register


# -- operations -----------------------------------------------------------------------------------------------------


def create(obj: Json) -> Op:
    return {"do": "create", "object": obj}


def patch(obj: Json, change: Json) -> Op:
    return {"do": "patch", "kind": obj["kind"], "key": Store.key(obj), "patch": change}


def delete(obj: Json) -> Op:
    return {"do": "delete", "kind": obj["kind"], "key": Store.key(obj)}


def anew(obj: Json, change: Json | None = None) -> Op:
    """The same object once more, for a create under its old name: as its author wrote it."""
    meta = {k: v for k, v in obj["metadata"].items() if k in ("name", "namespace", "labels", "annotations")}
    made = {**obj, "metadata": meta, **(change or {})}
    if obj["kind"] == "PodGroup":
        made["status"] = {"phase": "Pending"}
    return create(made)


def terminate(pod: Json) -> Op:
    return {"do": "terminate", "key": Store.key(pod)}
