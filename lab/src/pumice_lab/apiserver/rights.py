"""Authorisation: who may do what, by roles and their bindings (Kubernetes "Using RBAC Authorization").

Administrators and kubelets may do everything. Whoever writes roles and bindings is held to his own rights (``granting``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.http_types import Request, Target, User
from pumice_lab.apiserver.resource_store import StoreEvent
from pumice_lab.apiserver.storage import Storage

Rule = Mapping[str, Any]

GROUP = "rbac.authorization.k8s.io"
STORES = tuple(f"{GROUP}/{plural}" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"))
UNBOUNDED = frozenset(("system:masters", "system:nodes"))
EVERYTHING: Rule = {"apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"], "verbs": ["*"]}
_REMEMBERED = 1000
_BY_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_STREAMS = ("exec", "attach", "portforward")


@dataclass(frozen=True, slots=True)
class Act:
    """An attempt of a user: a verb on a resource (its subresource behind a slash), or on a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def act_of(request: Request, target: Target) -> Act:
    """Return the attempt that a request on a resource is. A list of one name counts as a question for that name."""
    name = target.name or _single_name(request)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    # A namespace lies in itself, so that a role in it may speak of it.
    namespace = target.namespace or (name if (target.group, target.plural) == ("", "namespaces") else "")
    return Act(_verb(request, target), target.group, resource, namespace, name)


def _verb(request: Request, target: Target) -> str:
    if target.subresource in _STREAMS:
        return "create"  # a WebSocket begins as a GET, and yet is no reading
    match request.method:
        case "GET" | "HEAD" if target.name:
            return "get"
        case "GET" | "HEAD":
            return "watch" if target.watch or request.flag("watch") else "list"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
    return _BY_METHOD.get(request.method, request.method.lower())


def _single_name(request: Request) -> str:
    for part in request.param("fieldSelector").split(","):
        key, equals, name = part.partition("=")
        if equals and key.strip() == "metadata.name":
            return name.lstrip("=").strip()
    return ""


class Rights:
    """Looks rules up as they are stored; what it found for a user stays true until a role or a binding changes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._found: dict[tuple[str, tuple[str, ...], str], tuple[Rule, ...]] = {}
        for store in STORES:
            storage.hooks[store] = self._forget

    def _forget(self, event: StoreEvent) -> None:
        self._found.clear()

    def allows(self, user: User, act: Act) -> bool:
        return any(covers(rule, act) for rule in self.rules(user, act.namespace))

    def require(self, user: User, act: Act) -> None:
        """Raises Forbidden, in the words of kube-apiserver."""
        if not self.allows(user, act):
            raise refusal(user, act)

    def rules(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Everything that the user may do in this namespace; without one, in the whole cluster."""
        if not UNBOUNDED.isdisjoint(user.groups):
            return (EVERYTHING,)
        key = (user.name, user.groups, namespace)
        if key not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = tuple(self._look_up(user, namespace))
        return self._found[key]

    def _look_up(self, user: User, namespace: str) -> Iterator[Rule]:
        for binding in self._objects("clusterrolebindings"):
            if _binds(binding, user, ""):
                yield from self._rules_of(binding, "")
        for binding in self._objects("rolebindings", namespace) if namespace else ():
            if _binds(binding, user, namespace):
                yield from self._rules_of(binding, namespace)

    def _objects(self, plural: str, namespace: str = "") -> Iterator[Mapping[str, Any]]:
        return (stored.value() for stored in self._storage.objects(f"{GROUP}/{plural}", namespace))

    def _rules_of(self, binding: Mapping[str, Any], namespace: str) -> Iterable[Rule]:
        reference = binding.get("roleRef") or {}
        local = reference.get("kind") == "Role"
        plural = "roles" if local else "clusterroles"
        return self.rules_of_role(plural, namespace if local else "", reference.get("name", "")) or ()

    def rules_of_role(self, plural: str, namespace: str, name: str) -> list[Rule] | None:
        """None where there is no such role."""
        role = self._storage.get(f"{GROUP}/{plural}", namespace, name)
        return (role.value().get("rules") or []) if role else None


def _binds(binding: Mapping[str, Any], user: User, namespace: str) -> bool:
    return any(_is(subject, user, namespace) for subject in binding.get("subjects") or ())


def _is(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    name = subject.get("name")  # one without binds nobody
    match subject.get("kind"):
        case "User":
            return bool(name == user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return False


def covers(rule: Rule, act: Act) -> bool:
    """Return whether a rule allows that; a star in the act asks for a star."""
    if not has(rule, "verbs", act.verb):
        return False
    if act.path:
        return any(url == act.path or (url.endswith("*") and act.path.startswith(url[:-1]))
                   for url in rule.get("nonResourceURLs") or ())  # fmt: skip
    _, slash, subresource = act.resource.partition("/")
    resources = rule.get("resources") or ()
    named = "*" in resources or act.resource in resources or (slash and f"*/{subresource}" in resources)
    only = rule.get("resourceNames")
    return bool(named) and has(rule, "apiGroups", act.group) and (not only or act.name in only)


def has(rule: Rule, field: str, word: str) -> bool:
    """Return whether the rule's field names the word, or everything by a star."""
    words = rule.get(field) or ()
    return "*" in words or word in words


def refusal(user: User, act: Act) -> ApiFailure:
    """403, in the words of kube-apiserver."""
    if act.path:
        return ApiFailure(403, "Forbidden", f'forbidden: User "{user.name}" cannot {act.verb} path "{act.path}"')
    plural = act.resource.partition("/")[0]
    qualified = f"{plural}.{act.group}" if act.group else plural
    what = f'{qualified} "{act.name}"' if act.name else qualified
    where = f'in the namespace "{act.namespace}"' if act.namespace else "at the cluster scope"
    details = {**({"name": act.name} if act.name else {}), **({"group": act.group} if act.group else {}), "kind": plural}
    return ApiFailure(403, "Forbidden", f'{what} is forbidden: User "{user.name}" cannot {act.verb} resource "{act.resource}" in '
                      f'API group "{act.group}" {where}', details)  # fmt: skip
