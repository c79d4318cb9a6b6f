"""The manifests for a cluster: kinds, policies, daemons and the rights of each daemon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pumice.ports.cluster import Json
from pumice.wire.document import safe_load_all
from pumice.wire.programs import Program, programs
from pumice.wire.sharding import NODE_SHARDS
from pumice.wire.without_effect import What, rows


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A right that a role gives. ``namespace``: "" for all of them, or for what lies in none."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        what = ".".join(filter(None, (self.resource, self.group)))
        return f"{self.verb} {what}{f' {self.name}' if self.name else ''}{f' in {self.namespace}' if self.namespace else ''}"


@dataclass(frozen=True, slots=True)
class Daemon:
    """As a manifest has it."""

    file: str
    program: Program
    namespace: str
    account: str
    rights: frozenset[Right]


def manifest(name: str) -> list[Json]:
    return [obj for obj in safe_load_all((files("pumice") / "manifests" / name).read_text("utf-8")) if obj]


@cache
def kinds() -> dict[str, Json]:
    """Our definitions by name, of kinds that a program of ours reads: Volcano's older versions lack the others, and nobody misses
    them."""
    folder = files("pumice") / "manifests" / "crds"
    optional = [row.resource for row in rows(What.KIND).values() if row.resource] + [NODE_SHARDS]  # labels do, too
    unread = {f"{resource.plural}.{resource.group}" for resource in optional}
    found = {obj["metadata"]["name"]: obj for path in folder.iterdir() for obj in manifest(f"crds/{path.name}")}
    return {name: obj for name, obj in found.items() if name not in unread}


@cache
def policies() -> dict[str, str]:
    """Names of the admission policies, and the file of each."""
    return {obj["metadata"]["name"]: name for name in _manifests() for obj in manifest(name)
            if obj["kind"].endswith("AdmissionPolicy")}  # fmt: skip


@cache
def daemons() -> tuple[Daemon, ...]:
    return tuple(daemon for name in _manifests() for daemon in _daemons(name))


DEFRAG = "volcano-defrag.yml"


@cache
def of_defrag() -> frozenset[Right]:
    """The rights that a scheduler needs beside its own where its configuration names the action defrag."""
    objects = manifest(DEFRAG)
    accounts = {subject["name"] for obj in objects for subject in obj.get("subjects", ())}
    return frozenset(right for account in accounts for right in _rights(objects, account))


def _manifests() -> list[str]:
    return sorted(path.name for path in (files("pumice") / "manifests").iterdir() if path.name.endswith(".yml"))


def _daemons(name: str) -> Iterator[Daemon]:
    objects = manifest(name)
    for obj in objects:
        if obj["kind"] in ("Deployment", "DaemonSet"):
            spec, space = obj["spec"]["template"]["spec"], obj["metadata"]["namespace"]
            for program, _ in programs(spec):
                account = spec["serviceAccountName"]
                yield Daemon(name, program, space, account, frozenset(_rights(objects, account)))


def _rights(objects: list[Json], account: str) -> Iterator[Right]:
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects if obj["kind"].endswith("Role")}
    for binding in objects:
        if binding["kind"].endswith("RoleBinding") and any(subject["name"] == account for subject in binding["subjects"]):
            role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
            for rule in role["rules"]:
                yield from _of_rule(rule, binding["metadata"].get("namespace", ""))


def _of_rule(rule: Any, namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", ("",)):
                    yield Right(verb, group, resource, name, namespace)
