"""The contract between the plugin server (``apps/node/plugin.py``) and the allocator of one device type.

The server owns the world: sockets, the kubelet's registration, the watches of node and pods, the health of cards; when to
ask again, and when to give up. An allocator owns what a device type means: its resources and keys on the wire, which pod a call
is for, and what the container is given. Everything here is a synchronous function of values, and one call is made at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from pumice.effects.vocabulary import Event, InstallFile, MakeDirectory, NodeEffect, PatchPod
from pumice.node.device_list import Unit
from pumice.node.mps import Bounds
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place, Slice
from pumice.wire import cdi
from pumice.wire.objects import Node


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceNode:
    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that the kubelet hands to the container. ``directories``, then ``files``, must exist before the answer is given.
    ``cdi``: names of CDI devices, which ``annotations``, for the runtime, may hold as well. ``own``: host folders of this
    container alone, in which some of the mounts lie. ``kept``: variables whose word counts for nothing beside what lies there."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    cdi: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    directories: tuple[MakeDirectory, ...] = ()
    files: tuple[InstallFile, ...] = ()
    own: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """By card, what its MPS server must hold clients to before the answer is given."""


_BOUND = ("nosuid", "nodev", "bind")


def share_file(number: str, answer: Answer) -> bytes:
    """Environment, mounts and device nodes. A runtime puts them in place after the pod's own, so that they win."""
    edits = cdi.Edits(
        tuple(f"{name}={value}" for name, value in answer.env.items()),
        tuple(cdi.DeviceNode(node.container_path, node.host_path, node.permissions) for node in answer.nodes),
        tuple(cdi.Mount(mount.host_path, mount.container_path, ("ro" if mount.read_only else "rw", *_BOUND))
              for mount in answer.mounts),
    )  # fmt: skip
    kind = f"{cdi.OWN_VENDOR}/{cdi.SHARE}"
    return cdi.render(cdi.Specification(cdi.VERSION, kind, (cdi.Device(number, edits),)))


