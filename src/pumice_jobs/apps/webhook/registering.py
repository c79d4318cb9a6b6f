"""The registration with the API server, and our certificate: made again where somebody deletes it or a certificate ends."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pumice.adapters.certificates import Pair
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import CLUSTER_ROLES
from pumice.wire.names import ADMISSION_SERVICE, SCHEDULER_NAME, SYSTEM_NAMESPACE
from pumice_jobs.admission.registration import MUTATING, ROLE, VALIDATING, configuration, object_name, owned_by
from pumice_jobs.admission.rules import Rule
from pumice_jobs.apps.webhook.certificates import Certificates, Identity

log = logging.getLogger("pumice.webhook")

LOOK_AGAIN = 600.0
"""Seconds between two looks at the certificate and what is registered."""
RETRY = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server reaches us: a Service, or a URL. ``files``: certificate, key and authority, where they are not made by
    ourselves; ``register`` False: somebody else tells the API server."""

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
