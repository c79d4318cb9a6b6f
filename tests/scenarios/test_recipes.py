"""What the pages say of programs of others, with these themselves; torchrun: ``tests/native/test_machine_pytorch.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import page_commands
from tests.native import foreign_suites as venv

import pumice
from pumice_lab import machine as machines
from pumice_lab.machine import machine_of

RAY = venv.Suite("ray", ("ray==2.60.0",), "", (), (), {})
PAGE = Path(__file__).parents[2] / "docs/how-to/one-machine.md"
TRAINS = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); total = ctypes.c_size_t(); " \
         "cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0); return total.value >> 20"  # fmt: skip
USE = """
actors = [Trainer.remote() for _ in range(2)]
print(*ray.get([actor.train.remote() for actor in actors]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.soak
def test_each_actor_of_ray_has_a_share_of_its_own(tmp_path: Path) -> None:
    venv.install(RAY)
    (block,) = [one for one in page_commands.blocks(PAGE.read_text("utf-8")) if one.run_by.endswith("test_recipes.py")]
    machines.create(machine_of("GeForce-GTX-1080-Ti"), tmp_path / "machine").close()
    said = {"PUMICE_MACHINE": str(tmp_path / "machine"), "XDG_DATA_HOME": str(tmp_path / "data"), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in said.items():
            patch.setenv(name, value)
        program = [str(RAY.python), "-c", block.text.replace("...", TRAINS) + USE]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            lines = iter(driver.stdout.readline, "")
            assert "2048 2048\n" in lines
            assert [share.cards[0].memory for share in pumice.shares(emulated=True)] == [2048, 2048]
            assert driver.stdin is not None
            driver.stdin.close()
            driver.wait(100)
        assert pumice.shares(emulated=True) == []
