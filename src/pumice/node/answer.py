"""The answer to an Allocate call, whatever the brand: env, mounts and device nodes of one container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.node.mps.supervisor import Bounds
from pumice.wire import cdi


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
