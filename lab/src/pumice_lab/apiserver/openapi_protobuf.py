"""The OpenAPI v2 document as protobuf, which client-go asks for (gnostic's OpenAPIv2.proto): its definitions, and no paths."""

from __future__ import annotations

from struct import pack
from typing import Any, Final

from pumice_lab.apiserver.bodies import encode

Json = dict[str, Any]
MEDIA: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TEXTS: Final = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_NUMBERS: Final = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_WHOLE: Final = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15,
                 "uniqueItems": 16, "maxProperties": 17, "minProperties": 18}  # fmt: skip
_DEFAULT, _REQUIRED, _ENUM, _ADDITIONAL, _TYPE, _ITEMS, _ALL_OF, _PROPERTIES, _EXTENSION = 5, 19, 20, 21, 22, 23, 24, 25, 31


def document(swagger: Json) -> bytes:
    info = _text(1, swagger["info"]["title"]) + _text(2, swagger["info"]["version"])
    definitions = b"".join(_field(1, _named(name, schema)) for name, schema in swagger["definitions"].items())
    return _text(1, swagger["swagger"]) + _field(2, info) + _field(8, b"") + _field(9, definitions)


def _schema(schema: Json) -> bytes:
    parts: list[bytes] = []
    for key, value in schema.items():
        if key in _TEXTS and isinstance(value, str):
            parts.append(_text(_TEXTS[key], value))
        elif key in _NUMBERS:
            parts.append(_varint(_NUMBERS[key] << 3 | 1) + pack("<d", value))
        elif key in _WHOLE:
            parts.append(_varint(_WHOLE[key] << 3) + _varint(int(value) & (1 << 64) - 1))
        elif key.startswith("x-"):
            parts.append(_field(_EXTENSION, _text(1, key) + _field(2, _yaml(value))))
        else:
            parts += _part(key, value)
    return b"".join(parts)


def _part(key: str, value: Any) -> list[bytes]:
    match key:
        case "default":
            return [_field(_DEFAULT, _yaml(value))]
        case "required":
            return [_text(_REQUIRED, name) for name in value]
        case "enum":
            return [_field(_ENUM, _yaml(each)) for each in value]
        case "additionalProperties":
            inside = _field(1, _schema(value)) if isinstance(value, dict) else _varint(2 << 3) + _varint(bool(value))
            return [_field(_ADDITIONAL, inside)]
        case "type":
            return [_field(_TYPE, _text(1, value))]
        case "items" if isinstance(value, dict):
            return [_field(_ITEMS, _field(1, _schema(value)))]
        case "allOf":
            return [_field(_ALL_OF, _schema(each)) for each in value]
        case "properties":
            return [_field(_PROPERTIES, b"".join(_field(1, _named(name, each)) for name, each in value.items()))]
    return []  # version 2 has no more (oneOf, anyOf, nullable)


def _named(name: str, schema: Json) -> bytes:
    return _text(1, name) + _field(2, _schema(schema))


def _yaml(value: Any) -> bytes:
    """Any; JSON is YAML."""
    return _field(2, encode(value))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
