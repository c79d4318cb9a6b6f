"""The bytes of lists and watches, decoded: at once into a kind where one is named, else as far as the metadata.

Fifty thousand pods are hundreds of megabytes: reading every byte once instead of three times is most of a quick start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct, defstruct, field


class Meta(Struct, rename="camel", gc=False):
    """The metadata by which objects are told apart."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(Struct, gc=False):
    metadata: Meta = field(default_factory=Meta)


class _ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    cont: str = field(default="", name="continue")


class _List(Struct, gc=False):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    items: list[Raw] | None = None


class _Frame(Struct, gc=False):
    type: str
    object: Raw


class Status(Struct, gc=False):
    """Why a server ends a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_frame = msgspec.json.Decoder(_Frame).decode
decode_status = msgspec.json.Decoder(Status).decode

Entry = tuple[Any, bytes, Any]
"""(metadata, raw bytes, decoded object) of one object; either bytes or object is there."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. ``cont`` is empty on the last one."""

    entries: Iterator[Entry]
    version: str
    cont: str


@dataclass(frozen=True, slots=True)
class Form:
    """How lists and watch lines of one kind are decoded."""

    _list: Callable[[bytes], Any] | None
    _line: Callable[[bytes], Any] | None

    def page(self, raw: bytes) -> Page:
        """Raises msgspec.MsgspecError when this is no list. An object that is not of the kind spoils no other: then all
        come as bytes."""
        if self._list is not None:
            try:
                found = self._list(raw)
            except msgspec.ValidationError:
                pass
            else:
                entries: Iterator[Entry] = ((obj.metadata, b"", obj) for obj in found.items or ())
                return Page(entries, found.metadata.resource_version, found.metadata.cont)
        found = _decode_list(raw)
        entries = ((_decode_object(item).metadata, bytes(item), None) for item in found.items or ())
        return Page(entries, found.metadata.resource_version, found.metadata.cont)

    def line(self, raw: bytes) -> tuple[str, Any, bytes, Any]:
        """(type, metadata, raw bytes, decoded object) of one line of a watch. Raises msgspec.MsgspecError."""
        if self._line is not None:
            try:
                found = self._line(raw)
            except msgspec.ValidationError:
                pass  # an object that is not of the kind, or the Status of an error
            else:
                if found.type != "ERROR":
                    return found.type, found.object.metadata, b"", found.object
        found = _decode_frame(raw)
        return found.type, _decode_object(found.object).metadata, bytes(found.object), None


def form_of(kind: Any | None) -> Form:
    """The form of a kind (a Struct with ``metadata``); None: metadata and bytes only."""
    return Form(None, None) if kind is None else _form(kind)


@cache
def _form(kind: Any) -> Form:
    metadata = ("metadata", _ListMeta, field(default_factory=_ListMeta))
    pages = defstruct(f"{kind.__name__}List", [metadata, ("items", list[kind] | None, None)], gc=False)
    line = defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)], gc=False)
    return Form(msgspec.json.Decoder(pages, strict=False).decode, msgspec.json.Decoder(line, strict=False).decode)
