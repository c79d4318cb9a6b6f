"""The server's certificate, made by itself and kept in a Secret, so that all replicas show one; renewed long before it ends."""

from __future__ import annotations

import base64
import binascii
import datetime
import logging
from dataclasses import dataclass

from pumice.adapters.certificates import Pair, make_authority, make_server, serves
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.wire.kinds import SECRETS

log = logging.getLogger("pumice.webhook")

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
