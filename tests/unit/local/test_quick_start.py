"""The start of a program: nothing is loaded that deciding about one machine does not need."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from pumice.local import place, start
from pumice.local.allocator import Allocator
from pumice.local.request import Request
from pumice.adapters.nvml import NvmlCards
from pumice.ports.cards import CardFacts
Allocator([CardFacts(0, "GPU-0a0a0a0a-0000-4000-8000-000000000000", "Tesla T4", 1 << 34)], ()).place(Request(memory=1), "r1")
print(*sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""


def test_one_machine_decides_without_arrays_parsers_and_frameworks() -> None:
    heavy = ["numpy", "yaml", "rich", "aiohttp", "asyncio", "grpc", "socket"]
    done = subprocess.run([sys.executable, "-c", CODE, *heavy], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
