"""Bodies of requests: JSON, YAML or Kubernetes' protobuf, each within bounds.

Whoever may send a body may send the worst one. What is deeper than any object is refused before a recursive loader meets
it: libyaml's composer recurses on the C stack, which no exception guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from pumice.cluster.apiserver.errors import bad_request, unsupported_media_type
from pumice.cluster.apiserver.schema.protobuf import Malformed, decode_object
from pumice.cluster.apiserver.schema.shape import types

PROTOBUF = "application/vnd.kubernetes.protobuf"
DEPTH_LIMIT = 100  # the deepest built-in type has about 30 levels, a schema of a schema 2 for each of its own
YAML_NODES_LIMIT = 50_000  # with every alias counted as what it stands for; the largest known definitions have half of that

encode = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode


def decode_body(body: bytes, content_type: str) -> Any:
    """The body by its content type; none counts as JSON. Raises BadRequest or UnsupportedMediaType."""
    if not body:
        return {}
    if "cbor" in content_type:
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: "
            f"application/json, application/yaml (got {content_type})"
        )
    try:
        value = _decode(body, content_type)
    except Malformed as problem:
        raise bad_request(f"couldn't decode the protobuf body: {problem}") from None
    except RecursionError:
        raise _too_deep() from None
    except Exception as problem:  # the loaders' own errors have no common base
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from None
    if _deeper(value, DEPTH_LIMIT):
        raise _too_deep()
    return value


def _decode(body: bytes, content_type: str) -> Any:
    if content_type == PROTOBUF:
        return decode_object(body, types())
    if "yaml" not in content_type:
        return decode_json(body)
    if body.lstrip().startswith(b"{"):  # most often JSON, which is YAML in flow style
        try:
            return decode_json(body)
        except msgspec.DecodeError:
            pass
    return _decode_yaml(body)


def _too_deep() -> Exception:
    return bad_request(f"the body is nested deeper than {DEPTH_LIMIT} levels")


def _deeper(value: Any, levels: int) -> bool:
    """Whether there are containers below so many levels; level by level, so that no depth is too deep to look at."""
    layer: list[Any] = [value]
    for _ in range(levels):
        layer = list(chain.from_iterable(_children(container) for container in layer))
        if not layer:
            return False
    return any(isinstance(part, (dict, list)) for part in layer)


def _children(container: Any) -> Iterable[Any]:
    inside = container.values() if type(container) is dict else container if type(container) is list else ()
    return [part for part in inside if type(part) is dict or type(part) is list]


def _decode_yaml(body: bytes) -> Any:
    import yaml

    loader = _loader()
    _measure(yaml.parse(body, Loader=loader))
    # Through JSON, which turns keys into text and refuses what only YAML has.
    return decode_json(encode(yaml.load(body, Loader=loader)))


def _measure(events: Iterable[Any]) -> None:
    """Reads a document's events without building it. Raises ValueError when it is too deep, or too large with its aliases."""
    import yaml

    total, open_nodes = 0, list[tuple[str | None, int]]()
    sizes: dict[str, int] = {}
    for event in events:
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
        if total > YAML_NODES_LIMIT:
            raise ValueError(f"the document has more than {YAML_NODES_LIMIT} nodes, aliases included")


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
