"""How webhooks are called: where they are, and what is read of their answers."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import aiohttp

from pumice.wire.conditions import is_ready
from pumice_lab.apiserver.backend import Backend

Json = dict[str, Any]
LARGEST = 3 << 20
"""Bytes of an answer that are read."""


class NoAnswer(Exception):
    """A webhook cannot be asked."""


async def ask(backend: Backend, client: Json, review: Json, patience: float, largest: int = LARGEST) -> Json:
    """Return the answer of a webhook to a review, within so many seconds and bytes. Raises NoAnswer."""
    url, host = _place(backend, client)
    try:
        tls = ssl.create_default_context(cadata=_pem(client.get("caBundle", "")))
        timeout = aiohttp.ClientTimeout(total=patience)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(
            url, json=review, ssl=tls, server_hostname=host or None
        ) as response:  # fmt: skip
            body = await _read(response, largest)
            if response.status != 200:
                raise NoAnswer(f'failed to call webhook: the server answered {response.status} for "{url}"')
        answer = json.loads(body)["response"]
        if answer["uid"] != review["request"]["uid"]:
            raise NoAnswer(f'expected response.uid="{review["request"]["uid"]}"')
    except TimeoutError as problem:
        raise NoAnswer(f'failed to call webhook: Post "{url}": context deadline exceeded') from problem
    except (aiohttp.ClientError, OSError, ssl.SSLError) as problem:
        raise NoAnswer(f'failed to call webhook: Post "{url}": {problem}') from problem
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise NoAnswer(f"received invalid webhook response: {problem!r}") from problem
    if not isinstance(answer, dict):
        raise NoAnswer("received invalid webhook response: no object")
    return answer


async def _read(response: aiohttp.ClientResponse, largest: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > largest:
            raise NoAnswer(f"received invalid webhook response: more than {largest} bytes")
    return bytes(body)


def _place(backend: Backend, client: Json) -> tuple[str, str]:
    """(URL, name on the certificate where it is another one than the URL's)."""
    if client.get("url"):
        return client["url"], ""
    asked = client.get("service") or {}
    namespace, name, port = asked.get("namespace", ""), asked.get("name", ""), asked.get("port", 443)
    service = backend.read("v1/services", namespace, name)
    if service is None:
        raise NoAnswer(f'failed to call webhook: service "{name}" not found')
    target = next((p.get("targetPort", port) for p in service["spec"].get("ports") or () if p.get("port") == port), port)
    selector = service["spec"].get("selector") or {}
    for stored in backend.storage.objects("v1/pods", namespace):
        pod = stored.value()
        labels = pod["metadata"].get("labels") or {}
        if selector and selector.items() <= labels.items() and (address := _ready_at(pod, target)):
            return f"https://{address}{asked.get('path', '/')}", f"{name}.{namespace}.svc"
    raise NoAnswer(f'failed to call webhook: no endpoints available for service "{name}"')


def _ready_at(pod: Json, target: Any) -> str:
    """Host and port; empty while the pod is not ready."""
    if not is_ready(pod):
        return ""
    ports = [p for container in pod["spec"]["containers"] for p in container.get("ports") or ()]
    found = next((p["containerPort"] for p in ports if p.get("name") == target), target)
    address = pod["status"].get("podIP")
    return f"{address}:{found}" if address and isinstance(found, int) else ""


def _pem(bundle: str) -> str | None:
    return base64.b64decode(bundle).decode("ascii") if bundle else None
