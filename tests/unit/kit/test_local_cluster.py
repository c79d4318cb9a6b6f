"""What scenarios read out of a cluster's log."""

from __future__ import annotations

import sys
from logging import ERROR, LogRecord
from pathlib import Path

from kit.local_cluster import LocalCluster

from pumice.cli.daemon import LINE
from pumice.ports.cluster import ApiError


def logged(error: Exception) -> str:
    """Return the lines of a log that says that an object was set aside."""
    try:
        raise error
    except Exception:
        return LINE.format(LogRecord("pumice.scheduler", ERROR, __file__, 1, "object set aside", (), sys.exc_info())) + "\n"


def test_a_defect_that_a_daemon_logs_and_survives_is_found_and_a_refusal_of_the_world_is_none(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.data.logs.mkdir(parents=True)
    lines = [logged(ApiError(409, "Conflict", "changed")), logged(KeyError("n0")), "the next line\n", logged(OSError("full"))]
    (cluster.data.logs / "up.log").write_text("".join(lines))
    assert cluster.caught() == ["KeyError: 'n0'"]
