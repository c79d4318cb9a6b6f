"""The JSONPath of printer columns and of kubectl: fields, indexes, ``[*]`` and ``[?(@.type=="Ready")]`` filters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.([A-Za-z0-9_\-]+(?:\\\.[A-Za-z0-9_\-/]+)*)   # .field, with escaped dots
      | \[(-?\d+)\]                                     # [0]
      | \[(\*)\]                                        # [*]
      | \[['"]([^'"]+)['"]\]                            # ['field']
      | \[\?\(@\.([A-Za-z0-9_\-.]+)\s*==\s*(?:'([^']*)'|"([^"]*)"|([^)\s]+))\)\]
    """,
    re.VERBOSE,
)
Step = tuple[str, str, str]


@lru_cache(maxsize=512)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path. Raises ValueError when it is none of these forms."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if not match:
            raise ValueError(f"{path!r} is not a JSONPath of fields, indexes and filters (at {text[position:]!r})")
        field, index, star, quoted, key, single, double, bare = match.groups()
        if field is not None:
            steps.append(("field", field.replace("\\.", "."), ""))
        elif index is not None:
            steps.append(("index", index, ""))
        elif star:
            steps.append(("all", "", ""))
        elif quoted is not None:
            steps.append(("field", quoted, ""))
        else:
            steps.append(("filter", key, next(v for v in (single, double, bare) if v is not None)))
        position = match.end()
    return tuple(steps)


def find_first(value: Any, path: str) -> Any:
    """The first value at the path, or None."""
    try:
        found = [value]
        for kind, name, wanted in parse(path):
            found = [inner for outer in found for inner in _step(outer, kind, name, wanted)]
    except ValueError:
        return None
    return found[0] if found else None


def _step(value: Any, kind: str, name: str, wanted: str) -> list[Any]:
    if kind == "field":
        return [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    if not isinstance(value, list):
        return list(value.values()) if kind == "all" and isinstance(value, dict) else []
    if kind == "all":
        return value
    if kind == "index":
        return [value[int(name)]] if -len(value) <= int(name) < len(value) else []
    return [item for item in value if isinstance(item, dict) and str(find_first(item, name)) == wanted]
