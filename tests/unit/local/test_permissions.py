"""What one user may do to another's programs: by the system's word and not by the book's, and never to a later process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.local.test_several_cards import CARDS, booked

from pumice.local import permissions
from pumice.local.permissions import LOG, Target, log, refuse_stranger, send, targets
from pumice.local.request import Request
from pumice.model.errors import BadInput, PumiceError

ME, STRANGER = os.geteuid(), 61001


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    program = subprocess.Popen(["sleep", "60"])
    yield program
    program.kill()
    program.wait()


def test_a_program_of_ones_own_gets_the_signal(sleeper: subprocess.Popen[bytes]) -> None:
    assert send(signal.SIGTERM, targets([sleeper.pid]), ME) == (sleeper.pid,)
    assert sleeper.wait(timeout=60) == -signal.SIGTERM


def test_a_strangers_program_gets_none_and_the_sentence_says_whose_it_is(sleeper: subprocess.Popen[bytes]) -> None:
    with pytest.raises(BadInput, match=rf"process {sleeper.pid} is .*: only .* and root may send it a signal"):
        send(signal.SIGKILL, targets([sleeper.pid]), STRANGER)
    assert sleeper.poll() is None


def test_where_one_of_several_is_a_strangers_none_gets_it(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "owner_of", {os.getpid(): STRANGER, sleeper.pid: STRANGER + 1}.get)
    with pytest.raises(BadInput):
        send(signal.SIGKILL, targets([os.getpid(), sleeper.pid]), STRANGER)
    assert sleeper.poll() is None


def test_a_later_process_of_the_same_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    (now,) = targets([sleeper.pid])
    assert send(signal.SIGKILL, [Target(now.pid, now.start - 1)], ME) == ()
    assert sleeper.poll() is None


def test_one_that_has_ended_is_no_error() -> None:
    assert targets([4194303]) == ()
    assert send(signal.SIGTERM, [Target(4194303, 1)], ME) == ()


def test_a_pods_process_is_for_root_of_the_node_alone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user of the node may happen to have the number that runs in somebody's container."""
    monkeypatch.setattr(permissions, "pod_of", lambda pid: "0d2c7b4e-1111-4222-8333-444455556666")
    monkeypatch.setattr(permissions, "owner_of", lambda pid: STRANGER)
    with pytest.raises(BadInput, match="belongs to a pod: only root of this node"):
        send(signal.SIGKILL, targets([sleeper.pid]), STRANGER)
    assert sleeper.poll() is None
    assert send(signal.SIGKILL, targets([sleeper.pid]), 0) == (sleeper.pid,)


def test_the_book_cannot_make_a_share_somebody_elses() -> None:
    """Its user is written by whoever may write the book; its processes are not."""
    forged = msgspec.structs.replace(booked(Request(memory=1000, cards=("0",)), cards=CARDS), user=STRANGER)
    with pytest.raises(BadInput, match=r"only .* and root may change its limits"):
        refuse_stranger(forged, STRANGER)
    refuse_stranger(forged, ME)


def test_the_log_says_when_who_and_what_and_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, ME, "SIGTERM", "r1", "sent to 7", 1_800_000_000.0)
    line = json.loads((tmp_path / LOG).read_text())
    assert (line["time"], line["user"], line["what"], line["share"]) == ("2027-01-15T08:00:00Z", ME, "SIGTERM", "r1")
    monkeypatch.setattr(permissions, "LOG_BYTES", 100)
    for _ in range(9):
        log(tmp_path, ME, "SIGTERM", "r1\n", "sent to 7", 0.0)
    assert len(list(tmp_path.iterdir())) <= 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1000


def test_what_cannot_be_logged_is_an_error_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / LOG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PumiceError, match="what is not logged is not done"):
        log(tmp_path, ME, "SIGTERM", "r1", "", 0.0)
    assert not (tmp_path / "elsewhere").exists()
