"""The Pod Security Standards as a table: which rule belongs to which level, and from which version on it says what.

Source: k8s.io/pod-security-admission 0.36, policy/registry.go; the page "Pod Security Standards" tells the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from pumice_lab.apiserver.pod_security import checks
from pumice_lab.apiserver.pod_security.checks import Check, Refusal, but_own_users, but_windows

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
LATEST: Final = 36
"""The minor version of Kubernetes whose rules are the latest ones here."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """``versions``: from which minor version of Kubernetes 1 on which check is made."""

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
