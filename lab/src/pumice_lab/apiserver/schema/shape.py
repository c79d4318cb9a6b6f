"""One description of a type for everything that walks objects: decoding, patches, server-side apply, OpenAPI.

Built-in kinds get their shapes from ``kubernetes.json`` (see distil), custom resources from their CRD's schema. Shapes may refer
to themselves (JSONSchemaProps does), so a struct's fields are made at first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

import msgspec

Form = Literal["struct", "map", "list", "scalar", "any"]
SCALARS = frozenset(
    ("string", "int32", "int64", "number", "boolean", "bytes", "time", "microtime", "quantity", "int-or-string")
)


class Shape:
    """A type at one place of an object.

    ``list_type`` is that of server-side apply ("atomic", "set", "map" with ``keys``); ``merge`` says whether a strategic merge
    patch merges the list, by ``merge_key`` when its items are objects. ``open`` structs keep fields that are not listed; a
    ``lenient`` shape lets a value of another type pass, for a validation that follows.
    """

    def __init__(
        self,
        form: Form,
        *,
        name: str = "",
        fields: Callable[[], Mapping[str, Shape]] | None = None,
        items: Shape | None = None,
        marks: tuple[str, ...] = (),
        required: tuple[str, ...] = (),
        open: bool = False,
        lenient: bool = False,
        omits: Callable[[], frozenset[str]] | None = None,
        pointers: Callable[[], frozenset[str]] | None = None,
    ) -> None:
        self.form, self.name, self.items, self._fields = form, name, items, fields
        self.required, self.open, self.lenient = required, open, lenient
        self._omits, self._pointers = omits, pointers
        self.atomic = "atomic" in marks
        self.keys: tuple[str, ...] = ()
        self.list_type = "set" if "set" in marks else "atomic"
        self.merge, self.merge_key = False, ""
        for mark in marks:
            word, _, value = mark.partition("=")
            if word == "map":
                self.list_type, self.keys = "map", tuple(value.split(","))
            elif word == "merge":
                self.merge, self.merge_key = True, value

    @cached_property
    def fields(self) -> Mapping[str, Shape]:
        return self._fields() if self._fields else {}

    @cached_property
    def omits(self) -> frozenset[str]:
        """Fields whose zero ("", 0, false, an empty list or map) is the same as their absence, and is stored as that."""
        return self._omits() if self._omits else frozenset()

    def always_there(self, key: str) -> bool:
        """Return True if Kubernetes always writes a field of this struct: a plain struct, or a list written when empty."""
        if self._pointers is None:
            return False
        form = self.fields[key].form if key in self.fields else "any"
        if form == "struct":
            return key not in self._pointers()
        return form in ("list", "map") and key in self.required

    def at(self, key: str) -> Shape:
        """The shape of a field or of a map's value; ANY where nothing is known."""
        if self.form == "struct":
            return self.fields.get(key, ANY)
        return self.items if self.form == "map" and self.items else ANY

    @property
    def item(self) -> Shape:
        return self.items or ANY


ANY = Shape("any", open=True)


class Types:
    """The named types of ``kubernetes.json``."""

    def __init__(self, raw: Mapping[str, Mapping[str, str]], kinds: Mapping[str, str]) -> None:
        self.raw, self.kinds = raw, kinds
        self._plain: dict[str, Shape] = {}

    def of_kind(self, group: str, version: str, kind: str) -> Shape | None:
        name = self.kinds.get(f"{group}/{version}/{kind}")
        return self.named(name) if name else None

    def named(self, name: str, marks: tuple[str, ...] = ()) -> Shape:
        if not marks and name in self._plain:
            return self._plain[name]
        if name in SCALARS:
            shape = Shape("scalar", name=name)
        elif name in ("object", "any"):
            shape = ANY
        else:
            fields = self.raw[name]
            required = tuple(k for k, line in fields.items() if line.partition(" ")[0].endswith("!"))
            shape = Shape(
                "struct",
                name=name,
                fields=lambda: self._fields_of(name),
                marks=marks,
                required=required,
                omits=lambda: frozenset(fields) - set(required) - pointers_of(name),
                pointers=lambda: pointers_of(name),
            )
        if not marks:
            self._plain[name] = shape
        return shape

    def _fields_of(self, name: str) -> Mapping[str, Shape]:
        return {key: self._field(line) for key, line in self.raw[name].items()}

    def _field(self, line: str) -> Shape:
        type_name, *marks = line.split()
        return self._typed(type_name.removesuffix("!"), tuple(marks))

    def _typed(self, name: str, marks: tuple[str, ...]) -> Shape:
        if name.startswith("["):
            return Shape("list", items=self._typed(name[1:-1], ()), marks=marks)
        if name.startswith("{"):
            return Shape("map", items=self._typed(name[1:-1], ()), marks=marks)
        return self.named(name, marks if name not in SCALARS else ())


@cache
def numbers() -> dict[str, str]:
    """``protobuf.json``: field numbers, and which fields are pointers in Go (``*``) or inlined messages (``>``)."""
    return msgspec.json.decode(files(__package__).joinpath("protobuf.json").read_bytes())  # type: ignore[no-any-return]


@cache
def pointers_of(name: str) -> frozenset[str]:
    """Fields of a type for which zero and absence differ."""
    found: set[str] = set()
    for part in numbers().get(name, "").split():
        field = part.partition("=")[2]
        if field.startswith(">"):
            found |= pointers_of(field[1:])
        elif field.endswith("*"):
            found.add(field[:-1])
    return frozenset(found)


@cache
def types() -> Types:
    """The built-in types, read once per process."""
    return load_types()


def load_types() -> Types:
    raw: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath("kubernetes.json").read_bytes())
    return Types(raw["types"], raw["kinds"])
