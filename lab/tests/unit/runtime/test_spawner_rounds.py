"""One round of the spawner has many events, and an earlier one may end what a later one is about."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from pumice_lab.runtime.spawner import Process, Spawner


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Spawner(theirs, "none")
        made.selector.register(theirs, selectors.EVENT_READ, ("socket", None))
        yield made
        made.selector.close()


def test_an_event_of_a_container_that_ended_says_nothing_of_a_new_one_with_the_same_descriptor(spawner: Spawner) -> None:
    """Taken for the new one's, it closed that one's output, and the spawner died of it with every container."""

    def started() -> tuple[Process, int]:
        program = subprocess.Popen(["true"])
        process = Process(f"container of {program.pid}", program.pid, None)
        spawner.processes[program.pid] = spawner.by_id[process.ident] = process
        read, write = os.pipe2(os.O_NONBLOCK)
        os.close(write)  # it says nothing and ends
        process.streams[read] = "stdout"
        spawner.selector.register(read, selectors.EVENT_READ, ("stdout", process))
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        program.returncode = 0  # reaped by the spawner
        return process, read

    wake, wake_write = os.pipe2(os.O_NONBLOCK)
    os.write(wake_write, bytes([signal.SIGCHLD]))
    spawner.selector.register(wake, selectors.EVENT_READ, ("wake", None))
    child_ended = spawner.selector.get_map()[wake], selectors.EVENT_READ
    _, descriptor = started()
    late = spawner.selector.get_map()[descriptor], selectors.EVENT_READ

    spawner.take(*child_ended)
    second, again = started()
    assert again == descriptor
    spawner.take(*late)
    assert second.streams == {again: "stdout"}
    spawner.take(*child_ended)
    assert not spawner.processes
    assert spawner.alive
    os.close(wake)
    os.close(wake_write)
