"""The registration with the API server, and our certificate: made again where somebody deletes it or a certificate ends."""

from __future__ import annotations

import base64
import binascii
import datetime
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pumice.adapters.certificates import Pair, make_authority, make_server, serves
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.wire.kinds import CLUSTER_ROLES, SECRETS
from pumice.wire.names import ADMISSION_SERVICE, SCHEDULER_NAME, SYSTEM_NAMESPACE
from pumice_jobs.admission.rules import MUTATING, ROLE, VALIDATING, Rule, configuration, object_name, owned_by

log = logging.getLogger("pumice.webhook")


LOOK_AGAIN = 600.0
"""Seconds between two looks at the certificate and what is registered."""
RETRY = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """The address at which the API server reaches us: a Service, or a URL. ``files``: certificate, key and authority, where
    they are not made by ourselves; ``register`` False: somebody else tells the API server."""

    namespace: str = SYSTEM_NAMESPACE
    service: str = ADMISSION_SERVICE
    url: str = ""
    files: tuple[str, str, str] | None = None
    register: bool = True
    scheduler: str = SCHEDULER_NAME

    @property
    def addresses(self) -> tuple[str, ...]:
        if not self.url:
            return tuple(f"{self.service}.{self.namespace}{tail}" for tail in ("", ".svc", ".svc.cluster.local"))
        host = self.url.partition("://")[2].partition("/")[0]
        return (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host,)


