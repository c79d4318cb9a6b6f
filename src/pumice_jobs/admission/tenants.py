"""Settings of shared cards that a tenant must not write, and amounts that nobody means: refused before the pod is stored.

The same rules as policies for the API server itself stand in ``manifests/tenant-limits.yml`` and ``tenant-void.yml``; both
are held to one table of cases (``kit/tenant_cases.py``). Sources: the order of variables and mounts of a container, where
the pod's own come after a plugin's; NVIDIA's runtime, which shows every card to who asks for
``all``, and Ascend's, which shows what a variable lists.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Any, Final

from pumice.wire import bursts, limits_page, names, variables
from pumice.wire.quantity import LARGEST_CARD, meant_mib, parse_quantity
from pumice_jobs.admission.review import CREATE, Answer, Json, Request, Settings, View, put

SHARE: Final = "volcano.sh/vgpu-"
NPU: Final = "huawei.com/"
NPU_CARD, OF_MEMORY, OF_CORES = f"{NPU}Ascend", "-memory", "-core"
DEVICES: Final = (SHARE, "volcano.sh/gpu-", "nvidia.com/")
"""Beginnings of the resources that give a container cards."""
AMOUNTS: Final = (names.VGPU_MEMORY, names.VGPU_MEMORY_PERCENTAGE, names.VGPU_CORES)
"""Resources that say how much is wanted of each card of ``vgpu-number``."""
SECTIONS: Final = ("containers", "initContainers", "ephemeralContainers")
LIMITING: Final = (
    variables.MEMORY_LIMIT, variables.SM_LIMIT, variables.SHARED_CACHE, variables.DISABLE_CONTROL, variables.CORE_POLICY,
    variables.OVERSUBSCRIBE, "PUMICE_VGPU_", "CUDA_MPS_", variables.ASCEND_VNPU_SPECS, variables.ASCEND_RUNTIME_OPTIONS,
    variables.NPU_MEM_QUOTA, variables.NPU_PRIORITY, variables.NPU_GLOBAL_SHM_PATH, variables.NPU_LOCAL_SHM_PATH,
)  # fmt: skip
VISIBLE: Final = (variables.NVIDIA_VISIBLE_DEVICES, variables.ASCEND_VISIBLE_DEVICES)
SEEING: Final = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")
ADDING: Final = (
    variables.NVIDIA_IMEX_CHANNELS, variables.NVIDIA_NVSWITCH, variables.NVIDIA_GDS, variables.NVIDIA_MOFED,
    variables.NVIDIA_GDRCOPY,
)  # fmt: skip
"""By which NVIDIA's runtime adds devices to those that a container sees."""
NOTHING: Final = ("", "void", "none")
OURS: Final = (
    posixpath.dirname(limits_page.PATH), "/tmp/vgpu", "/tmp/vgpulock", "/etc/ld.so.preload", "/mps", "/hami-vnpu-core",
    "/hami-vnpu-shmem", "/hami-shared-region",
)  # fmt: skip
"""Where the plugin mounts what holds the limits."""
CARD_MOUNTS: Final = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")
HOST: Final = (
    "/usr/local/vgpu", "/tmp/vgpu", "/tmp/vgpulock", "/run/pumice", "/var/run/pumice", "/var/lib/kubelet", "/dev", "/proc",
    "/sys", "/run/containerd", "/var/run/containerd", "/run/crio", "/var/run/crio", "/run/docker.sock", "/var/run/docker.sock",
    "/run/k3s", "/var/run/k3s", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/rancher",
    "/etc/containerd", "/etc/crio", "/etc/docker", "/etc/nvidia-container-runtime", "/etc/cdi", "/run/cdi",
    "/var/run/cdi", "/run/nvidia", "/var/run/nvidia", "/etc/kubernetes", "/usr/local/hami-vnpu-core",
    "/usr/local/hami-shared-region",
)  # fmt: skip
POWERS: Final = (
    "ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "SYS_RAWIO", "MKNOD", "DAC_READ_SEARCH", "BPF", "PERFMON",
)  # fmt: skip

RUN_THE_NODE: Final = ("gpu-operator", "kube-system", "mindx-dl", "nvidia-device-plugin")
"""Namespaces of device plugins, operators and the makers' components."""

