"""``kubectl exec`` for tests: a command in a container, through the API server, over WebSocket (``v5.channel.k8s.io``)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import aiohttp

from pumice.adapters.kube.config import Access

PROTOCOL = "v5.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3
"""The first byte of a message: what the rest of it belongs to."""


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    stdout: str
    stderr: str


async def run_in_container(access: Access, namespace: str, pod: str, *command: str, seconds: float = 30.0) -> Result:
    """Run to the end. Raises aiohttp.ClientError or TimeoutError when the command could not be started, or did not end."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    said = {STDOUT: b"", STDERR: b"", STATUS: b""}
    async with asyncio.timeout(seconds), aiohttp.ClientSession() as session, session.ws_connect(
        f"{access.server}/api/v1/namespaces/{namespace}/pods/{pod}/exec", params=query, protocols=(PROTOCOL,),
        headers={"Authorization": f"Bearer {access.token()}"}, ssl=access.ssl or False, max_msg_size=0,
    ) as socket:  # fmt: skip
        async for message in socket:
            said[message.data[0]] += message.data[1:]
    stdout, stderr = said[STDOUT].decode(errors="replace"), said[STDERR].decode(errors="replace")
    return Result(_exit_code(json.loads(said[STATUS])), stdout, stderr)


def _exit_code(status: dict) -> int:
    """0 for Success, the cause ``ExitCode`` of what ended otherwise; 126, as a shell has it, for what was not started."""
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
    return 0 if status.get("status") == "Success" else codes[0] if codes else 126