@dataclass(slots=True)
class Registrar:
    cluster: Cluster
    clock: Clock
    place: Place
    rules: Sequence[Rule]
    tls: ssl.SSLContext
    identity: Identity | None = None

    async def identify(self) -> None:
        """Have a certificate to show. Asks until the API server answers. Raises BadInput."""
        while self.identity is None:
            try:
                self._show(await self._current())
            except ApiError as error:
                log.error("no certificate yet: %s", error)
                await self.clock.sleep(RETRY)

    async def keep(self, done: Callable[[], None]) -> None:
        """For ever; ``done`` is called each time that everything is as it should be."""
        while True:
            pause = LOOK_AGAIN
            try:
                self._show(await self._current())
                if self.place.register:
                    await self._register_all()
                done()
            except ApiError as error:
                log.error("not registered yet: %s", error)
                pause = RETRY
            await self.clock.sleep(pause)

    async def _current(self) -> Identity:
        place = self.place
        if place.files is not None:
            return _from_files(*place.files)
        return await Certificates(self.cluster, self.clock, place.namespace, place.addresses).current()

    def _show(self, identity: Identity) -> None:
        """Connections that come from now on see this certificate. OpenSSL reads it from files alone."""
        if identity == self.identity:
            return
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = os.path.join(directory, "tls.crt"), os.path.join(directory, "tls.key")
            for path, content in ((certificate, identity.server.certificate), (key, identity.server.key)):
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
            try:
                self.tls.load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise BadInput(f"the certificate cannot be served: {error.reason or error}") from error
        self.identity = identity

    async def _register_all(self) -> None:
        """One that the API server refuses keeps no other from being asked about."""
        owners, refused = await self._owners(), []
        for rule in self.rules:
            try:
                await self._register(rule, owners)
            except ApiError as error:
                refused.append(error)
        if refused:
            raise refused[0]

    async def _owners(self) -> list[dict[str, Any]]:
        """None where we run by other manifests than ours, or under another account."""
        try:
            return owned_by(await self.cluster.get(CLUSTER_ROLES, ROLE))
        except ApiError as error:
            if error.code in (403, 404):
                return []
            raise

    async def _register(self, rule: Rule, owners: list[dict[str, Any]]) -> None:
        assert self.identity is not None
        place = self.place
        resource, wanted = configuration(rule, self.identity.authority, namespace=place.namespace, service=place.service,
                                         url=place.url, scheduler=place.scheduler)  # fmt: skip
        try:
            found = await self.cluster.get(resource, wanted["metadata"]["name"])
        except ApiError as error:
            if error.code != 404:
                raise
            await self.cluster.create(resource, {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": owners}})
            return
        meta = found["metadata"]
        owned = not owners or says(meta.get("ownerReferences"), owners)
        if not owned or not says(found.get("webhooks"), wanted["webhooks"]):
            changed = meta if owned else {**meta, "ownerReferences": owners}
            await self.cluster.update(resource, {**found, "metadata": changed, "webhooks": wanted["webhooks"]})


async def take_back(cluster: Cluster, rules: Iterable[Rule]) -> None:
    """Whoever is still registered for these, and answers them no more, would let nothing in."""
    for rule in rules:
        try:
            await cluster.delete(MUTATING if rule.mutates else VALIDATING, object_name(rule))
        except ApiError as error:
            if error.code != 404:
                raise


def says(found: object, wanted: object) -> bool:
    """Return whether what is stored, which has the server's defaults beside, says all that is wanted."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(says(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(says, found, wanted))
    return found == wanted


def _from_files(certificate: str, key: str, authority: str) -> Identity:
    contents: list[bytes] = []
    for path in (authority, certificate, key):
        try:
            with open(path, "rb") as file:
                contents.append(file.read())
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
    return Identity(contents[0], Pair(contents[1], contents[2]))


# -- certificates -----------------------------------------------------------------------------------------------------

# The server's certificate, made by itself and kept in a Secret, so that all replicas show one; renewed long before it ends.

SECRET = "volcano-admission-secret"
AUTHORITY_LASTS = datetime.timedelta(days=3650)
LASTS = datetime.timedelta(days=365)
RENEWED = datetime.timedelta(days=120)
"""Before its end."""
KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Identity:
    """The authority that the API server is told to trust, and the certificate that we show."""

    authority: bytes
    server: Pair


@dataclass(slots=True)
class Certificates:
    cluster: Cluster
    clock: Clock
    namespace: str
    addresses: tuple[str, ...]

    async def current(self) -> Identity:
        """The Secret's certificate, or a new one that is written there first. Raises ApiError."""
        while True:
            found = await self._read()
            data = _decoded(found)
            now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC)
            server = Pair(data["tls.crt"], data["tls.key"])
            if serves(server, data["ca.crt"], self.addresses, now + RENEWED):
                return Identity(data["ca.crt"], server)
            made = self._made(Pair(data["ca.crt"], data["ca.key"]), now)
            try:
                return await self._write(found, made)
            except ApiError as error:
                if error.code != 409:
                    raise
                log.info("another replica has written the certificate; reading it")

    def _made(self, authority: Pair, now: datetime.datetime) -> dict[str, bytes]:
        """By the old authority as long as it lasts, so that what was registered stays true."""
        try:
            server = make_server(authority, SECRET, self.addresses, now, LASTS)
            if not serves(server, authority.certificate, self.addresses, now + RENEWED):
                raise ValueError("the authority ends too soon")
        except ValueError:
            authority = make_authority(f"{SECRET}-ca", now, AUTHORITY_LASTS)
            server = make_server(authority, SECRET, self.addresses, now, LASTS)
        return dict(zip(KEYS, (authority.certificate, authority.key, server.certificate, server.key), strict=True))

    async def _read(self) -> Json | None:
        try:
            return await self.cluster.get(SECRETS, SECRET, self.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def _write(self, found: Json | None, made: dict[str, bytes]) -> Identity:
        data = {key: base64.b64encode(value).decode() for key, value in made.items()}
        if found is None:
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "type": "Opaque", "data": data}
            await self.cluster.create(SECRETS, secret, self.namespace)
        else:
            await self.cluster.update(SECRETS, {**found, "data": {**(found.get("data") or {}), **data}})
        log.info("made a certificate for %s, kept in Secret %s/%s", ", ".join(self.addresses), self.namespace, SECRET)
        return Identity(made["ca.crt"], Pair(made["tls.crt"], made["tls.key"]))


def _decoded(secret: Json | None) -> dict[str, bytes]:
    """Every key; what is missing or no base64 is empty."""
    data = (secret or {}).get("data") or {}
    found = {}
    for key in KEYS:
        try:
            found[key] = base64.b64decode(data.get(key) or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            found[key] = b""
    return found