LIFTS: Final = (
    "a pod that shares a card must not set the variables of its limits (CUDA_DEVICE_*, CUDA_DISABLE_CONTROL, "
    "CUDA_OVERSUBSCRIBE, GPU_CORE_UTILIZATION_POLICY, PUMICE_VGPU_*, CUDA_MPS_*, NPU_*, ASCEND_VNPU_SPECS, "
    "ASCEND_RUNTIME_OPTIONS): the device plugin sets them"
)
SEES: Final = (
    "NVIDIA_VISIBLE_DEVICES and ASCEND_VISIBLE_DEVICES may only say void or none: which cards a container sees follows from what "
    "it asks for"
)
ADDS: Final = (
    "a pod that shares a card must not ask NVIDIA's runtime for more devices (NVIDIA_IMEX_CHANNELS, NVIDIA_NVSWITCH, NVIDIA_GDS, "
    "NVIDIA_MOFED, NVIDIA_GDRCOPY): the device plugin sets them"
)
COVERS: Final = (
    "nothing may be mounted over what holds the limits: /usr/local/vgpu, /tmp/vgpu, /tmp/vgpulock, /etc/ld.so.preload, "
    "/mps, /hami-vnpu-core, /hami-vnpu-shmem, /hami-shared-region"
)
NAMES_CARDS: Final = "nothing may be mounted at /var/run/nvidia-container-devices: NVIDIA's runtime takes what is there for cards"
REACHES: Final = (
    "hostPath must not reach what the node keeps of shared cards and of containers (/usr/local/vgpu, /var/lib/kubelet, /run/cdi, "
    "/run/nvidia, /var/lib/containerd, /dev, ...)"
)
POWERFUL: Final = (
    "a pod that shares a card must not be privileged, see the node's processes or shared memory (hostPID, hostIPC), or have ALL, "
    "SYS_ADMIN, SYS_PTRACE, SYS_MODULE, SYS_RAWIO, MKNOD, DAC_READ_SEARCH, BPF or PERFMON"
)
NAMES_NODE: Final = (
    "a pod that asks for cards must not name its node: a scheduler places it; a kubelet passes over what its node does not have, "
    "and starts it"
)
NO_CARD: Final = "asks for no card; add volcano.sh/vgpu-number: 1"

NO_BURST: Final = f"{names.BURST_MEMORY} and {names.BURST_CORES} are for pods that ask for {names.VGPU_MEMORY}; claims know none"


def validate(request: Request, view: View, settings: Settings) -> Answer:
    found = refusals(request.object)
    if request.operation == CREATE:
        found += [text for text in (_left_to_a_scheduler(request.object), _of_its_queues(request, view)) if text]
    return Answer("; ".join(found))


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    """Containers that are given no card see none, whatever their image says: the pod's variables come after the image's."""
    patch: list[Json] = []
    spec, before = request.object.get("spec") or {}, {c.get("name") for c in _containers(request.old.get("spec") or {})}
    for section in SECTIONS:
        for number, container in enumerate(spec.get(section) or ()):
            said = [entry.get("name") for entry in container.get("env") or ()]
            if _has_cards(container) or variables.NVIDIA_VISIBLE_DEVICES in said or container.get("name") in before:
                continue
            void = {"name": variables.NVIDIA_VISIBLE_DEVICES, "value": "void"}
            put(patch, f"/spec/{section}/{number}/env", [*(container.get("env") or ()), void])
    return Answer(patch=patch)


def refusals(pod: Json) -> list[str]:
    """Every reason, each once, in the order of the rules."""
    spec = pod.get("spec") or {}
    found = [message for holds, message in RULES if not holds(spec)]
    for container in _containers(spec):
        found += [f"container {container.get('name')}: {text}" for text in _nonsense(container)]
    found += _useless_bursts((pod.get("metadata") or {}).get("annotations") or {}, spec)
    return list(dict.fromkeys(found))


def _useless_bursts(notes: Json, spec: Json) -> list[str]:
    """Only shares by the resources burst; what a cluster's defaults come to is not known here."""
    if not bursts.is_asked(notes):
        return []
    sharing = [c for c in _containers(spec) if names.VGPU_NUMBER in _limits(c) or names.VGPU_MEMORY in _limits(c)]
    found = [text for _, text in bursts.misspelt(notes)]
    for container in sharing:
        memory, cores = (_number(_limits(container).get(name, -1)) for name in (names.VGPU_MEMORY, names.VGPU_CORES))
        found += [f"container {container.get('name')}: {text}" for _, text in bursts.pointless(notes, memory, cores)]
    return found if sharing else [NO_BURST]


def _containers(spec: Json) -> list[Json]:
    return [c for part in SECTIONS for c in spec.get(part) or ()]


