"""Which object has a name now. Objects are told apart by uid; queues, nodes, classes and volumes are referred to by name.

A name may pass from one object to the next while nobody watches, and a list that is told as a difference may say so in either
order: the new object's arrival ends what the old one said, and word that the old one is gone then means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pumice.wire.objects import Meta


@dataclass(slots=True)
class UidTracker:
    """The uid of the object that was last seen under a kind and name. Without a uid, whatever comes or goes is believed."""

    _uids: dict[tuple[str, str], str] = field(default_factory=dict)

    def comes(self, kind: str, name: str, uid: str) -> bool:
        """An object was seen under this name. True when it has taken the name from another one."""
        before = self._uids.get((kind, name), "")
        if uid and before != uid:
            self._uids[kind, name] = uid
        return bool(before and uid) and before != uid

    def goes(self, kind: str, name: str, uid: str) -> bool:
        """An object is said to be gone. True when it bore the name to the end."""
        if uid and self._uids.get((kind, name), uid) != uid:
            return False
        self._uids.pop((kind, name), None)
        return True

    def heeds(self, kind: str, name: str, uid: str, *, gone: bool) -> bool:
        """Return whether an event counts, of a kind of which a new object under the name replaces the old one whole."""
        if gone:
            return self.goes(kind, name, uid)
        self.comes(kind, name, uid)
        return True


@dataclass(slots=True)
class Versions:
    """By uid the resource version of the object as it was last seen: watches repeat themselves."""

    _known: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def stale(self, meta: Meta) -> bool:
        """Return whether an event is older than, or the same as, what is known; else it is what is known from now on."""
        version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
        known = self._known.get(meta.uid)
        if version and known is not None and version <= known:
            return True
        if version:
            self._known[meta.uid] = version
        return False

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)

    def tidy(self) -> None:
        """Give back the room of what was forgotten."""
        self._known = dict(self._known)
