"""The real control plane's programs are started on ports that somebody else may take first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pumice.model.errors import Unavailable
from pumice.ports.clock import SystemClock
from pumice_lab import kube_control_plane
from pumice_lab.pki import ensure_pki


@pytest.mark.parametrize(("says", "starts"), [
    ("listen tcp 127.0.0.1:40001: bind: address already in use", 3),
    ("member has been removed", 1),
])  # fmt: skip
def test_a_taken_port_is_no_reason_to_give_up_and_everything_else_is(tmp_path: Path, says: str, starts: int) -> None:
    for name in ("etcd", "kube-apiserver"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/started\n"
                           + (f"echo '{says}' >&2\nexit 1\n" if name == "etcd" else "exec sleep 60\n"))  # fmt: skip
        program.chmod(0o755)
    pki = ensure_pki(tmp_path / "pki", ["127.0.0.1"], datetime.now(UTC))
    with pytest.raises(Unavailable, match=f"etcd ended with code 1: {says}"):
        asyncio.run(kube_control_plane.start(tmp_path, tmp_path / "data", tmp_path / "logs", pki, clock=SystemClock()))
    assert (tmp_path / "started").read_text().split().count("etcd") == starts
