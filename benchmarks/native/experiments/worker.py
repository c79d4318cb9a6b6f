"""A process on the card: ``python -m benchmarks.native.experiments.worker ROLE CONFIG`` (the JSON of its settings).

Says "ready" when it has its context and its kernels, waits for a line, works, and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.native.experiments import roles_compute, roles_facts, roles_memory
from benchmarks.native.experiments.roles import Go

ROLES: dict[str, Callable[[dict[str, Any], Go], Any]] = {
    **roles_compute.ROLES,
    **roles_facts.ROLES,
    **roles_memory.ROLES,
}


def go() -> str:
    print("ready", flush=True)
    return sys.stdin.readline().strip()


if __name__ == "__main__":
    print(json.dumps(ROLES[sys.argv[1]](json.loads(sys.argv[2]), go)), flush=True)
