"""Objects of Volcano's kinds that nothing serves yet: each is told so by an event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event
from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import Json, WatchEvent
from pumice.wire.without_effect import Row

log = logging.getLogger("pumice.controller")

UNSERVED = "object of an unserved kind"
REASON = "WithoutEffect"


@dataclass(slots=True)
class UnservedKinds:
    """The objects that were seen, by uid: reported already, or to be reported."""

    recorder: EventRecorder
    work: WorkQueue
    _told: set[str] = field(default_factory=set)
    _untold: dict[str, tuple[Row, Json]] = field(default_factory=dict)

    def on(self, row: Row) -> Callable[[WatchEvent], None]:
        """The handler of one kind's watch."""

        def handle(event: WatchEvent) -> None:
            obj = msgspec.json.decode(event.raw)
            uid = obj["metadata"].get("uid", "")
            if event.type == "DELETED":
                self._told.discard(uid)
                self._untold.pop(uid, None)
            elif uid not in self._told and not _served_by_others(obj):
                self._untold[uid] = row, obj
                self.work.add(UNSERVED, uid)

        return handle

    async def reconcile(self, uid: str) -> None:
        if uid not in self._untold:
            return
        row, obj = self._untold.pop(uid)
        self._told.add(uid)
        meta, text = obj["metadata"], f"{row.text} (no controller of ours serves this kind)"
        namespace = meta.get("namespace", "")
        log.warning("without effect kind=%s object=%s/%s", row.name, namespace, meta["name"])
        await self.recorder.try_to_write(Event.on(obj, "Warning", REASON, text, kind=row.name))


def _served_by_others(obj: Json) -> bool:
    """Return whether some other controller has written its status: this one never does."""
    return bool(obj.get("status"))
