"""An API server to test against, and a small synchronous client.

``KINDS`` names what can be started: the embedded server always, the real etcd and kube-apiserver when KUBEBUILDER_ASSETS names
their directory. Both are driven from a thread with an event loop of its own, so that tests stay plain functions.
"""

from __future__ import annotations

import asyncio
import datetime
import http.client
import itertools
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import pytest
import yaml

from pumice.model.errors import BadInput
from pumice.ports.clock import SystemClock
from pumice_lab import kube_control_plane
from pumice_lab.apiserver import ADMIN, ApiServer, open_storage, serve
from pumice_lab.pki import ensure_pki

Json = dict[str, Any]
T = TypeVar("T")
KINDS = (pytest.param("embedded"), pytest.param("kube", marks=pytest.mark.kube))


@dataclass(slots=True)
class Answer:
    code: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Json:
        return json.loads(self.body)


@dataclass(slots=True)
class Api:
    """One API server: where it is, how to get in, and calls on it. ``kind`` is "embedded" or "kube"."""

    url: str
    token: str
    ca: Path
    kind: str

    def call(self, method: str, path: str, body: Any = None, *, media: str = "application/json", accept: str = "application/json",
             agent: str = "contract", **query: Any) -> Answer:  # fmt: skip
        connection = self._connect()
        try:
            response = self._send(connection, method, path, body, media, accept, agent, query)
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Json:
        return self._ok(self.call("GET", path, **query), path)

    def create(self, path: str, body: Any, **query: Any) -> Json:
        return self._ok(self.call("POST", path, body, **query), path)

    def update(self, path: str, body: Any, **query: Any) -> Json:
        return self._ok(self.call("PUT", path, body, **query), path)

    def merge(self, path: str, body: Any, **query: Any) -> Json:
        return self._ok(self.call("PATCH", path, body, media="application/merge-patch+json", **query), path)

    def strategic(self, path: str, body: Any, **query: Any) -> Json:
        return self._ok(self.call("PATCH", path, body, media="application/strategic-merge-patch+json", **query), path)

    def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        query["fieldManager"] = manager
        return self.call("PATCH", path, body, media="application/apply-patch+yaml", **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Json:
        return self._ok(self.call("DELETE", path, body, **query), path)

    @contextmanager
    def watch(self, path: str, *, accept: str = "application/json", **query: Any) -> Iterator[Iterator[Json]]:
        """Events of a watch, as they come; the connection ends with the block."""
        connection = self._connect(timeout=60)
        try:
            requested = {"watch": "true", **query}
            response = self._send(connection, "GET", path, None, "application/json", accept, "contract", requested)
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in iter(response.readline, b""))
        finally:
            connection.close()

    def until_served(self, *paths: str) -> None:
        """Kinds that were just defined."""
        for path in paths:
            _wait_for(self, path)

    def _connect(self, timeout: float = 30) -> http.client.HTTPSConnection:
        parts = urlsplit(self.url)
        context = ssl.create_default_context(cafile=str(self.ca))
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=context)

    def _send(self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any, media: str, accept: str,
              agent: str, query: Json) -> http.client.HTTPResponse:  # fmt: skip
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "User-Agent": agent}
        if data is not None:
            headers["Content-Type"] = media
        words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
        connection.request(method, path + (f"?{urlencode(words, doseq=True)}" if words else ""), data, headers)
        return connection.getresponse()

    def _ok(self, answer: Answer, path: str) -> Json:
        assert answer.code < 300, f"{path}: {answer.code} {answer.body.decode(errors='replace')}"
        return answer.json


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="control-plane", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def control_plane(kind: str, directory: Path, *, service_accounts: bool = False) -> Iterator[Api]:
    """A running API server of this kind with its data in ``directory``. Skips the test where the real one is not to be had.

    ``service_accounts``: pods are given a token of theirs, and wait for it."""
    if kind == "kube":
        try:
            assets = kube_control_plane.find_assets()
        except BadInput as reason:
            pytest.skip(str(reason))
    loop = _Loop()
    try:
        pki = ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
        if kind == "embedded":
            with _embedded(loop, directory, pki.server_cert, pki.server_key, pki.admin_token, service_accounts) as url:
                yield Api(url, pki.admin_token, pki.ca, kind)
        else:
            plane = loop.run(kube_control_plane.start(assets, directory / "kube", directory / "logs", pki, clock=SystemClock(),
                                                      controller_manager=False, service_accounts=service_accounts))  # fmt: skip
            try:
                api = Api(plane.server, pki.admin_token, pki.ca, kind)
                _wait_for(api, "/api/v1/namespaces/default")
                yield api
            finally:
                loop.run(plane.stop())
    finally:
        loop.close()


@contextmanager
def _embedded(loop: _Loop, directory: Path, certificate: Path, key: Path, token: str, service_accounts: bool) -> Iterator[str]:
    async def start() -> Any:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        api = ApiServer(open_storage(directory / "state.db"), rng=random.Random(7), mounts_tokens=service_accounts)
        return api, await serve(api, tls=context, tokens={token: ADMIN})

    api, served = loop.run(start())
    try:
        yield served.url
    finally:
        loop.run(served.close())
        api.storage.close()


def until(done: Callable[[], bool]) -> None:
    """The real server takes in a new schema, or a webhook, after a moment. Raises TimeoutError after half a minute."""
    for _ in range(300):
        if done():
            return
        threading.Event().wait(0.1)
    raise TimeoutError


def _wait_for(api: Api, path: str) -> None:
    """A fresh kube-apiserver makes its namespaces a moment after it is ready."""
    deadline = time.monotonic() + 60
    while api.call("GET", path).code != 200:
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        threading.Event().wait(0.1)


# -- A kubeconfig for programs of others that a test runs


def write_kubeconfig(path: Path, api: Api) -> Path:
    path.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "users": [{"name": "u", "user": {"token": api.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    return path


# ---- fixtures, for the conftest of a folder of contracts


_count = itertools.count(1)


@pytest.fixture(scope="session", params=KINDS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with control_plane(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace of the test's own."""
    name = f"test-{next(_count)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
