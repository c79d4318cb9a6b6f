"""The slice of a pod that the node side reads. Own-node pods are few, so more fields are kept than elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from pumice.wire.kubernetes import DEVICES_REFUSED, MIRROR
from pumice.wire.objects import ClaimStatus, Meta, PodCondition, Resources
from pumice.wire.quantity import whole

AllocatedIds = Mapping[tuple[str, str], frozenset[str]]
"""Containers, as (pod UID, name), for which the kubelet has written devices down, and which."""


class EnvVar(Struct, rename="camel", gc=False, frozen=True):
    name: str = ""
    value: str = ""


class SecurityContext(Struct, rename="camel", gc=False, frozen=True):
    run_as_user: int | None = None
    run_as_non_root: bool | None = None


class VolumeMount(Struct, rename="camel", gc=False, frozen=True):
    mount_path: str = ""


class ClaimUse(Struct, gc=False, frozen=True):
    """A claim by the pod's own name for it, and which of its requests; empty: all of them."""

    name: str = ""
    request: str = ""


class ContainerResources(Resources, rename="camel", gc=False):
    claims: tuple[ClaimUse, ...] = ()


class Container(Struct, rename="camel", gc=False):
    name: str = ""
    resources: ContainerResources = msgspec.field(default_factory=ContainerResources)
    env: list[EnvVar] = []
    restart_policy: str = ""
    security_context: SecurityContext = SecurityContext()
    volume_mounts: list[VolumeMount] = []

    def requested(self, resource: str) -> int:
        """Return how much of an extended resource the limits ask for; 0 when nothing or nonsense."""
        value = self.resources.limits.get(resource)
        try:
            return max(0, whole(value) or 0) if value is not None else 0
        except ValueError:
            return 0

    def wants_cards(self, number: str, memory: str) -> bool:
        """Return whether the scheduler gives it a part of the assignment: a count above 0, or memory without any count."""
        return self.requested(number) > 0 if number in self.resources.limits else self.requested(memory) > 0

    def env_value(self, name: str) -> str | None:
        return next((var.value for var in self.env if var.name == name), None)


class PodClaim(Struct, rename="camel", gc=False, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class RequestMapping(Struct, rename="camel", gc=False, frozen=True):
    container_name: str = ""
    request_name: str = ""


class ExtendedClaim(Struct, rename="camel", gc=False, frozen=True):
    """The claim that the scheduler made for resources that a class stands for."""

    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] = []


class Spec(Struct, rename="camel", gc=False):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    security_context: SecurityContext = SecurityContext()
    host_users: bool | None = None
    priority: int | None = None
    resource_claims: list[PodClaim] = []


class ContainerStatus(Struct, rename={"container_id": "containerID"}, gc=False):
    name: str = ""
    state: dict[str, Any] = {}
    container_id: str = ""

    @property
    def running(self) -> bool:
        return "running" in self.state


class Status(Struct, rename="camel", gc=False):
    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    conditions: list[PodCondition] = []
    resource_claim_statuses: list[ClaimStatus] = []
    extended_resource_claim_status: ExtendedClaim | None = None


class NodePod(Struct, rename="camel", gc=False):
    """A pod as the node side sees it.

    ``arrival`` counts the pods as this node's watch brought them; those that a list brought have one number, for its order says
    nothing of theirs. The kubelet follows the same watch and admits in the same order (ADR 120).
    """

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)
    arrival: int = 0
    seen: int = 0
    """Its version when it was first seen: mostly that of its Binding, for nobody writes on a pod before the kubelet does."""

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations

    @property
    def priority(self) -> int:
        """Of its PriorityClass, as the API server writes it."""
        return self.spec.priority or 0

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def admitted(self) -> bool:
        """Return whether the kubelet has admitted it: it then tells a start time (ADR 120)."""
        return bool(self.status.start_time)

    def awaits(self, resource: str) -> bool:
        """Return whether the kubelet has still to ask for devices of it."""
        return not (self.admitted or self.finished) and any(container.requested(resource) for container in self.containers)

    @property
    def turned_away(self) -> bool:
        """Return whether the kubelet has refused it because of its devices: it asks for none of them again."""
        return self.status.reason == DEVICES_REFUSED

    @property
    def bound(self) -> bool:
        """Return whether it came to its node by a Binding, which only schedulers may make: the API server then writes this
        condition. Whoever makes a pod may name its node, and whatever annotations, in the pod itself."""
        return any(c.type == "PodScheduled" and c.status == "True" for c in self.status.conditions)

    @property
    def rejected(self) -> bool:
        """Return whether the kubelet did not admit it: it then writes a start time and takes all conditions away. A kubelet
        that has just started says no more than that at first."""
        return self.admitted and not self.bound

    @property
    def mirror(self) -> bool:
        """Return whether it is the mirror pod of a static pod, or claims to be: the kubelet asks nothing for it."""
        return MIRROR in self.annotations

    @property
    def containers(self) -> tuple[Container, ...]:
        """All of them, in the kubelet's order."""
        return (*self.spec.init_containers, *self.spec.containers)

    @property
    def container_statuses(self) -> tuple[ContainerStatus, ...]:
        """Their statuses, in the same order."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    def claims_of(self, container: Container) -> list[tuple[str, str]]:
        """The ResourceClaims that a container uses, by name, each with one request or, empty, all of them."""
        made = {one.name: one.resource_claim_name for one in self.status.resource_claim_statuses}
        names = {one.name: one.resource_claim_name or made.get(one.name) for one in self.spec.resource_claims}
        found = [(name, use.request) for use in container.resources.claims if (name := names.get(use.name))]
        if (extended := self.status.extended_resource_claim_status) is not None:
            found += [(extended.resource_claim_name, one.request_name) for one in extended.request_mappings
                      if one.container_name == container.name]  # fmt: skip
        return found

    def started(self, container: str) -> bool:
        """Return whether that container was ever begun."""
        return any(status.container_id for status in self.container_statuses if status.name == container)

    def running(self, container: str) -> bool:
        """Return whether that container is known to run now."""
        return any(status.running for status in self.status.container_statuses if status.name == container)
