"""Pods are held to the standards that their namespace's labels name: refused (enforce), or warned of (warn).

Whoever makes pods of a template is warned only. What ``audit`` finds goes to Kubernetes' audit log, which is not kept here.
Source: k8s.io/pod-security-admission 0.36, admission/admission.go; no namespace, user or runtime class is exempt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.concerns import Write
from pumice_lab.apiserver.errors import FieldProblem, forbidden, invalid, invalid_value
from pumice_lab.apiserver.pod_security.standards import ANYTHING, LEVELS, PRIVILEGED, RESTRICTED, Standard, reported
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.write_options import WriteOptions

Json = dict[str, Any]
_LABEL: Final = "pod-security.kubernetes.io/"
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")
_TEMPLATES: Final = {
    **dict.fromkeys((("", "ReplicationController"), ("apps", "ReplicaSet"), ("apps", "Deployment"), ("apps", "StatefulSet"),
                     ("apps", "DaemonSet"), ("batch", "Job")), "spec.template"),
    ("", "PodTemplate"): "template", ("batch", "CronJob"): "spec.jobTemplate.spec.template",
}  # fmt: skip
_LOOKED_THROUGH: Final = 3000
"""Pods of a namespace whose standard becomes stricter."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The levels that the labels of a namespace set, and the errors in them."""

    enforce: Standard = ANYTHING
    warn: Standard = ANYTHING
    problems: tuple[FieldProblem, ...] = ()


def policy_of(labels: Mapping[str, str]) -> Policy:
    """A level of enforce that cannot be read counts as restricted, one of the others as privileged."""
    problems: list[FieldProblem] = []

    def read(mode: str) -> Standard:
        level, version = labels.get(_LABEL + mode, PRIVILEGED), labels.get(f"{_LABEL}{mode}-version", "latest")
        if level not in LEVELS:
            problems.append(_problem(mode, level, f"must be one of {', '.join(LEVELS)}"))
            level = RESTRICTED if mode == "enforce" else PRIVILEGED
        found = _VERSION.fullmatch(version)
        if found is None and version != "latest":
            problems.append(_problem(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
        return Standard(level, int(found[1]) if found else None)

    enforce, _, warn = read("enforce"), read("audit"), read("warn")
    if f"{_LABEL}warn" not in labels and labels.get(f"{_LABEL}enforce") in LEVELS and _stricter(enforce, warn):
        warn = replace(warn, level=enforce.level) if f"{_LABEL}warn-version" in labels else enforce
    return Policy(enforce, warn, tuple(problems))


def _problem(label: str, value: str, detail: str) -> FieldProblem:
    return invalid_value(f"metadata.labels[{_LABEL}{label}]", value, detail)


def _stricter(one: Standard, other: Standard) -> bool:
    return LEVELS.index(one.level) > LEVELS.index(other.level)


def check(backend: Backend, write: Write, options: WriteOptions) -> None:
    """Raises Forbidden for a pod that violates what its namespace enforces, Invalid for a namespace with a level of its own."""
    kind = write.kind.id
    if kind == ("", "Namespace") and not write.subresource:
        _namespace(backend, write, options)
    elif kind == ("", "Pod") and write.subresource in ("", "ephemeralcontainers", "resize"):
        if write.old is None or _significant(write.value, write.old):
            _judge(backend, write, options, write.value, enforced=True)
    elif kind in _TEMPLATES and not write.subresource and (template := at(write.value, _TEMPLATES[kind])):
        _judge(backend, write, options, template, enforced=False)


def _judge(backend: Backend, write: Write, options: WriteOptions, pod: Json, *, enforced: bool) -> None:
    metadata = write.value["metadata"]
    namespace = backend.read("v1/namespaces", "", metadata["namespace"])
    policy = policy_of((namespace or {"metadata": {}})["metadata"].get("labels") or {})
    of, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if enforced and (refused := policy.enforce.refusals(of, spec)):
        why = f'violates PodSecurity "{policy.enforce}": {reported(refused)}'
        raise forbidden("", "pods", metadata.get("name", ""), why)
    if refused := policy.warn.refusals(of, spec):
        options.warn(f'would violate PodSecurity "{policy.warn}": {reported(refused)}')


def _significant(pod: Json, old: Json) -> bool:
    """Return whether an update may change what the standards say: all else that they look at is fixed from the start."""
    spec, before = pod["spec"], old["spec"]
    for kind in ("containers", "initContainers"):
        now, then = spec.get(kind) or [], before.get(kind) or []
        if [each.get("image") for each in now] != [each.get("image") for each in then]:
            return True
    known = {each["name"]: each.get("image") for each in before.get("ephemeralContainers") or ()}
    return any(known.get(each["name"], "") != each.get("image") for each in spec.get("ephemeralContainers") or ())


def _namespace(backend: Backend, write: Write, options: WriteOptions) -> None:
    policy = policy_of(write.metadata.get("labels") or {})
    before = policy_of(write.old["metadata"].get("labels") or {}) if write.old else Policy()
    name = write.metadata.get("name", "")
    if policy.problems and policy.problems != before.problems:
        raise invalid("", "Namespace", name, policy.problems)
    new, old = policy.enforce, before.enforce
    if write.old is None or new == old or new.level == PRIVILEGED or (new.minor == old.minor and _stricter(old, new)):
        return
    found: dict[str, list[str]] = {}
    stored = backend.storage.objects("v1/pods", name)
    for each in islice(stored, _LOOKED_THROUGH):
        pod = each.value()
        if refused := new.refusals(pod["metadata"], pod["spec"]):
            found.setdefault(", ".join(reason for reason, _ in refused), []).append(each.name)
    if len(stored) > _LOOKED_THROUGH:
        options.warn(f"new PodSecurity enforce level only checked against the first {_LOOKED_THROUGH} of {len(stored)} "
                     "existing pods")
    if found:
        options.warn(f'existing pods in namespace "{name}" violate the new PodSecurity enforce level "{new}"')
    for text in sorted(_named(reasons, names) for reasons, names in found.items()):
        options.warn(text)


def _named(reasons: str, names: list[str]) -> str:
    more = len(names) - 1
    others = f" (and {more} other pod{'s' if more > 1 else ''})" if more else ""
    return f"{min(names)}{others}: {reasons}"
