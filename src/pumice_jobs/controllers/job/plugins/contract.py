"""The contract of a Job's plugin, and what plugins share: the pods' names as hosts, Go's flags, environment and ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from pumice.ports.cluster import Resource
from pumice.wire.batch import Job, Task
from pumice_jobs.controllers.job.defaults import mapping, read
from pumice_jobs.controllers.job.effects import Ensure, Follow

Json = dict[str, Any]
Flags = Mapping[str, str]
TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a task: its Job, its task and its index there."""

    job: Job
    task: Task
    index: int


class Plugin(Protocol):
    """A plugin of Jobs. ``flags`` are all of the plugin's, as the Job sets them and else as ``defaults`` says."""

    defaults: ClassVar[Flags]

    def objects(self, job: Job, flags: Flags) -> Sequence[Ensure]:
        """Return the objects that have to be there before the pods are, and go with them."""
        ...

    def following(self, job: Job, flags: Flags) -> Sequence[Follow]:
        """Return the changes that follow the number of pods."""
        ...

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        """Change a pod that is about to be made."""
        ...

    def problem(self, job: Job, flags: Flags) -> str:
        """Return why it cannot serve the Job."""
        ...


class PodPlugin:
    """A plugin that makes nothing beside the pods."""

    defaults: ClassVar[Flags] = {}

    def objects(self, job: Job, flags: Flags) -> Sequence[Ensure]:
        return ()

    def following(self, job: Job, flags: Flags) -> Sequence[Follow]:
        return ()

    def on_pod_create(self, pod: Json, replica: Replica, flags: Flags) -> None:
        """Nothing to change."""

    def problem(self, job: Job, flags: Flags) -> str:
        return ""


def parsed(words: Sequence[str], defaults: Flags) -> dict[str, str]:
    """Go's flags: ``--name=value``, ``-name value`` in one word or two, a bare ``--name`` for true; unknown ones are left out."""
    found, rest = dict(defaults), list(words)
    while rest:
        word = rest.pop(0).strip()
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and " " in name:
            name, equals, value = name.partition(" ")
        if not word.startswith("-") or name not in defaults:
            continue
        if not equals:
            takes_next = defaults[name] not in ("true", "false") and rest and not rest[0].startswith("-")
            value = rest.pop(0) if takes_next else "true"
        found[name] = value.strip()
    return found


def is_set(flags: Flags, name: str) -> bool:
    return flags[name] in TRUE


def port_of(flags: Flags, name: str, default: int) -> int:
    """A port; one that is none is the default."""
    text = flags[name]
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else default


# -- hosts ------------------------------------------------------------------------------------------------------------


def pod_name(job: Job, task: Task, index: int) -> str:
    return f"{job.metadata.name}-{task.name}-{index}"


def host(job: Job, task: Task, index: int) -> str:
    """The name under which the pod is found from the job's other pods, by the Service."""
    hostname, subdomain = _named_in(bytes(task.template))
    return f"{hostname or pod_name(job, task, index)}.{subdomain or job.metadata.name}"


def hosts(job: Job, task: Task) -> list[str]:
    """Those of all its pods; a template that fixes the host name has one."""
    fixed = bool(_named_in(bytes(task.template))[0])
    return [host(job, task, index) for index in range(min(task.replicas, 1) if fixed else task.replicas)]


def hosts_size(job: Job, task: Task) -> int:
    """The length of those names with a character after each, at most, without making them."""
    fixed = bool(_named_in(bytes(task.template))[0])
    return (len(host(job, task, task.replicas)) + 1) * (min(task.replicas, 1) if fixed else task.replicas)


@lru_cache(maxsize=4096)
def _named_in(written: bytes) -> tuple[str, str]:
    """Host name and subdomain that a template says."""
    spec = mapping(read(written).get("spec"))
    return str(spec.get("hostname") or ""), str(spec.get("subdomain") or "")


def task_named(job: Job, name: str) -> Task | None:
    return next((task for task in job.spec.tasks if task.name == name), None)


# -- pods -------------------------------------------------------------------------------------------------------------


def containers(pod: Json) -> list[Json]:
    return list(pod["spec"].get("containers") or ())


def all_containers(pod: Json) -> list[Json]:
    """Init containers, too."""
    return [*(pod["spec"].get("initContainers") or ()), *containers(pod)]


def add_env(to: Iterable[Json], *variables: Json) -> None:
    for container in to:
        container["env"] = [*(container.get("env") or ()), *map(dict, variables)]


def variable(name: str, value: object) -> Json:
    return {"name": name, "value": str(value)}


def add_port(to: Iterable[Json], name: str, number: int) -> None:
    """Unless it is open."""
    for container in to:
        there = container.get("ports") or []
        if all(port.get("containerPort") != number for port in there):
            container["ports"] = [*there, {"name": name, "containerPort": number}]


def add_volume(pod: Json, volume: Json, mount: Json, to: Iterable[Json]) -> None:
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]
    for container in to:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), dict(mount)]


def beside(job: Job, resource: Resource, name: str, **content: Any) -> Json:
    """An object of the Job's namespace; the shell says whose it is."""
    kind = {"configmaps": "ConfigMap", "services": "Service", "secrets": "Secret", "networkpolicies": "NetworkPolicy"}
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return {"apiVersion": version, "kind": kind[resource.plural],
            "metadata": {"name": name, "namespace": job.metadata.namespace}, **content}  # fmt: skip


def roles(job: Job, flags: Flags, *names: str) -> Iterator[tuple[str, Task]]:
    """The tasks that play these roles, by role; flags name the tasks."""
    for name in names:
        task = task_named(job, flags[name])
        if task is not None:
            yield name, task
