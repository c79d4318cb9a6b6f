"""Acting as somebody else, by right only (Kubernetes "Authenticating", "User impersonation")."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from pumice_lab.apiserver.auth import groups_of
from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.http_types import ANONYMOUS, Request, User
from pumice_lab.apiserver.rights import Act, Rights

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
