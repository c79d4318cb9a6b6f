"""Cards that containers share by MPS: whom a card takes, and what a container is told (NVIDIA k8s-device-plugin
cmd/mps-control-daemon)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pumice.devices.nvidia_vgpu.node.matching import Work
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.node.claims import PreparedClaim
from pumice.node.mps import Bounds
from pumice.node.pods import Container, NodePod
from pumice.node.protocol import Mount
from pumice.ports.mps import folder_of
from pumice.wire import variables
from pumice.wire.nvidia_vgpu import PodDevice

SHARED_MEMORY: Final = "/dev/shm"
MpsClient = tuple[NodePod, Container, PodDevice]


def pipe_of(root: str, card: str) -> str:
    return f"{root}/{folder_of(card)}/pipe"


def user_of(pod: NodePod, container: Container) -> int | str:
    """As whom the container's programs run, or why that cannot be told. An image that names a user is not seen from here: without
    ``runAsUser`` a container counts as root's."""
    own, pods = container.security_context, pod.spec.security_context
    user = pods.run_as_user if own.run_as_user is None else own.run_as_user
    if pod.spec.host_users is False:
        return "it has user ids of its own (hostUsers: false)"
    if user is None and (pods.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root):
        return "it must not run as root, and runAsUser does not say as whom"
    return user or 0


def refusal(work: Work) -> str:
    """Return why this container cannot have what it was given; empty where it can."""
    container = work.container
    cards = {device.uuid for device in work.devices if device.slot < 0}
    if len(cards) > 1:
        return (f"container {container.name} was given {len(cards)} cards, and on this node, which shares cards by MPS, each has "
                "a control daemon of its own, of which a container reaches one: ask for one card a container")  # fmt: skip
    if not cards:
        return ""
    return _unfit(work.pod, container)


def _unfit(pod: NodePod, container: Container) -> str:
    if isinstance(user := user_of(pod, container), str):
        return f"an MPS server takes the programs of one user, and as whom container {container.name} runs is not known: {user}"
    if any(mount.mount_path.rstrip("/") == SHARED_MEMORY for mount in container.volume_mounts):
        return f"container {container.name} mounts {SHARED_MEMORY} of its own, by which a program speaks to its MPS server"
    return ""


def refused_by_claim(claim: PreparedClaim, pods: Iterable[NodePod]) -> str:
    """Return which container of a claim's pods its card's MPS server would not serve; empty where it serves all of them."""
    asked = {share.request.partition("/")[0] for share in claim.shares if share.mps is not None}
    first: dict[str, tuple[NodePod, Container]] = {}
    for pod in pods:
        for container in pod.containers if pod.metadata.namespace == claim.namespace and not pod.finished else ():
            named = {request for name, request in pod.claims_of(container) if name == claim.name}
            for request in sorted(asked if "" in named else asked & named):
                if why := _unfit(pod, container):
                    return why
                other, theirs = first.setdefault(request, (pod, container))
                if (mine := user_of(pod, container)) != (there := user_of(other, theirs)):
                    return (f"container {container.name} of pod {pod.key} runs as user {mine}, and container {theirs.name} of "
                            f"pod {other.key} as user {there}: an MPS server takes the programs of one user")  # fmt: skip
    return ""


def mixed(work: Work, holders: Iterable[MpsClient]) -> str:
    """Return the other user whose programs stand in the way; empty where nobody's do."""
    mine = user_of(work.pod, work.container)
    for pod, container, device in holders:
        theirs = user_of(pod, container)
        same = pod.uid == work.pod.uid and container.name == work.container.name
        if not same and theirs != mine and device.slot < 0 and any(device.uuid == own.uuid for own in work.devices):
            return (f"container {work.container.name} runs as user {mine}, and card {device.uuid} serves programs of user "
                    f"{theirs} (pod {pod.key}): an MPS server takes the programs of one user")  # fmt: skip
    return ""


def bounds(holders: Iterable[MpsClient], sharing: Sharing) -> dict[str, Bounds]:
    """By card, the widest of what is held there."""
    found: dict[str, Bounds] = {}
    for _, _, device in holders:
        if device.slot < 0:
            found[device.uuid] = found.get(device.uuid, Bounds()) | bounds_of(device, sharing)
    return found


def bounds_of(device: PodDevice, sharing: Sharing) -> Bounds:
    return Bounds(device.memory * sharing.factor, percent_of(device, sharing) or 100)


def reported(card: str, mib: int, percent: int, root: str) -> tuple[dict[str, str], Sequence[Mount]]:
    """The environment and mounts that bind a container's programs to the daemon of their card, which is the only one they see.
    ``percent``: 0 for no bound."""
    inside = f"/mps/{folder_of(card)}/pipe"
    env = {variables.MPS_PIPES: inside, variables.MPS_MEMORY: f"0={mib}M"}
    if percent:
        env[variables.MPS_THREADS] = str(percent)
    return env, (Mount(inside, pipe_of(root, card)), Mount(SHARED_MEMORY, f"{root}/shm"))


def percent_of(device: PodDevice, sharing: Sharing) -> int:
    return min(100, device.cores) if sharing.limit_cores else 0
