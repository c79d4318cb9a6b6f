"""Debian's Prometheus and its promtool, from the PATH or as `make prometheus` unpacks it; and what stands in a query."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pumice/prometheus/usr/bin"
WORDS = frozenset(("by", "on", "group_left", "without", "ignoring", "group_right", "or", "and", "unless", "offset", "bool"))
FUNCTIONS = frozenset((
    "sum", "max", "min", "count", "avg", "rate", "increase", "absent", "histogram_quantile", "label_replace", "label_values"))
SCRAPED = frozenset(("job", "instance", "node", "le"))
"""Labels that Prometheus gives itself, and our way of finding the pages."""


def program(name: str) -> str:
    """Skips the test where there is none."""
    found = shutil.which(name) or (str(UNPACKED / name) if (UNPACKED / name).exists() else None)
    if not found:
        pytest.skip(f"{name} is not here (make prometheus, or Debian's package prometheus)")
    return found


def asked_for(query: str) -> Iterator[tuple[str, set[str]]]:
    """Every metric of a query, and the labels by which it is chosen."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', query)
    for _ in range(2):  # lists of labels name no metrics
        bare = re.sub(r"\b(by|on|group_left|without|ignoring|group_right) ?\([^()]*\)", "", bare)
    for name, chosen in re.findall(r"([a-zA-Z_:][\w:]*)(?!\w) ?(\{[^}]*\})?", re.sub(r"\[[^\]]*\]|offset \w+", "", bare)):
        if name not in WORDS | FUNCTIONS and not re.search(rf"\{{[^}}]*\b{name}\b ?[=!]", bare):
            yield name, set(re.findall(r"(\w+) ?[=!]~?", chosen))


def grouped(query: str) -> set[str]:
    """The labels by which it puts together."""
    lists = re.findall(r"\b(?:by|on|group_left|without|ignoring) ?\(([^()]*)\)", query)
    return {word.strip() for words in lists for word in words.split(",") if word.strip()}
