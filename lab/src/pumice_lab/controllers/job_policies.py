"""The podFailurePolicy (KEP-3329), podReplacementPolicy (KEP-3939) and successPolicy (KEP-3998) of a Job, applied to its pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pumice_lab.controllers.actions import View
from pumice_lab.controllers.job_indexes import Indexes


@dataclass(frozen=True, slots=True)
class Match:
    """The first rule that a failed pod meets."""

    action: str
    message: str


def failure_rule(spec: View, pod: View) -> Match | None:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    for place, rule in enumerate(rules):
        why = _failed_container(rule["onExitCodes"], pod) if rule.get("onExitCodes") else _condition(rule, pod)
        if why:
            return Match(rule["action"], f"{why} matching {rule['action']} rule at index {place}")
    return None


def counts(spec: View, pod: View) -> bool:
    """Return True if a failed pod counts towards backoffLimit."""
    rule = failure_rule(spec, pod)
    return rule is None or rule.action != "Ignore"


def replaces_failed_only(spec: View) -> bool:
    """A pod that is ending is replaced when it has ended, not before."""
    return spec.get("podReplacementPolicy") == "Failed" or bool(spec.get("podFailurePolicy"))


def success_rule(spec: View, done: Indexes) -> str:
    """Return the rule of successPolicy that is met; empty while nothing is, and while no index has succeeded."""
    for place, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or () if done.runs else ()):
        count = rule.get("succeededCount")
        named = rule.get("succeededIndexes")
        if named is None:
            met = count is not None and done.total >= count
        else:
            wanted = Indexes.parse(named, int(spec["completions"]))
            have = done.shared(wanted)
            met = bool(wanted.runs) and (have == wanted.total or (count is not None and have >= count))
        if met:
            return f"Matched rules at index {place}"
    return ""


def _failed_container(wanted: View, pod: View) -> str:
    for status, code in _exits(pod):
        if wanted.get("containerName") in (None, status["name"]) and (
            (code in wanted["values"]) == (wanted["operator"] == "In")
        ):
            meta = pod["metadata"]
            return f"Container {status['name']} for pod {meta['namespace']}/{meta['name']} failed with exit code {code}"
    return ""


def _exits(pod: View) -> Iterator[tuple[View, int]]:
    """Containers that ended with another code than 0; those of initialization after the others."""
    status = pod.get("status") or {}
    for entry in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        ended = (entry.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode"):
            yield entry, ended["exitCode"]


def _condition(rule: View, pod: View) -> str:
    wanted = {(entry["type"], entry.get("status", "True")) for entry in rule.get("onPodConditions") or ()}
    for entry in (pod.get("status") or {}).get("conditions") or ():
        if (entry.get("type"), entry.get("status")) in wanted:
            return f"Pod {pod['metadata']['namespace']}/{pod['metadata']['name']} has condition {entry['type']}"
    return ""
