"""One object cache under all controllers: what watches and the answers to own writes show, by uid and by owner.

An answer is believed at once, so that nothing is done twice while the watch lags behind. What the watch says of an object that is
known to be gone, or in an older version, is an echo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

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


def number_of(meta: Meta) -> int:
    """Return the resource version as a number; 0 where it is none."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0


REMEMBERED = 5000
"""Uids of objects that are gone and may still be spoken of."""


class Owner(Protocol):
    @property
    def uid(self) -> str: ...


class Metadata(Protocol):
    """The metadata that every object has."""

    @property
    def uid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> str: ...
    @property
    def owner_references(self) -> Sequence[Owner]: ...


class Described(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=Described)


def is_older(meta: Metadata, than: Metadata) -> bool:
    """Return whether it is an older version of an object than the one that is known."""
    a, b = meta.resource_version, than.resource_version
    return a.isdecimal() and b.isdecimal() and int(a) < int(b)


def _uid(meta: Metadata) -> str:
    return meta.uid


@dataclass(slots=True)
class ObjectCache(Generic[T]):
    """The objects of a watch by owner. ``key`` tells the objects of one owner apart: with a name, whoever takes the name of
    another one has replaced it."""

    key: Callable[[Metadata], str] = _uid
    objects: dict[str, T] = field(default_factory=dict)
    """By uid."""
    _owned: dict[str, dict[str, T]] = field(default_factory=dict)
    """Uid of an owner to what names it as one, by key."""
    _gone: dict[str, None] = field(default_factory=dict)

    def get(self, uid: str) -> T | None:
        return self.objects.get(uid)

    def owned(self, uid: str) -> Mapping[str, T]:
        """Return the objects that name ``uid`` as an owner, by key."""
        return self._owned.get(uid, {})

    def put(self, obj: T) -> bool:
        """Take an object as it is now. Return False where that is an echo."""
        meta = obj.metadata
        before = self.objects.get(meta.uid)
        if meta.uid in self._gone or (before is not None and is_older(meta, before.metadata)):
            return False
        if before is not None and before.metadata.owner_references != meta.owner_references:
            self._unlink(before)
        self.objects[meta.uid] = obj
        for owner in meta.owner_references:
            mine = self._owned.setdefault(owner.uid, {})
            other = mine.get(self.key(meta))
            mine[self.key(meta)] = obj
            if other is not None and other.metadata.uid != meta.uid:
                self.drop(other.metadata.uid)
        return True

    def drop(self, uid: str) -> T | None:
        """Take note that an object is gone; return what was known of it."""
        self._gone[uid] = None
        if len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]
        before = self.objects.pop(uid, None)
        if before is not None:
            self._unlink(before)
        return before

    def drop_owned(self, uid: str) -> None:
        """Take note that what an owner had is of no interest any more."""
        for obj in list(self.owned(uid).values()):
            self.drop(obj.metadata.uid)

    def _unlink(self, obj: T) -> None:
        for owner in obj.metadata.owner_references:
            mine = self._owned.get(owner.uid, {})
            if (there := mine.get(self.key(obj.metadata))) is not None and there.metadata.uid == obj.metadata.uid:
                del mine[self.key(obj.metadata)]
                if not mine:
                    del self._owned[owner.uid]
