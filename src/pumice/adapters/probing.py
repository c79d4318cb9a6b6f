"""Probes of a port, as the kubelet makes them: an empty answer is success, otherwise it says why not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping

import aiohttp


async def limited(attempt: Awaitable[str], seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):  # wait_for forgets a cancellation that comes together with the answer (3.11)
            return await attempt
    except TimeoutError:
        return f"command timed out after {seconds:g}s"


async def http_get(url: str, headers: Mapping[str, str], *, follow: bool = True) -> str:
    """``follow`` False: a redirect is an answer, and whoever is asked leads nobody elsewhere."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=False, allow_redirects=follow) as answer,
        ):
            return "" if 200 <= answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f'Get "{url}": {error}'


async def tcp_connect(host: str, port: int) -> str:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return f"dial tcp {host}:{port}: {error.strerror or error}"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""
