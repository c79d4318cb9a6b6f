"""The scheduler's books of a chip and the driver's rules say the same: whatever is decided for pods that come and go, the node's
plugin gets it from the driver (spec ascend 27, 31, 32, 40)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kit.npu_nodes import npu_machine
from kit.seeds import chosen_seed

ROOT = Path(__file__).parents[2]
SEED = chosen_seed()


def test_every_slice_that_the_scheduler_decides_is_made_by_the_driver(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    machine = npu_machine(tmp_path / "m", "310P3", "310P3", "310P3")
    done = machine.run([sys.executable, "-m", "tests.property.npu_cut_life", str(SEED), "600"], {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["refused"] == []
    assert len(found["served"]) >= 4, found["served"]
