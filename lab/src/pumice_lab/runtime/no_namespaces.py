"""Mounts of a container where mount namespaces are refused: the same files by their host paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pumice_lab.runtime.spec import Mount

_PRELOAD = "/etc/ld.so.preload"


def flatten(env: Mapping[str, str], mounts: Sequence[Mount]) -> dict[str, str]:
    """Rewrite env values that name a mounted container path to the host path behind it, and turn a mounted
    ld.so.preload into LD_PRELOAD. Best effort: a program with a compiled-in path does not find it."""
    table = sorted(((m.target.rstrip("/"), m.source.rstrip("/")) for m in mounts), key=lambda row: -len(row[0]))
    out = {name: _moved(value, table) for name, value in env.items()}
    preload = next((m.source for m in mounts if m.target == _PRELOAD), "")
    if preload and os.path.exists(preload):
        with open(preload, encoding="utf-8") as file:
            libraries = [_moved(path, table) for path in file.read().split()]
        present = [out["LD_PRELOAD"]] if out.get("LD_PRELOAD") else []
        out["LD_PRELOAD"] = ":".join([*present, *libraries])
    return out


def _moved(value: str, table: Sequence[tuple[str, str]]) -> str:
    for target, source in table:
        if value == target or value.startswith(target + "/"):
            return source + value[len(target) :]
    return value
