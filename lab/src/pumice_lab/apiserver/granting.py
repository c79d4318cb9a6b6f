"""Nobody grants more than he has: roles and bindings are held against the rights of whoever writes them.

Who has the verb ``escalate`` on a role may write any rules into it, who has ``bind`` on it may bind it.
Source: Kubernetes "Using RBAC Authorization", section "Privilege escalation prevention and bootstrapping".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pumice_lab.apiserver.errors import forbidden, not_found
from pumice_lab.apiserver.http_types import User
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.rights import GROUP, UNBOUNDED, Act, Rights, Rule, covers, has

Json = dict[str, Any]
COMBINATIONS: Final = 20_000
"""Of groups, resources, verbs and names that the rules of one request may spell out."""
_AGGREGATED: Final = "must have cluster-admin privileges to use the aggregationRule"


@dataclass(frozen=True, slots=True)
class Granter:
    """The user who writes, and the rules that hold for him."""

    rights: Rights
    user: User

    def check(self, kind: Kind, value: Json, old: Json | None) -> None:
        """Raises Forbidden for a role or a binding that gives more than the user has, NotFound for a binding of no role."""
        if kind.group != GROUP or not UNBOUNDED.isdisjoint(self.user.groups):
            return
        if old is not None and _without_collector(value) == _without_collector(old):
            return
        namespace, name = value["metadata"].get("namespace", ""), value["metadata"].get("name", "")
        if kind.kind in ("Role", "ClusterRole"):
            self._role(kind, value, namespace, name)
        else:
            self._binding(kind, value, namespace, name)

    def _role(self, kind: Kind, value: Json, namespace: str, name: str) -> None:
        if self._may("escalate", kind.plural, namespace, name):
            return
        if value.get("aggregationRule") and not covers_all(self.rights.rules(self.user, "")):
            raise forbidden(GROUP, kind.plural, name, _AGGREGATED)
        self._confirm(kind, value.get("rules") or (), namespace, name)

    def _binding(self, kind: Kind, value: Json, namespace: str, name: str) -> None:
        reference = value.get("roleRef") or {}
        role, local = reference.get("name", ""), reference.get("kind") == "Role"
        plural = "roles" if local else "clusterroles"
        if self._may("bind", plural, namespace, role):
            return
        rules = self.rights.rules_of_role(plural, namespace if local else "", role)
        if rules is None:
            raise not_found(GROUP, kind.plural, role)
        self._confirm(kind, rules, namespace, name)

    def _may(self, verb: str, plural: str, namespace: str, name: str) -> bool:
        return self.rights.allows(self.user, Act(verb, GROUP, plural, namespace, name))

    def _confirm(self, kind: Kind, rules: Sequence[Rule], namespace: str, name: str) -> None:
        said = f'user "{self.user.name}" (groups=[{" ".join(f"{chr(34)}{group}{chr(34)}" for group in self.user.groups)}])'
        if sum(map(_size, rules)) > COMBINATIONS:
            raise forbidden(GROUP, kind.plural, name, f"{said} is attempting to grant RBAC permissions that spell out more than "
                            f"{COMBINATIONS} combinations")  # fmt: skip
        missing = [text for rule in rules for text in _missing(rule, self.rights.rules(self.user, namespace))]
        if missing:
            reported = "\n".join(dict.fromkeys(missing))
            why = f"{said} is attempting to grant RBAC permissions not currently held:\n{reported}"
            raise forbidden(GROUP, kind.plural, name, why)


def _without_collector(value: Json) -> Json:
    """The object without what the garbage collector writes, who holds no rights of others."""
    theirs = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    return {**value, "metadata": {key: part for key, part in value["metadata"].items() if key not in theirs}}


def covers_all(rules: Sequence[Rule]) -> bool:
    """Return whether they allow everything, as cluster-admin does."""
    return any(covers(rule, Act("*", "*", "*")) for rule in rules) and any(covers(rule, Act("*", path="*")) for rule in rules)


def _size(rule: Rule) -> int:
    verbs = len(rule.get("verbs") or ())
    named = len(rule.get("apiGroups") or ()) * len(rule.get("resources") or ()) * max(1, len(rule.get("resourceNames") or ()))
    return verbs * (named + len(rule.get("nonResourceURLs") or ()))


def _missing(rule: Rule, held: Sequence[Rule]) -> Iterator[str]:
    """Return what of a rule is not held, a line for each resource or path with the verbs."""
    verbs = rule.get("verbs") or ()
    names = rule.get("resourceNames") or ()
    for group in rule.get("apiGroups") or ():
        there = [each for each in held if has(each, "apiGroups", group)]
        for resource in rule.get("resources") or ():
            acts = {verb: [Act(verb, group, resource, name=name) for name in names or ("",)] for verb in verbs}
            lacking = [verb for verb in verbs if not all(any(covers(each, act) for each in there) for act in acts[verb])]
            if lacking:
                only = f", ResourceNames:[{_quoted(names)}]" if names else ""
                yield f'{{APIGroups:["{group}"], Resources:["{resource}"]{only}, Verbs:[{_quoted(lacking)}]}}'
    for path in rule.get("nonResourceURLs") or ():
        lacking = [verb for verb in verbs if not any(covers(each, Act(verb, path=path)) for each in held)]
        if lacking:
            yield f'{{NonResourceURLs:["{path}"], Verbs:[{_quoted(lacking)}]}}'


def _quoted(words: Sequence[str]) -> str:
    return " ".join(f'"{word}"' for word in words)
