"""Read the page of another daemon's metrics."""

from __future__ import annotations

import aiohttp

from pumice.model.errors import Unavailable


async def page(url: str, patience: float, most: int) -> str:
    """The text of a page. Raises Unavailable with the reason: it does not come in time, or is larger than ``most`` bytes."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience), auto_decompress=False) as session,
            session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status != 200:
                raise Unavailable(f"{url} says {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                body += part
                if len(body) > most:
                    raise Unavailable(f"{url} says more than {most} bytes")
            return body.decode("utf-8", "replace")
    except TimeoutError:
        raise Unavailable(f"{url} says nothing within {patience:g}s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unavailable(f"{url}: {error}") from None
