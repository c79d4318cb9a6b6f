"""Authentication: bearer tokens. What somebody may do is another question (``rights``)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from pumice.ports.clock import Clock
from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.http_types import ANONYMOUS, Request, User
from pumice_lab.apiserver.rights import Act, Rights

AUDIENCE = "https://kubernetes.default.svc"
BOUND = ("pod", "secret")  # what a token may live as long as, beside its account
TOLD = ("pod", "node")  # of what a token is bound to, as the user's extra attributes (ServiceAccountTokenPodNodeInfo)
Alive = Callable[[str, str, str, str], bool]
"""True if an object exists: resource, namespace, name, uid."""


class Tokens:
    """Static tokens (token -> user), and tokens of service accounts, which the server signs itself."""

    def __init__(self, clock: Clock, secret: bytes, alive: Alive) -> None:
        self._clock, self._secret, self._alive = clock, secret, alive
        self._static: dict[str, User] = {}

    def add(self, tokens: Mapping[str, User]) -> None:
        self._static.update(tokens)

    def sign_with(self, secret: bytes) -> None:
        """The key of service account tokens; from a data directory, so that tokens outlive a restart."""
        self._secret = secret

    def user(self, authorization: str, audiences: Sequence[str] = (AUDIENCE,)) -> User | None:
        """The user of an Authorization header: ANONYMOUS without one, None for a token that is not known, expired, meant
        for somebody else than ``audiences``, or of an account or pod that is gone."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        known = self._static.get(token.strip()) if AUDIENCE in audiences else None
        return known or self._service_account(token.strip(), audiences)

    def issue(self, namespace: str, name: str, uid: str, audiences: list[str], seconds: int,
              bound: dict[str, dict[str, str]] | None = None) -> tuple[str, float]:
        """A token for a service account and when it expires (Unix seconds). A JWT signed with HMAC-SHA256."""
        expires = self._clock.now() + seconds
        claims = {
            "iss": AUDIENCE, "aud": audiences, "sub": f"system:serviceaccount:{namespace}:{name}",
            "iat": int(self._clock.now()), "exp": int(expires),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **(bound or {})},
        }  # fmt: skip
        head = _pack({"alg": "HS256", "typ": "JWT"})
        body = f"{head}.{_pack(claims)}"
        return f"{body}.{self._sign(body)}", expires

    def _sign(self, body: str) -> str:
        return _b64(hmac.new(self._secret, body.encode("utf-8", "replace"), hashlib.sha256).digest())

    def _service_account(self, token: str, audiences: Sequence[str]) -> User | None:
        body, _, signature = token.rpartition(".")
        if not body or not hmac.compare_digest(self._sign(body).encode(), signature.encode("utf-8", "replace")):
            return None
        claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(body.split(".")[1] + "=="))
        kubernetes = claims["kubernetes.io"]
        namespace, account = kubernetes["namespace"], kubernetes["serviceaccount"]
        if claims["exp"] < self._clock.now() or set(audiences).isdisjoint(claims["aud"]):
            return None
        bound = [("serviceaccounts", account), *((f"{kind}s", kubernetes[kind]) for kind in BOUND if kind in kubernetes)]
        if not all(self._alive(plural, namespace, its["name"], its["uid"]) for plural, its in bound):
            return None
        extra = {f"authentication.kubernetes.io/{kind}-{key}": (its[key],) for kind in TOLD if (its := kubernetes.get(kind))
                 for key in ("name", "uid") if its.get(key)}  # fmt: skip
        return User(claims["sub"], account["uid"], groups_of(namespace), extra)


def groups_of(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _pack(value: object) -> str:
    return _b64(msgspec.json.encode(value))


# -- Acting as somebody else, by right only (Kubernetes "Authenticating", "User impersonation") ----------------------

_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"


def acting_user(request: Request, rights: Rights) -> User:
    """Return the user that the request impersonates. Raises Forbidden when its user may not, BadRequest when it names nobody.

    Values of a header that came more than once are lines."""
    asked = {key: value.split("\n") for key, value in request.headers.items() if key.startswith("impersonate-")}
    if not asked:
        return request.user
    name = asked.get("impersonate-user", [""])[0]
    if not name:
        raise bad_request("requested impersonation without impersonating a user: the header Impersonate-User is missing")
    for act in _acts(name, asked):
        rights.require(request.user, act)
    groups = tuple(asked.get("impersonate-group", ()))
    namespace, colon, _ = name.removeprefix(_ACCOUNT).partition(":")
    if name.startswith(_ACCOUNT) and colon and not groups:
        groups = groups_of(namespace)
    everybody = ANONYMOUS.groups[0] if name == ANONYMOUS.name else "system:authenticated"
    groups = groups if everybody in groups else (*groups, everybody)
    extra = {unquote(key.removeprefix(_EXTRA)): tuple(values) for key, values in asked.items() if key.startswith(_EXTRA)}
    return User(name, asked.get("impersonate-uid", [""])[0], groups, extra)


def _acts(name: str, asked: dict[str, list[str]]) -> Iterator[Act]:
    """The right for every single thing that is asked for."""
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    if name.startswith(_ACCOUNT) and colon:
        yield Act("impersonate", resource="serviceaccounts", namespace=namespace, name=account)
    else:
        yield Act("impersonate", resource="users", name=name)
    for group in asked.get("impersonate-group", ()):
        yield Act("impersonate", resource="groups", name=group)
    for uid in asked.get("impersonate-uid", ()):
        yield Act("impersonate", "authentication.k8s.io", "uids", name=uid)
    for key, values in asked.items():
        if key.startswith(_EXTRA):
            for value in values:
                yield Act("impersonate", "authentication.k8s.io", f"userextras/{unquote(key.removeprefix(_EXTRA))}", name=value)
