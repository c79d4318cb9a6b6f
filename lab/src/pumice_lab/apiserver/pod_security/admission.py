"""Pods are held to the standards that their namespace's labels name: refused (enforce), or warned of (warn).

Whoever makes pods of a template is warned only. What ``audit`` finds goes to Kubernetes' audit log, which is not kept here.
Source: k8s.io/pod-security-admission 0.36, admission/admission.go; no namespace, user or runtime class is exempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any, Final

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import FieldProblem, forbidden, invalid, invalid_value
from pumice_lab.apiserver.match_rules import Write
from pumice_lab.apiserver.pod_security import checks
from pumice_lab.apiserver.pod_security.checks import Check, Refusal, but_own_users, but_windows
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.write_options import WriteOptions

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
LATEST: Final = 36
"""The minor version of Kubernetes whose rules are the latest ones here."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A check of Pod Security. ``versions``: from which minor version of Kubernetes 1 on which check is made."""

    name: str
    level: str
    versions: tuple[tuple[int, Check], ...]
    instead: str = ""
    """The rule of baseline that it takes the place of."""

    def at(self, minor: int) -> Check | None:
        return next((check for since, check in reversed(self.versions) if since <= minor), None)


_RULES: Final = (
    _Rule("appArmorProfile", BASELINE, ((0, checks.app_armor),)),
    _Rule("capabilities_baseline", BASELINE, ((0, checks.default_capabilities),)),
    _Rule("hostNamespaces", BASELINE, ((0, checks.host_namespaces),)),
    _Rule("hostPathVolumes", BASELINE, ((0, checks.host_paths),)),
    _Rule("hostPorts", BASELINE, ((0, checks.host_ports),)),
    _Rule("hostProbesAndHostLifecycle", BASELINE, ((34, checks.host_probes),)),
    _Rule("privileged", BASELINE, ((0, checks.privileged),)),
    _Rule("procMount", BASELINE, ((0, checks.proc_mount), (35, but_own_users(checks.proc_mount)))),
    _Rule("seLinuxOptions", BASELINE, (
        (0, partial(checks.se_linux, checks.CONTAINER_TYPES)),
        (31, partial(checks.se_linux, (*checks.CONTAINER_TYPES, "container_engine_t"))))),
    _Rule("seccompProfile_baseline", BASELINE, ((0, checks.seccomp_notes), (19, checks.seccomp))),
    _Rule("sysctls", BASELINE, tuple((since, partial(checks.sysctls, names)) for since, names in (
        (0, checks.SYSCTLS), (27, checks.SYSCTLS_27), (29, checks.SYSCTLS_29), (32, checks.SYSCTLS_32)))),
    _Rule("windowsHostProcess", BASELINE, ((0, checks.windows_host_process),)),
    _Rule("allowPrivilegeEscalation", RESTRICTED, ((8, checks.no_escalation), (25, but_windows(checks.no_escalation)))),
    _Rule("capabilities_restricted", RESTRICTED, ((22, checks.all_dropped), (25, but_windows(checks.all_dropped))),
          "capabilities_baseline"),
    _Rule("procMount_restricted", RESTRICTED, ((35, checks.proc_mount),), "procMount"),
    _Rule("restrictedVolumes", RESTRICTED, ((0, checks.volume_types),), "hostPathVolumes"),
    _Rule("runAsNonRoot", RESTRICTED, ((0, checks.not_root), (35, but_own_users(checks.not_root)))),
    _Rule("runAsUser", RESTRICTED, ((23, checks.not_user_zero), (35, but_own_users(checks.not_user_zero)))),
    _Rule("seccompProfile_restricted", RESTRICTED, ((19, checks.seccomp_set), (25, but_windows(checks.seccomp_set))),
          "seccompProfile_baseline"),
)  # fmt: skip
"""Baseline before restricted, each in the order of the names: so refusals are told."""


@dataclass(frozen=True, slots=True)
class Standard:
    """A level at a version of Kubernetes; ``minor`` None is the latest."""

    level: str = PRIVILEGED
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor is None else f'v1.{self.minor}'}"

    def refusals(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Refusal]:
        """Return what a pod violates."""
        made = _checks(self.level, LATEST if self.minor is None else min(self.minor, LATEST))
        return [refused for check in made if (refused := check(metadata, spec)) is not None]


ANYTHING: Final = Standard()


@cache
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    return tuple(_made(level, minor))


def _made(level: str, minor: int) -> Iterator[Check]:
    if level == PRIVILEGED:
        return
    asked = [rule for rule in _RULES if rule.level == BASELINE or level == RESTRICTED]
    replaced = {rule.instead for rule in asked if rule.at(minor) is not None}
    for rule in asked:
        check = rule.at(minor)
        if check is not None and rule.name not in replaced:
            yield check


def reported(refusals: list[Refusal]) -> str:
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in refusals)


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
