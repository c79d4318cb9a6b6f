"""The file of the CDI device that is one container's share: what its answer would have held, had the kubelet said whose it is."""

from __future__ import annotations

from pumice.node.answer import Answer
from pumice.wire import cdi

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
