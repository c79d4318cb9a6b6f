"""Rights of a viewer: who the bearer of a token is, and which lists the API server would give him. Asked there, kept shortly."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pumice.apps.scheduler.informers import CLAIMS, LISTS, STORAGE
from pumice.apps.service.reviewed import LONGEST_TOKEN
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.wire.kinds import CONFIGMAPS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_CLAIMS
from pumice.wire.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS, access_review, is_allowed, token_review, user_of
from pumice.wire.volcano import POD_GROUPS

TOKEN_KEPT, RIGHTS_KEPT, OUTAGE = 10.0, 60.0, 600.0
"""Seconds for which the answers about a token and about rights are kept, and for which they stand in where the API server says
nothing at all: then nothing new is shown either."""
TOKENS, USERS = 4096, 2048
"""So many of the last answers are kept, of whoever asks."""
AT_ONCE, PATIENCE = 16, 5.0
"""Questions to the API server at once, and seconds that one may take."""
NAMESPACES_ASKED = 200
"""For a viewer who may not list pods everywhere: of so many namespaces it is asked whether he may there."""
KINDS = (*(resource for _, resource, _, _ in (*LISTS, *STORAGE, *CLAIMS)), EVENTS)
IN_NAMESPACES = (POD_GROUPS, EVENTS, RESOURCE_CLAIMS, PERSISTENT_VOLUME_CLAIMS)
"""Asked for in each namespace whose pods may be listed."""

Scope = tuple[str, str, str]
"""API group, kind, namespace; an empty namespace stands for all of them."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The lists that somebody may have. ``partial``: namespaces beyond ``NAMESPACES_ASKED`` were not asked for."""

    scopes: frozenset[Scope] = frozenset()
    everything: bool = False
    partial: bool = False

    def may(self, resource: Resource, namespace: str = "") -> bool:
        """Return whether this list would be given."""
        return (self.everything or (resource.group, resource.plural, "") in self.scopes
                or (bool(namespace) and (resource.group, resource.plural, namespace) in self.scopes))  # fmt: skip

    def some(self, resource: Resource) -> bool:
        """Return whether the list of any namespace would be given."""
        return self.everything or any(scope[:2] == (resource.group, resource.plural) for scope in self.scopes)

    def namespaces(self) -> list[str]:
        """Return those whose pods may be listed, where not all may."""
        return sorted(space for group, plural, space in self.scopes if (group, plural) == (PODS.group, PODS.plural) and space)


EVERYTHING = Rights(everything=True)


class Unknown(Exception):
    """Raised where nobody can say now who somebody is, or what he may see; the text says why."""


