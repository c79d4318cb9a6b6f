"""Authentication and authorization of pages: a page about pods answers those who may read them, as the API server would.

The bearer token is reviewed there, then the right of whom it belongs to; nothing is kept, so a withdrawn right counts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire.kubernetes import AUTHENTICATION, AUTHORIZATION

TOKEN_REVIEWS = Resource(AUTHENTICATION, "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS = Resource(AUTHORIZATION, "v1", "subjectaccessreviews", namespaced=False)
LONGEST_TOKEN = 16 * 1024


@dataclass(frozen=True, slots=True)
class Denied:
    """The HTTP status and why."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Asks the API server about each request."""

    cluster: Cluster

    async def may_get_pod(self, authorization: str, namespace: str, name: str) -> Denied | None:
        """None when the bearer of this Authorization header may get the pod."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            return Denied(401, "send a token of the cluster: Authorization: Bearer $(kubectl create token ACCOUNT)")
        try:
            user = await self._user(token)
            if user is None:
                return Denied(401, "the API server does not know this token")
            wanted = {"verb": "get", "group": "", "resource": "pods", "namespace": namespace, "name": name}
            if await self._allowed(user, wanted):
                return None
        except ApiError as error:
            return Denied(503, f"the API server reviews nobody now: {error}")
        return Denied(403, f"{user.get('username', '')} may not get pods in namespace {namespace}")

    async def _user(self, token: str) -> dict[str, Any] | None:
        body = {"apiVersion": f"{AUTHENTICATION}/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self.cluster.create(TOKEN_REVIEWS, body)).get("status") or {}
        user = status.get("user")
        return user if status.get("authenticated") is True and isinstance(user, dict) and user.get("username") else None

    async def _allowed(self, user: dict[str, Any], wanted: dict[str, str]) -> bool:
        spec = {"user": user["username"], "uid": user.get("uid", ""), "groups": user.get("groups") or [],
                "extra": user.get("extra") or {}, "resourceAttributes": wanted}  # fmt: skip
        body = {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self.cluster.create(ACCESS_REVIEWS, body)).get("status") or {}
        return status.get("allowed") is True and not status.get("denied")
