"""Bodies of requests: JSON, YAML or Kubernetes' protobuf, each within bounds.

Whoever may send a body may send the worst one. What is deeper than any object is refused before a recursive loader meets
it: libyaml's composer recurses on the C stack, which no exception guards.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from pumice_lab.apiserver.errors import ApiFailure, bad_request, too_large, unsupported_media_type
from pumice_lab.apiserver.schema.protobuf import Malformed, decode_object
from pumice_lab.apiserver.schema.shape import types

PROTOBUF = "application/vnd.kubernetes.protobuf"
DEPTH_LIMIT = 100  # the deepest built-in type has about 30 levels, a schema of a schema 2 for each of its own
NODES_LIMIT = 50_000
"""Values of a body, in YAML with every alias counted as what it stands for; the largest known definitions have half of that. Each
costs its microseconds in every step of a write."""

encode = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode


def decode_body(body: bytes, content_type: str, twice: list[str] | None = None) -> Any:
    """The body by its content type; none counts as JSON. Keys that stand twice in a map are told in ``twice``.
    Raises BadRequest or UnsupportedMediaType."""
    if not body:
        return {}
    if "cbor" in content_type:
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml (got {content_type})"
        )
    try:
        value = _decode(body, content_type, [] if twice is None else twice)
    except Malformed as problem:
        raise bad_request(f"couldn't decode the protobuf body: {problem}") from None
    except RecursionError:
        raise _too_deep() from None
    except ApiFailure:
        raise
    except Exception as problem:  # the loaders' own errors have no common base
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from None
    check_size(value)
    return value


def check_size(value: Any) -> None:
    """Raises BadRequest for what is deeper than any object, RequestEntityTooLarge for what has more values. Those by which the
    server itself keeps who set what are not counted: who reads and updates an object sends them back."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if isinstance(metadata, dict) and "managedFields" in metadata:
        value = {**value, "metadata": {key: part for key, part in metadata.items() if key != "managedFields"}}
    if nodes_of(value) > NODES_LIMIT:
        raise too_large(f"the object has more than {NODES_LIMIT} values")


def nodes_of(value: Any) -> int:
    """The values inside, itself included; some number above NODES_LIMIT where they are more. Raises BadRequest for what is deeper
    than any object: it goes level by level, so that no depth is too deep to look at."""
    total, layer = 1, [value]
    for _ in range(DEPTH_LIMIT + 1):
        deeper: list[Any] = []
        for container in layer:
            inside = container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()
            total += len(inside)
            if total > NODES_LIMIT:
                return total
            deeper += [part for part in inside if type(part) is dict or type(part) is list]
        if not deeper:
            return total
        layer = deeper
    raise _too_deep()


def _decode(body: bytes, content_type: str, twice: list[str]) -> Any:
    if content_type == PROTOBUF:
        return decode_object(body, types())
    if "yaml" not in content_type:
        return _decode_json(body, twice)
    if body.lstrip().startswith(b"{"):  # most often JSON, which is YAML in flow style
        try:
            return _decode_json(body, twice)
        except msgspec.DecodeError:
            pass
    return _decode_yaml(body, twice)


def _decode_json(body: bytes, twice: list[str]) -> Any:
    value = decode_json(body)
    check_size(value)
    if len(encode(value)) != len(body.rstrip()):  # blanks, signs that are written otherwise, or a key that stands twice
        _tell_duplicates(body, twice)
    return value


class _Twice(dict[str, Any]):
    """An object of which a key stood twice."""

    keys_twice: tuple[str, ...]


def _tell_duplicates(body: bytes, twice: list[str]) -> None:
    found = False

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        found = True
        marked = _Twice(value)
        counted = Counter(key for key, _ in pairs)
        marked.keys_twice = tuple(key for key, count in counted.items() if count > 1)
        return marked

    value = json.loads(body, object_pairs_hook=made)
    if found:
        _tell(value, "", twice)


def _tell(value: Any, path: str, twice: list[str]) -> None:
    if isinstance(value, _Twice):
        twice += [f'duplicate field "{path}{key}"' for key in value.keys_twice]
    if isinstance(value, dict):
        for key, inner in value.items():
            _tell(inner, f"{path}{key}.", twice)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _tell(inner, f"{path.removesuffix('.')}[{i}].", twice)


def _too_deep() -> ApiFailure:
    return bad_request(f"the body is nested deeper than {DEPTH_LIMIT} levels")


def _decode_yaml(body: bytes, twice: list[str]) -> Any:
    import yaml

    loader = _loader()
    _measure(yaml.parse(body, Loader=loader), twice)
    # Through JSON, which turns keys into text and refuses what only YAML has.
    return decode_json(encode(yaml.load(body, Loader=loader)))


def _measure(events: Iterable[Any], twice: list[str]) -> None:
    """Reads a document's events without building it. Raises ValueError when it is too deep, or too large with its aliases."""
    import yaml

    total, open_nodes = 0, list[tuple[str | None, int]]()
    sizes: dict[str, int] = {}
    keys = _YamlKeys(twice)
    for event in events:
        keys.see(event)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_nodes.append((event.anchor, total))
            total += 1
            if len(open_nodes) > DEPTH_LIMIT:
                raise RecursionError
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias *{event.anchor} stands for nothing, or for what it is part of")
            total += sizes[event.anchor]
        if getattr(event, "tag", None) not in (None, "!", "tag:yaml.org,2002:str"):
            raise ValueError(f"the tag {event.tag[:60]} is not read: JSON has nothing like it")
        if total > NODES_LIMIT:
            raise ValueError(f"the document has more than {NODES_LIMIT} values, aliases included")


class _YamlKeys:
    """Follows a document's events and tells keys that stand twice in a mapping, as yaml.v2 of Go does."""

    def __init__(self, twice: list[str]) -> None:
        self.twice = twice
        self.open: list[tuple[set[str], bool] | None] = []  # of each open mapping its keys, and whether one is next; None: a list

    def see(self, event: Any) -> None:
        import yaml

        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self.open.pop()
            return
        if not isinstance(event, yaml.NodeEvent):
            return
        if self.open and (mapping := self.open[-1]) is not None:
            keys, is_key = mapping
            self.open[-1] = (keys, not is_key)
            if is_key and isinstance(event, yaml.ScalarEvent):
                if event.value in keys:
                    line = event.start_mark.line + 1 if event.start_mark else 0
                    self.twice.append(f'yaml: line {line}: key "{event.value}" already set in map')
                keys.add(event.value)
        if isinstance(event, yaml.MappingStartEvent):
            self.open.append((set(), True))
        elif isinstance(event, yaml.SequenceStartEvent):
            self.open.append(None)


@cache
def _loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Times stay text, as JSON has none; so do numbers to base 60, whose length costs its square."""

    left_out = {f"tag:yaml.org,2002:{tag}" for tag in ("timestamp", "int", "float")}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in left_out]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    whole = re.compile(r"[-+]?(0|[1-9][0-9_]{0,30}|0b[01_]{1,70}|0x[0-9a-fA-F_]{1,20}|0[0-7_]{1,25})\Z")
    broken = re.compile(r"([-+]?([0-9][0-9_]{0,30})?\.[0-9_]{0,30}([eE][-+]?[0-9]{1,4})?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", whole, list("-+0123456789"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", broken, list("-+0123456789."))
    return Loader
