"""Processes of the last release's own code among today's: plugins on nodes, and schedulers, from the beginning or amid a
history."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from kit.release import NEWEST
from tests.property.history.registry import Op, View, kind
from tests.property.plane import last_release
from tests.property.plane.kinds import CLAIMS, NODES, PLANES, pods_come, slices_come
from tests.property.plane.monitors import MonitoredNode
from tests.property.plane.mps import MpsNode
from tests.property.plane.node import Node

SCHEDULERS, PLUGINS = ("scheduler a", "scheduler b"), tuple(f"plugin {node}" for node in NODES)
MIXING = tuple(name for name in PLANES if name != CLAIMS)
"""Planes on which releases are mixed."""
EXCHANGEABLE_NODES = (Node, MonitoredNode, MpsNode)
"""Nodes whose plugin may be of either."""


@cache
def known(part: str) -> list[dict[str, str]]:
    """Return what is wrong in the last release and mended in this one: ``left_out``, where its daemon is not played, or
    ``excused``, what is not complained of once it was."""
    rows = tomllib.loads(Path(__file__).with_name("last_release.toml").read_text("utf-8")).get(part, [])
    return [row for row in rows if row["version"] == NEWEST.version]


def unexcused(sentences: list[str], played: set[str]) -> list[str]:
    """Return those that are no known defect of the last release. ``played``: processes that were of it in this history."""
    rows = [row for row in known("excused") if any(name.startswith(row["process"]) for name in played)]
    return [text for text in sentences if not any(row["says"] in text for row in rows)]


def exchangeable(name: str, plane: str, nodes: dict[str, Any]) -> bool:
    """Return whether the process may be of the last release."""
    if any(row["plane"] == plane and name.startswith(row["process"]) for row in known("left_out")):
        return False
    node = nodes.get(name.removeprefix("plugin "))
    return name in SCHEDULERS or (name in PLUGINS and type(node) in EXCHANGEABLE_NODES)


def beginning(plane: str, rng: Random) -> list[Op]:
    """Return which processes begin as the last release's."""
    if last_release.missing() or plane not in MIXING or rng.random() < 0.6:
        return []
    chosen = rng.choice((PLUGINS, SCHEDULERS, PLUGINS + SCHEDULERS))
    return [_exchange(name, True, rng) for name in chosen if rng.random() < 0.6]


def _exchange(process: str, last: bool, rng: Random) -> Op:
    return {"do": "release", "process": process, "last": last, "killed": rng.random() < 0.3}


@kind("a process is upgraded from the last release or rolled back", 4, *MIXING)
def exchanged(view: View, rng: Random) -> list[Op] | None:
    if last_release.missing():
        return None
    come = rng.choice((pods_come, slices_come))
    return [*rng.choice(([], come(view, rng) or [])), {"do": "wait", "seconds": rng.choice((0.1, 2.0, 6.0))},
            _exchange(rng.choice(PLUGINS + SCHEDULERS), rng.random() < 0.6, rng)]  # fmt: skip


@kind("all plugins or both schedulers are upgraded from the last release or rolled back", 2, *MIXING)
def all_exchanged(view: View, rng: Random) -> list[Op] | None:
    """One after another, as a DaemonSet or a Deployment does."""
    if last_release.missing():
        return None
    last, pause = rng.random() < 0.5, rng.choice((0.5, 3.0, 12.0))
    return [op for name in rng.choice((PLUGINS, SCHEDULERS))
            for op in (_exchange(name, last, rng), {"do": "wait", "seconds": pause})]  # fmt: skip
