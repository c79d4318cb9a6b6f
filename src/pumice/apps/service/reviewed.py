"""Authentication and authorization of pages: a page about pods answers those who may read them, as the API server would.

The bearer token is reviewed there, then the right of whom it belongs to; nothing is kept, so a withdrawn right counts at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS, access_review, is_allowed, token_review, user_of

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
            user = user_of(await self.cluster.create(TOKEN_REVIEWS, token_review(token)))
            if user is None:
                return Denied(401, "the API server does not know this token")
            wanted = {"verb": "get", "group": "", "resource": "pods", "namespace": namespace, "name": name}
            if is_allowed(await self.cluster.create(ACCESS_REVIEWS, access_review(user, wanted))):
                return None
        except ApiError as error:
            return Denied(503, f"the API server reviews nobody now: {error}")
        return Denied(403, f"{user.get('username', '')} may not get pods in namespace {namespace}")
