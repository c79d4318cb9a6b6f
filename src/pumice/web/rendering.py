"""HTML by templates in which every word of the cluster's is text: names and annotations are written by anybody."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pumice.scheduler.state.resources import amount_text
from pumice.web.drawing import cores_bar, memory_bar, part_bar, percent
from pumice.wire.kubectl_columns import human

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STATIC = {"web.css": "text/css", "web.js": "text/javascript", "viewer.js": "text/javascript", "icon.svg": "image/svg+xml"}
LONGEST_WORD = 400
"""Characters of a name or sentence that are shown; anybody may write megabytes."""


def static(name: str) -> tuple[bytes, str] | None:
    """A file of ours and its media type; None where there is none."""
    return ((HERE / "static" / name).read_bytes(), STATIC[name]) if name in STATIC else None


def to(view: str, /, **query: object) -> str:
    """A relative link: the page may lie below any prefix."""
    words = {key: str(value) for key, value in query.items() if value not in ("", None)}
    return f"{view}?{urlencode(words)}" if words else view


def short(text: object, most: int = LONGEST_WORD) -> str:
    """Cut, with a mark."""
    words = str(text)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def pod_link(key: str) -> str:
    """Return where the holder of a share is shown: a pod by namespace/name, a program of one machine by its id."""
    if "/" not in key:
        return to("program", id=key)
    namespace, _, name = key.partition("/")
    return to("pod", namespace=namespace, name=name)


def job_link(key: str) -> str:
    namespace, _, name = key.partition("/")
    return to("job", namespace=namespace, name=name)


def clock_text(at: float) -> str:
    """A time of day in UTC, as the API server dates."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def mib(amount: float | None) -> str:
    """Bytes in MiB, rounded up as `pumice ps` does."""
    return "unknown" if amount is None else f"{-(-int(amount) // (1 << 20))} MiB"


def vector(amounts: Mapping[str, int]) -> str:
    """A resource list in one line."""
    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in sorted(amounts.items()))


def environment() -> Environment:
    """Templates, with everything escaped and nothing forgiven."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only here: the extra `web` brings it

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.globals |= {
        "to": to, "pod_link": pod_link, "job_link": job_link, "memory_bar": memory_bar, "cores_bar": cores_bar,
        "part_bar": part_bar, "percent": percent, "clock_text": clock_text, "mib": mib, "vector": vector,
        "amount_text": amount_text, "human": human,
    }  # fmt: skip
    made.filters["short"] = short
    return made


class Templates:
    """One environment; templates are compiled once."""

    def __init__(self) -> None:
        self._environment = environment()

    def render(self, name: str, words: Mapping[str, Any]) -> str:
        return str(self._environment.get_template(f"{name}.html").render(words))
