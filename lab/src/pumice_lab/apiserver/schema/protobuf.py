"""Reads Kubernetes' protobuf form of built-in objects, which kubectl's generators (``create configmap``, ``create deployment``)
and controllers send. Answers are always JSON, which every client accepts.

The envelope: the bytes ``k8s\\0`` and a message with apiVersion, kind and the object (runtime.Unknown).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import error as StructError
from struct import unpack
from typing import Any

import msgspec

from pumice_lab.apiserver.schema.shape import ANY, Shape, Types, numbers, types

Json = dict[str, Any]
MAGIC = b"k8s\x00"


_ZERO_TIME = -62_135_596_800  # the first of January of the year 1, which Go means by no time


class Malformed(ValueError):
    """The bytes are no message of the type that they claim to be."""


def decode_object(data: bytes, known: Types) -> Json:
    """The object as JSON values. Raises Malformed."""
    if not data.startswith(MAGIC):
        raise Malformed("the body does not start with the magic of Kubernetes' protobuf form")
    api_version = kind = ""
    raw = b""
    try:
        for number, value in message_fields(memoryview(data)[4:]):
            if number == 1 and not isinstance(value, int):
                for inner, text in message_fields(value):
                    assert not isinstance(text, int)
                    api_version, kind = (str(text, "utf-8"), kind) if inner == 1 else (api_version, str(text, "utf-8"))
            elif number == 2 and not isinstance(value, int):
                raw = bytes(value)
        group, _, version = api_version.rpartition("/")
        name = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else known.kinds.get(f"{group}/{version}/{kind}")
        if name is None:
            raise Malformed(f"{api_version} {kind} has no protobuf form")
        found = _message(name, known.named(name), memoryview(raw))
    except (IndexError, UnicodeDecodeError, AssertionError, OverflowError, StructError, msgspec.DecodeError) as problem:
        raise Malformed(f"{kind or 'object'}: {problem!r}") from None
    return {"apiVersion": api_version, "kind": kind, **found}


@cache
def _numbers_of(name: str) -> dict[int, str]:
    return {int(part.partition("=")[0]): part.partition("=")[2] for part in numbers().get(name, "").split()}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than ten bytes")


def message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value: an integer for varints, bytes for the rest."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                number, at = _varint(data, at)
                yield key >> 3, number
                continue
            case 2:
                size, at = _varint(data, at)
            case 1:
                size = 8
            case 5:
                size = 4
            case wire:
                raise Malformed(f"wire type {wire}")
        if at + size > len(data):
            raise Malformed("the message ends too early")
        yield key >> 3, data[at : at + size]
        at += size


def _message(name: str, shape: Shape, data: memoryview) -> Json:
    """``name`` gives the numbers, ``shape`` the JSON types; they differ for inlined messages."""
    numbers = _numbers_of(name)
    result: Json = {}
    for number, value in message_fields(data):
        field = numbers.get(number)
        if field is None:
            continue
        if field.startswith(">"):
            assert not isinstance(value, int)
            result |= _message(field[1:], shape, value)
            continue
        meant = field.endswith("*")
        field = field.removesuffix("*")
        child = shape.at(field)
        if child.form == "list":
            result.setdefault(field, []).append(_value(child.item, value))
        elif child.form == "map":
            key, inner = _entry(child.item, value)
            result.setdefault(field, {})[key] = inner
        else:
            union = _UNIONS.get(f"{name}.{field}")
            decoded = union(value) if union else _value(child, value)
            if decoded is not None and (meant or decoded not in ("", 0, False, {})):
                result[field] = decoded
    return result


_SCHEMA = "apiextensions.v1.JSONSchemaProps"


def _schema_or_list(value: int | memoryview) -> Any:
    """JSONSchemaPropsOrArray."""
    assert not isinstance(value, int)
    parts = list(message_fields(value))
    one, several = ([_value(types().named(_SCHEMA), part) for number, part in parts if number == wanted] for wanted in (1, 2))
    return several or (one[0] if one else None)


def _schema_or_bool(value: int | memoryview) -> Any:
    """JSONSchemaPropsOrBool: a schema counts more than the word beside it."""
    assert not isinstance(value, int)
    parts = dict(message_fields(value))
    return _value(types().named(_SCHEMA), parts[2]) if 2 in parts else bool(parts.get(1, 0))


_UNIONS = {
    f"{_SCHEMA}.items": _schema_or_list,
    f"{_SCHEMA}.additionalItems": _schema_or_bool,
    f"{_SCHEMA}.additionalProperties": _schema_or_bool,
}  # fields whose JSON is one of two things, and whose message says which


def _entry(shape: Shape, value: int | memoryview) -> tuple[str, Any]:
    key, inner = "", None
    assert not isinstance(value, int)
    for number, part in message_fields(value):
        if number == 1:
            assert not isinstance(part, int)
            key = str(part, "utf-8")
        elif shape.form == "list":  # a map of lists wraps each list in a message
            assert not isinstance(part, int)
            inner = [_value(shape.item, item) for _, item in message_fields(part)]
        else:
            inner = _value(shape, part)
    return key, inner if inner is not None else ""


def _value(shape: Shape, value: int | memoryview) -> Any:
    if shape.form == "struct":
        assert not isinstance(value, int)
        return _message(shape.name, shape, value)
    if shape is ANY or shape.form == "any":
        assert not isinstance(value, int)
        inside = dict(message_fields(value)).get(1, memoryview(b"null"))
        assert not isinstance(inside, int)
        return msgspec.json.decode(inside)
    match shape.name:
        case "int32" | "int64":
            assert isinstance(value, int)
            return value - (1 << 64) if value >> 63 else value
        case "boolean":
            return bool(value)
        case "number":
            assert not isinstance(value, int)
            return unpack("<d", value)[0]
    assert not isinstance(value, int)
    match shape.name:
        case "string":
            return str(value, "utf-8")
        case "bytes":
            return base64.b64encode(value).decode()
        case "quantity":
            text = dict(message_fields(value)).get(1, memoryview(b"0"))
            assert not isinstance(text, int)
            return str(text, "utf-8")
        case "int-or-string":
            parts = dict(message_fields(value))
            number, text = parts.get(2, 0), parts.get(3, memoryview(b""))
            assert isinstance(number, int)
            assert not isinstance(text, int)
            if parts.get(1, 0):
                return str(text, "utf-8")
            return number - (1 << 64) if number >> 63 else number
        case "time" | "microtime":
            return _time(dict(message_fields(value)), shape.name == "microtime")
    raise Malformed(f"no protobuf form of {shape.name}")


def _time(parts: dict[int, int | memoryview], micro: bool) -> str | None:
    if not parts:
        return None
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    assert isinstance(seconds, int)
    assert isinstance(nanos, int)
    seconds -= (seconds >> 63) << 64
    if seconds == _ZERO_TIME:
        return None
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{moment}.{nanos // 1000:06d}Z" if micro else f"{moment}Z"
