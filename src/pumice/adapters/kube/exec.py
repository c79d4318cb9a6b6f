"""Run a command in a container through the API server, over the WebSocket protocol ``v5.channel.k8s.io`` (or v4).

The first byte of each message names the channel: 1 stdout, 2 stderr, 3 the final Status.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from pumice.adapters.kube.client import KubeClient
from pumice.ports.cluster import ApiError
from pumice.wire.kubernetes import EXEC_PROTOCOLS

STDOUT, STDERR, STATUS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ExecResult:
    code: int
    stdout: str
    stderr: str


async def run_in_container(kube: KubeClient, namespace: str, pod: str, command: Sequence[str], *, container: str = "",
                           timeout: float = 30.0) -> ExecResult:
    """Run to the end and return output and exit code. Raises ApiError when the command could not be started."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    output: dict[int, list[bytes]] = {STDOUT: [], STDERR: [], STATUS: []}
    async with kube.websocket(f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", query, EXEC_PROTOCOLS, timeout) as socket:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                output.setdefault(message.data[0], []).append(message.data[1:])
    return ExecResult(_exit_code(b"".join(output[STATUS])), b"".join(output[STDOUT]).decode(errors="replace"),
                      b"".join(output[STDERR]).decode(errors="replace"))


def _exit_code(raw: bytes) -> int:
    """0 for Success; the cause ExitCode of a NonZeroExitCode; anything else is a refusal."""
    try:
        status = json.loads(raw)
    except ValueError as error:
        raise ApiError(0, "NoStatus", "the connection ended before the command's result came") from error
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ApiError(int(status.get("code") or 500), str(status.get("reason") or "InternalError"),
                   str(status.get("message") or "the command was not started"))
