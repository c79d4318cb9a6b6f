"""The findings of a doctor in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pumice.node.findings import ConfigText, Finding, State
from pumice.ports.cluster import Json
from pumice.wire.programs import Maker, Program, Role


@dataclass(frozen=True, slots=True)
class Workload:
    """A known program, and the Deployment, DaemonSet or StatefulSet that runs it."""

    kind: str
    namespace: str
    name: str
    program: Program
    image: str = ""
    account: str = "default"
    runtime_class: str = ""
    wanted: int = 0
    ready: int = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.program} ({self.kind} {self.key}, {self.image})"


@dataclass(frozen=True, slots=True)
class PluginPod:
    """A pod of a device plugin. ``why``: what the kubelet says of it where it is not ready."""

    key: str
    node: str
    program: Program
    image: str
    ready: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Claims and what they are given from. ``served`` False: the API server has none. ``pods``: those with claims that have no
    node; of a cluster whose cards are published in two ways all pods with claims."""

    served: bool = False
    classes: Sequence[Json] = ()
    slices: Sequence[Json] = ()
    claims: Sequence[Json] = ()
    templates: Sequence[Json] = ()
    pods: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Everything that was found. ``unread``: why a kind could not be listed. ``unbacked``: why nobody answers for a Service
    that a webhook names. ``denied``: what an account of ours may not do; ``unreviewed``: why that could not be asked."""

    kubernetes: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, Json] = field(default_factory=dict)
    wanted: Mapping[str, Json] = field(default_factory=dict)
    policies: frozenset[str] = frozenset()
    workloads: Sequence[Workload] = ()
    plugins: Sequence[PluginPod] = ()
    nodes: Sequence[Json] = ()
    runtime_classes: frozenset[str] = frozenset()
    webhooks: Sequence[Json] = ()
    unbacked: Mapping[str, str] = field(default_factory=dict)
    scheduler_conf: ConfigText | None = None
    last_good: bool = False
    device_configs: Sequence[ConfigText] = ()
    denied: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unreviewed: str = ""
    claims: ClaimFacts = field(default_factory=ClaimFacts)

    @property
    def in_one_process(self) -> bool:
        """True in a cluster of ``pumice up``, whose daemons are tasks of its own process and no pods. With ``--bare`` it
        has none, and no configuration of theirs."""
        reported = self.scheduler_conf is not None and self.scheduler_conf.text is not None
        return reported and self.kubernetes.endswith("+pumice") and not any(
            found.program.role is Role.SCHEDULER for found in self.workloads)  # fmt: skip

    def of(self, role: Role, maker: Maker | None = None) -> list[Workload]:
        """The workloads of that role that are to run."""
        return [found for found in self.workloads
                if found.program.role is role and found.wanted and maker in (None, found.program.maker)]  # fmt: skip


def unread(facts: ClusterFacts, *plurals: str) -> Iterator[Finding]:
    """The findings that are unknown because the objects may not be listed."""
    for plural in plurals:
        if why := facts.unread.get(plural):
            yield Finding(State.UNKNOWN, f"{plural} cannot be read: {why}", f"ask as somebody who may list {plural}")
