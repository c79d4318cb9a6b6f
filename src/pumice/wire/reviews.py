"""Questions to the API server: whose a token is, and who may do what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pumice.ports.cluster import Json, Resource
from pumice.wire.kubernetes import AUTHENTICATION, AUTHORIZATION

TOKEN_REVIEWS: Final = Resource(AUTHENTICATION, "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS: Final = Resource(AUTHORIZATION, "v1", "subjectaccessreviews", namespaced=False)
OWN_ACCESS_REVIEWS: Final = Resource(AUTHORIZATION, "v1", "selfsubjectaccessreviews", namespaced=False)


def token_review(token: str) -> Json:
    return {"apiVersion": f"{AUTHENTICATION}/v1", "kind": "TokenReview", "spec": {"token": token}}


def user_of(answer: Mapping[str, Any]) -> Json | None:
    """Return the user of a reviewed token; None where the API server does not know it."""
    status = answer.get("status") or {}
    user = status.get("user")
    return user if status.get("authenticated") is True and isinstance(user, dict) and user.get("username") else None


def access_review(user: Mapping[str, Any], wanted: Mapping[str, str]) -> Json:
    """Ask whether the user may do what the attributes of a resource say."""
    spec = {"user": user["username"], "uid": user.get("uid", ""), "groups": user.get("groups") or [],
            "extra": user.get("extra") or {}, "resourceAttributes": dict(wanted)}  # fmt: skip
    return {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}


def own_access_review(wanted: Mapping[str, str]) -> Json:
    """Ask whether who asks may do it."""
    return {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": dict(wanted)}}


def is_allowed(answer: Mapping[str, Any]) -> bool:
    """Return whether a review of access allows it."""
    status = answer.get("status") or {}
    return status.get("allowed") is True and not status.get("denied")
