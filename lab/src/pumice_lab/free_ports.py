"""TCP ports of this machine: which are free, and what to say of those that are not."""

from __future__ import annotations

import contextlib
import errno
import socket

from pumice.model.errors import BadInput


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on at this moment."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def port_or_free(address: str, port: int) -> int:
    """The usual port, or a free one when another cluster or daemon has it."""
    try:
        check_free(address, port)
    except BadInput:
        return free_port(address)
    return port


def check_free(address: str, port: int) -> None:
    """Raises BadInput when something listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise taken(address, port, error) from error


def taken(address: str, port: int, error: OSError) -> BadInput:
    """Return the message about a port that could not be had."""
    if error.errno == errno.EADDRINUSE:
        return BadInput(f"port {port} on {address} is in use; choose another with --port, or leave it out for a free one")
    return BadInput(f"cannot listen on {address}:{port}: {error.strerror or error}")
