"""Authentication: bearer tokens. What somebody may do is another question (``rights``)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from pumice.cluster.apiserver.http_types import ANONYMOUS, User
from pumice.ports.clock import Clock


class Tokens:
    """Static tokens (token -> user), and tokens of service accounts, which the server signs itself."""

    def __init__(self, clock: Clock, secret: bytes) -> None:
        self._clock, self._secret = clock, secret
        self._static: dict[str, User] = {}

    def add(self, tokens: Mapping[str, User]) -> None:
        self._static.update(tokens)

    def sign_with(self, secret: bytes) -> None:
        """The key of service account tokens; from a data directory, so that tokens outlive a restart."""
        self._secret = secret

    def user(self, authorization: str) -> User | None:
        """The user of an Authorization header: ANONYMOUS without one, None for a token that is not known or expired."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._static.get(token.strip()) or self._service_account(token.strip())

    def issue(self, namespace: str, name: str, uid: str, audiences: list[str], seconds: int) -> tuple[str, float]:
        """A token for a service account and when it expires (Unix seconds). A JWT signed with HMAC-SHA256."""
        expires = self._clock.now() + seconds
        claims = {
            "iss": "https://kubernetes.default.svc", "aud": audiences, "sub": f"system:serviceaccount:{namespace}:{name}",
            "iat": int(self._clock.now()), "exp": int(expires),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        }  # fmt: skip
        head = _pack({"alg": "HS256", "typ": "JWT"})
        body = f"{head}.{_pack(claims)}"
        return f"{body}.{self._sign(body)}", expires

    def _sign(self, body: str) -> str:
        return _b64(hmac.new(self._secret, body.encode(), hashlib.sha256).digest())

    def _service_account(self, token: str) -> User | None:
        body, _, signature = token.rpartition(".")
        if not body or not hmac.compare_digest(self._sign(body), signature):
            return None
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body.split(".")[1] + "=="))
        if claims["exp"] < self._clock.now():
            return None
        namespace = claims["kubernetes.io"]["namespace"]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(claims["sub"], claims["kubernetes.io"]["serviceaccount"]["uid"], groups)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _pack(value: object) -> str:
    return _b64(msgspec.json.encode(value))
