"""Probe a port: an empty text means that it answers, any other is the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp


async def http_answers(url: str, headers: Mapping[str, str], patience: float) -> str:
    """A redirect is an answer: whoever is asked leads nobody elsewhere."""
    limit = aiohttp.ClientTimeout(total=patience)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            return "" if 200 <= answer.status < 400 else f"{url} says {answer.status}"
    except TimeoutError:
        return f"{url} says nothing within {patience:g}s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"{url}: {error}"


async def tcp_answers(host: str, port: int, patience: float) -> str:
    try:
        async with asyncio.timeout(patience):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} says nothing within {patience:g}s"
    except (OSError, OverflowError, ValueError) as error:
        return f"{host}:{port}: {error}"
    writer.close()
    return ""