@dataclass(frozen=True, slots=True)
class Serve:
    """Hand out ``answer`` once ``patch`` is written (None: there is nothing to write). ``finished``: the node's lock can go."""

    pod: NodePod
    container: Container
    answer: Answer
    patch: PatchPod | None = None
    notes: tuple[NodeEffect, ...] = ()
    finished: bool = True
    summary: str = ""
    """A line on what was handed out, for the log."""
    ids: frozenset[str] = frozenset()
    work: Any = None
    """The allocator's own, to be seen again in ``committed``."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The kubelet asks again for a pod that was answered: the same answer."""

    answer: Answer
    pod: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """No devices, and why; ``effects`` mark the pod. The text ends up in the pod's status."""

    reason: str
    effects: tuple[NodeEffect, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else's booking stands where this pod's cards are. It may be gone already: the watch may be behind the
    scheduler's. Who has waited for that refuses the pod. ``patience``: seconds after which it is known to be gone, where that is
    longer than the usual wait."""

    pod: NodePod
    reason: str
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """The pod's slices have to be created first: who has them made, or finds them, gives them to ``then``. ``ids``: the kubelet's
    names of what it asks for, where they tell later whom it asked for."""

    pod: NodePod
    places: tuple[Place, ...]
    then: Callable[[Mapping[Place, Slice]], Serve]
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Outdated:
    """The pod was placed by a configuration that the allocator does not know: it may have been changed since it was read."""

    pod: NodePod
    reason: str


Decision = Serve | Repeat | Refuse | Conflict | Partition | Outdated


class Allocator(Protocol):
    """One device type on one node: subclass it, for most of it has a default.

    The server performs a decision in this order: directories, the pod's patch, ``committed``, the answer to the kubelet, the
    lock. A process that dies in between has written nothing of it, or all of it for that pod alone.
    """

    resource: str
    """The extended resource whose Allocate calls are answered."""
    counted: tuple[str, ...] = ()
    """Resources beside it whose devices are only counted: whoever asks for them is given nothing more."""
    given: tuple[str, ...] = ()
    """Further resources, whose devices are handed out by their ids alone, whatever pod a call is for."""
    lock: str = ""
    """The annotation of the node lock that schedulers take for this device type, and that goes once a pod is dealt with."""
    record_annotation: str = ""
    """The annotation of the node under which what was handed out is published; empty: it is not."""
    event: str = "AllocationFailed"
    """The reason of the Event that tells of a refused pod."""
    failed: Mapping[str, str | None] = MappingProxyType({})
    """Annotations that mark a refused pod, so that no later call is taken for its own."""
    prefers: bool = False
    """True if the kubelet shall ask ``prefer`` which devices it is to hand out."""
    without: Mapping[str, str] = MappingProxyType({})
    """The environment of a container whose share is not made yet: it sees no device, whatever its image says."""

    links: str = ""
    """The host folder in which answers by guess have links to containers' own folders; empty: no answer names such a folder."""

    @abstractmethod
    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str]) -> None:
        """These are the node's cards from now on, and why some of them take no pods, by UUID."""

    @abstractmethod
    def units(self, resource: str) -> list[Unit]:
        """The devices of a resource, as the kubelet shall see them."""

    @abstractmethod
    def allocate(
        self, pods: Sequence[NodePod], ids: Sequence[str], allocated: AllocatedIds | None = None, number: str = ""
    ) -> Decision | None:
        """Decide about one call, by a guess at whose it is; None when no pod waits for so many devices (yet).

        ``allocated``: the containers for which the kubelet has written devices down; None where unknown. ``number``: the
        seed, as for ``owned``, so that the answer of another container under the same number differs by its share alone.
        """

    @abstractmethod
    def owned(self, pods: Sequence[NodePod], pod: NodePod, container: str, allocated: AllocatedIds, seed: str) -> Decision:
        """Decide for one container of ``pod``, whose call is known to have been for it. Asked again it decides the same, and
        writes nothing that stands there already. ``allocated``: the kubelet's record, with this container. ``seed``: what
        is random in the answer follows from it."""

    @abstractmethod
    def committed(self, served: Serve) -> None:
        """The pod's annotations are written: the work is done."""

    def unserved(self, served: Serve) -> None:
        """The kubelet has written that answer down for somebody else, who was gone when it asked for him: the pod waits still."""
        return

    @abstractmethod
    def kubelet_restarted(self) -> None:
        """A kubelet has registered us anew: what was answered before may be asked again."""

    @abstractmethod
    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        """Forget pods that are gone; how to mark those that ended while they were being served."""

    def socket(self, resource: str) -> str:
        """The name of a resource's socket, which no other plugin of the node may use."""
        return resource.replace("/", "-") + ".sock"

    def shorter(self, resource: str, units: Sequence[Unit]) -> str:
        """Return what to change where a list is longer than the kubelet takes."""
        return "it needs fewer devices"

    def closed(self) -> Mapping[str, str]:
        """Return why cards take no pods, by UUID, as far as Events of the node shall tell it."""
        return {}

    def missing(self, node: Node) -> list[NodeEffect]:
        """The writes that make the node object say what schedulers read of it. The plugin is ready once there are none."""
        return []

    def leaving(self, node: Node) -> list[NodeEffect]:
        """The writes that take from the node object what was said of the cards: the plugin goes for good."""
        return []

    def upkeep(self, node: Node, monotonic: float, stamp: str) -> list[NodeEffect]:
        """Further writes that are due on the node object now. ``stamp`` is the time as text."""
        return []

    def published(self) -> str:
        """Return what was handed out, to stand under ``record_annotation``."""
        return ""

    def resume(self, published: str, pods: Sequence[NodePod], allocated: AllocatedIds | None) -> None:
        """Take over what the process before had handed out."""
        return

    def directories(self, pods: Sequence[NodePod]) -> list[MakeDirectory]:
        """Return the directories that answers of the kubelet may still mount, and a boot may have taken away."""
        return []

    def prefer(
        self,
        pods: Sequence[NodePod],
        available: Sequence[str],
        must: Sequence[str],
        size: int,
        allocated: AllocatedIds | None = None,
    ) -> list[str]:
        """The answer to GetPreferredAllocation for one container."""
        return []

    def give(self, resource: str, ids: Sequence[str]) -> Answer | str:
        """The answer to a call for devices of one of ``given``, or why there is none."""
        return f"{resource} is not handed out here"

    def daemons(self, pods: Sequence[NodePod]) -> Mapping[str, Bounds]:
        """The cards that need an MPS control daemon, by UUID, and what each shall hold its clients to."""
        return {}

    def nobody(self, count: int) -> str:
        """The refusal of a call that no pod waits for."""
        return f"no pod of this node waits for {count} of {self.resource}"

    def refuse(self, pod: NodePod, reason: str) -> Refuse:
        """Give one pod up and say why."""
        marked = (PatchPod.of(pod.metadata, self.failed),) if self.failed else ()
        return Refuse(f"pod {pod.key}: {reason}", (*marked, Event.on_pod(pod.metadata, "Warning", self.event, reason)))