@dataclass(slots=True)
class Reviews:
    """Asks the API server about viewers. ``namespaces`` gives those in which pods are, ``reports`` those whose ConfigMaps tell of
    nodes."""

    cluster: Cluster
    clock: Clock
    namespaces: Callable[[], Iterable[str]]
    reports: Callable[[], Iterable[str]] = tuple
    _tokens: OrderedDict[bytes, tuple[float, Json | None]] = field(default_factory=OrderedDict)
    _users: OrderedDict[str, tuple[float, Rights]] = field(default_factory=OrderedDict)
    _asking: dict[str, asyncio.Lock] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def rights(self, token: str) -> Rights | None:
        """Return what the bearer may list; None where the API server does not know the token. Raises Unknown."""
        if not 0 < len(token) <= LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        async with _OneAtATime(self._asking, digest.hex()):
            user = await self._user(digest, token)
        if user is None:
            return None
        who = _key(user)
        async with _OneAtATime(self._asking, who):
            return await self._rights(who, user)

    async def _user(self, digest: bytes, token: str) -> Json | None:
        known, now = self._tokens.get(digest), self.clock.now()
        if known is not None and now - known[0] < TOKEN_KEPT:
            self._tokens.move_to_end(digest)
            return known[1]
        try:
            found = user_of(await self._ask(TOKEN_REVIEWS, token_review(token)))
        except ApiError as error:
            if known is not None and known[1] is not None and now - known[0] < OUTAGE and _silent(error):
                return known[1]
            raise Unknown(f"the API server reviews no token now: {error}") from None
        self._tokens.pop(digest, None)
        self._tokens[digest] = self.clock.now(), found
        while len(self._tokens) > TOKENS:
            self._tokens.popitem(last=False)
        return found

    async def _rights(self, who: str, user: Json) -> Rights:
        known, now = self._users.get(who), self.clock.now()
        if known is not None and now - known[0] < RIGHTS_KEPT:
            self._users.move_to_end(who)
            return known[1]
        try:
            found = await self._reviewed(user)
        except ApiError as error:
            if known is not None and now - known[0] < OUTAGE and _silent(error):
                return known[1]
            raise Unknown(f"the API server reviews no rights now: {error}") from None
        self._users.pop(who, None)
        self._users[who] = self.clock.now(), found
        while len(self._users) > USERS:
            self._users.popitem(last=False)
        return found

    async def _reviewed(self, user: Json) -> Rights:
        """Raises ApiError."""
        if await self._may(user, Resource("*", "*", "*"), ""):
            return EVERYTHING
        asked: list[tuple[Resource, str]] = [(resource, "") for resource in KINDS]
        asked += [(CONFIGMAPS, namespace) for namespace in set(self.reports())]
        given = await self._which(user, asked)
        spaces, partial = list[str](), False
        if (PODS, "") not in given:
            known = sorted(self.namespaces())
            partial = len(known) > NAMESPACES_ASKED
            mine = await self._which(user, [(PODS, space) for space in known[:NAMESPACES_ASKED]])
            spaces = [space for _, space in mine]
            given |= mine
        elif any((resource, "") not in given for resource in IN_NAMESPACES):
            spaces = sorted(self.namespaces())[:NAMESPACES_ASKED]
        beside = [resource for resource in IN_NAMESPACES if (resource, "") not in given]
        given |= await self._which(user, [(resource, space) for space in spaces for resource in beside])
        return Rights(frozenset((resource.group, resource.plural, space) for resource, space in given), partial=partial)

    async def _which(self, user: Json, asked: list[tuple[Resource, str]]) -> set[tuple[Resource, str]]:
        answers = await asyncio.gather(*(self._may(user, resource, space) for resource, space in asked))
        return {one for one, may in zip(asked, answers, strict=True) if may}

    async def _may(self, user: Json, resource: Resource, namespace: str) -> bool:
        wanted = {"verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace}
        return is_allowed(await self._ask(ACCESS_REVIEWS, access_review(user, wanted)))

    async def _ask(self, resource: Resource, body: Json) -> Json:
        """Raises ApiError, also where no answer comes in time."""
        async with self._turns:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self.cluster.create(resource, body)
            except TimeoutError:
                raise ApiError(0, "Timeout", f"no answer within {PATIENCE:g} s") from None


class _OneAtATime:
    """Holds whoever asks the same, until the first has its answer. Locks that nobody holds are not kept."""

    def __init__(self, locks: dict[str, asyncio.Lock], key: str) -> None:
        self.locks, self.key = locks, key
        self.lock = locks.setdefault(key, asyncio.Lock())

    async def __aenter__(self) -> None:
        await self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()
        if not self.lock.locked() and self.locks.get(self.key) is self.lock:
            del self.locks[self.key]


def _silent(error: ApiError) -> bool:
    """Return whether this says nothing about whom it was asked of."""
    return error.code == 0 or error.code >= 500


def _key(user: Json) -> str:
    """Return what two tokens of one user have in common, and no other user's."""
    extra = sorted((str(name), sorted(map(str, values or ()))) for name, values in (user.get("extra") or {}).items()
                   if not str(name).startswith("authentication.kubernetes.io/"))  # fmt: skip
    said = (str(user["username"]), str(user.get("uid", "")), sorted(map(str, user.get("groups") or ())), extra)
    return hashlib.sha256(repr(said).encode()).hexdigest()
