"""``pumice down``: stop the cluster of a data dir."""

from __future__ import annotations

import os
import signal
import time

from pumice.cli import flags
from pumice.cli.daemon import DATA_DIR, default_data_dir
from pumice.model.errors import BadInput
from pumice_lab.cli.up import data_dir_option
from pumice_lab.datadir import DataDir

app = flags.App()
STOP_SECONDS = 30.0


@app.command(epilog="Example: pumice down --data-dir ~/lab")
def down(data_dir: DATA_DIR = None) -> None:
    """Stop the cluster and every container of it. Its objects stay in the data dir for the next `pumice up`."""
    data = DataDir((data_dir or default_data_dir()).expanduser().absolute())
    if not data.running():
        print(f"no cluster runs in {data.root}")
        return
    facts = data.facts() or {}
    pid, again = facts.get("pid"), facts.get("again") or f"pumice up{data_dir_option(data)}"
    if not isinstance(pid, int):
        raise BadInput(f"{data.root} is held by a process that has not said who it is yet; try again in a moment")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while data.running():
        if time.monotonic() > deadline:
            raise BadInput(f"the cluster (pid {pid}) did not stop within {STOP_SECONDS:.0f} s; see {data.logs / 'up.log'}")
        time.sleep(0.05)
    print(f"stopped; `{again}` starts it again with every object there")