def _limits(container: Json) -> dict[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def _has_cards(container: Json) -> bool:
    """Return whether a plugin is asked for cards: it is not for an amount of 0, nor do memory and cores bring one."""
    return any(
        key.startswith(DEVICES) and key not in AMOUNTS and _number(amount) > 0 for key, amount in _limits(container).items()
    )


def _shares(spec: Json) -> bool:
    """By amounts, or by a claim: of which driver's devices that is, a pod does not say."""
    return any(
        (container.get("resources") or {}).get("claims") or any(key.startswith((SHARE, NPU)) for key in _limits(container))
        for container in _containers(spec)
    )


def _env(spec: Json) -> Iterator[Json]:
    for container in _containers(spec):
        yield from container.get("env") or ()


def _keeps_limits(spec: Json) -> bool:
    return not _shares(spec) or not any(str(e.get("name")).startswith(LIMITING) for e in _env(spec))


def _sees_its_own(spec: Json) -> bool:
    def fine(entry: Json) -> bool:
        if entry.get("name") in VISIBLE:
            return "valueFrom" not in entry and (entry.get("value") or "") in NOTHING
        return entry.get("name") not in SEEING

    return all(fine(entry) for entry in _env(spec))


def _mounted(spec: Json) -> list[str]:
    return [str(mount.get("mountPath")) for container in _containers(spec) for mount in container.get("volumeMounts") or ()]


def _clean(path: str) -> str:
    """As a runtime has it, but for ``..``: where that would lead depends on links."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _climbs(path: str) -> bool:
    return ".." in path.split("/")


def _within(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)


def _covers_nothing(spec: Json) -> bool:
    return not _shares(spec) or not any(_climbs(path) or _within(_clean(path), OURS) for path in _mounted(spec))


def _names_no_cards(spec: Json) -> bool:
    return not any(
        _within(_clean(path), CARD_MOUNTS) or (_climbs(path) and "nvidia-container-devices" in path) for path in _mounted(spec)
    )


def _reaches_nothing(spec: Json) -> bool:
    """A directory above one of the node's reaches it, too."""
    paths = [str((volume.get("hostPath") or {}).get("path")) for volume in spec.get("volumes") or () if volume.get("hostPath")]
    return not any(
        _climbs(path) or _within(_clean(path), HOST) or any(_within(root, (_clean(path),)) for root in HOST) for path in paths
    )


def _adds_nothing(spec: Json) -> bool:
    return not _shares(spec) or not any(entry.get("name") in ADDING for entry in _env(spec))


def _left_to_a_scheduler(pod: Json) -> str:
    """Once it is bound, its node stands there for everybody."""
    spec = pod.get("spec") or {}
    return NAMES_NODE if spec.get("nodeName") and any(_has_cards(container) for container in _containers(spec)) else ""


def _of_its_queues(request: Request, view: View) -> str:
    """Where a namespace names the queues that are its own, any other but the default one is refused."""
    said = (request.object.get("metadata") or {}).get("annotations") or {}
    queue = said.get(names.QUEUE_NAME) or names.DEFAULT_QUEUE
    if queue == names.DEFAULT_QUEUE:
        return ""
    meta = (view.namespace(request.namespace) or {}).get("metadata") or {}
    own = (meta.get("annotations") or {}).get(names.NAMESPACE_QUEUES)
    if not own or queue in [name.strip() for name in own.split(",")]:
        return ""
    return f"queue {queue} is none of this namespace's, which its annotation {names.NAMESPACE_QUEUES} names: {own}"


def _is_modest(spec: Json) -> bool:
    def modest(container: Json) -> bool:
        context = container.get("securityContext") or {}
        # A runtime reads them in either case.
        added = {str(power).upper().removeprefix("CAP_") for power in (context.get("capabilities") or {}).get("add") or ()}
        return not context.get("privileged") and not added & set(POWERS)

    apart = not spec.get("hostPID") and not spec.get("hostIPC")
    return not _shares(spec) or (apart and all(modest(container) for container in _containers(spec)))


RULES: Final[tuple[tuple[Callable[[Json], bool], str], ...]] = (
    (_keeps_limits, LIFTS),
    (_sees_its_own, SEES),
    (_adds_nothing, ADDS),
    (_covers_nothing, COVERS),
    (_names_no_cards, NAMES_CARDS),
    (_reaches_nothing, REACHES),
    (_is_modest, POWERFUL),
)


def _nonsense(container: Json) -> Iterator[str]:
    limits = _limits(container)
    amounts = {name: _number(limits[name]) for name in limits if name.startswith(SHARE)}
    memory = amounts.get(names.VGPU_MEMORY, 0)
    if memory > LARGEST_CARD:
        mib, _ = meant_mib(str(memory))
        yield f"volcano.sh/vgpu-memory counts MiB, and {memory} is more than any card has; write {mib}"
    for name in (names.VGPU_CORES, names.VGPU_MEMORY_PERCENTAGE):
        if amounts.get(name, 0) > 100:
            yield f"{name} is in per cent of one card; write at most 100"
    number = amounts.pop(names.VGPU_NUMBER, None)
    if (number is None and amounts) or (number == 0 and any(amounts.values())):
        yield f"{' and '.join(sorted(amounts))} alone {NO_CARD}"
    yield from _nonsense_of_npus(limits)


def _nonsense_of_npus(limits: dict[str, Any]) -> Iterator[str]:
    """Each type of NPU has a resource of its own, and what is asked of it stands beside it with an ending."""
    for name in sorted(limits):
        card, ending, amount = name[: name.rfind("-")], name[name.rfind("-") :], _number(limits[name])
        if not card.startswith(NPU_CARD) or ending not in (OF_MEMORY, OF_CORES):
            continue
        if ending == OF_MEMORY and amount > LARGEST_CARD:
            yield f"{name} counts MB, and {amount} is more than any card has; write {meant_mib(str(amount))[0]}"
        if ending == OF_CORES and amount > 100:
            yield f"{name} is in per cent of one card; write at most 100"
        if card not in limits:
            yield f"{name} alone asks for no card; add {card}: 1"


def _number(value: Any) -> int:
    try:
        return int(parse_quantity(str(value)))
    except ValueError:
        return 0
