"""Connections that wait, as watches do, cost little."""

from __future__ import annotations

import socket
import ssl
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from kit.control_plane import control_plane

CONNECTIONS, KIB = 40, 1024


def test_a_connection_that_waits_takes_less_than_a_hundred_kib_of_the_server(tmp_path: Path) -> None:
    with control_plane("embedded", tmp_path) as api, ExitStack() as opened:
        parts, context = urlsplit(api.url), ssl.create_default_context(cafile=str(api.ca))
        api.get("/api/v1/namespaces/default")
        tracemalloc.start()
        opened.callback(tracemalloc.stop)
        for _ in range(CONNECTIONS):
            plain = socket.create_connection((parts.hostname, parts.port))
            talk = opened.enter_context(context.wrap_socket(plain, server_hostname=parts.hostname))
            talk.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in talk.recv(65536)
        assert tracemalloc.get_traced_memory()[0] < CONNECTIONS * 100 * KIB
