"""Allowed and refused settings of a tenant's pod, as a table: the pure rules and the API server's own policies are held to it."""

from __future__ import annotations

from typing import Any, NamedTuple

SHARE = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
NPU = {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 4096}
LIFTS, SEES, ADDS, COVERS, NAMES_CARDS, REACHES, POWERFUL, NAMES_NODE = (
    "must not set the variables of its limits", "may only say void or none", "must not ask NVIDIA's runtime for more devices",
    "nothing may be mounted over", "nothing may be mounted at /var/run/nvidia", "hostPath must not reach",
    "must not be privileged", "must not name its node",
)  # fmt: skip


VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


class Case(NamedTuple):
    """``refused``: words of the refusal; empty: it is stored."""

    title: str
    spec: dict[str, Any]
    refused: str = ""


def share(limits: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """The spec of a pod with one container that shares a card."""
    return spec({"resources": {"limits": SHARE if limits is None else limits}, **container})


def claiming(**container: Any) -> dict[str, Any]:
    """The spec of a pod with one container that has a claim."""
    return spec({"resources": {"claims": [{"name": "g"}]}, **container}, resourceClaims=[
        {"name": "g", "resourceClaimName": "mine"}])  # fmt: skip


def plain(**container: Any) -> dict[str, Any]:
    return spec(container)


def spec(container: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "x", **container}], **more}


def env(name: str, value: str = "0") -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


def mounted(path: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": path}]}


def with_volume(pod: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {**pod, "volumes": [{"name": "v", **(source or {"emptyDir": {}})}]}


def host(path: str, **container: Any) -> dict[str, Any]:
    return with_volume(plain(**container), hostPath={"path": path})


def beside(container: dict[str, Any], section: str = "containers") -> dict[str, Any]:
    """A second container beside one that shares a card."""
    pod = share()
    return {**pod, section: [*(pod["containers"] if section == "containers" else ()), {"name": "d", "image": "x", **container}]}


def asking(limits: dict[str, Any]) -> dict[str, Any]:
    return {"resources": {"limits": limits}}


def asking_pod(limits: dict[str, Any]) -> dict[str, Any]:
    return spec(asking(limits))


GIVEN_CARDS = ("volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "nvidia.com/gpu", "nvidia.com/mig-7g")
NPU_CASES = (
    Case("an ordinary slice", share(NPU)),
    Case("an ordinary NPU by its cores", share({"huawei.com/npu-core": 8})),
    Case("another slice than was granted", share(NPU, **env("ASCEND_VNPU_SPECS", "vir04")), LIFTS),
    Case("the chip that a slice lies on", share(NPU, **env("ASCEND_RUNTIME_OPTIONS", "")), LIFTS),
    Case("the chip where it is cut on demand", share({"huawei.com/npu-core": 2}, **env("ASCEND_RUNTIME_OPTIONS")), LIFTS),
    Case("more of a soft share", share(NPU, **env("NPU_MEM_QUOTA", "999999")), LIFTS),
    Case("more compute of it", share(NPU, **env("NPU_PRIORITY", "100")), LIFTS),
    Case("counters of its own", share(NPU, **env("NPU_GLOBAL_SHM_PATH", "/tmp/mine")), LIFTS),
    Case("a limit of its own", share(NPU, **env("NPU_LOCAL_SHM_PATH", "/tmp/mine")), LIFTS),
    Case("all NPUs, beside its slice", share(NPU, **env("ASCEND_VISIBLE_DEVICES", "0-7")), SEES),
    Case("all NPUs, without one", plain(**env("ASCEND_VISIBLE_DEVICES", "0-7")), SEES),
    Case("NPUs by a variable from elsewhere", plain(env=[{"name": "ASCEND_VISIBLE_DEVICES", "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.name"}}}]), SEES),
    Case("no NPU", plain(**env("ASCEND_VISIBLE_DEVICES", "void"))),
    Case("a preload of its own beside an NPU", with_volume(share(NPU, **mounted("/etc/ld.so.preload"))), COVERS),
    Case("another library of NPUs", with_volume(share(NPU, **mounted("/hami-vnpu-core/libvnpu.so"))), COVERS),
    Case("another limit of its own", with_volume(share(NPU, **mounted("/hami-vnpu-shmem"))), COVERS),
    Case("another register of all", with_volume(share(NPU, **mounted("/hami-shared-region/x"))), COVERS),
    Case("the library of NPUs on the node", host("/usr/local/hami-vnpu-core"), REACHES),
    Case("the counters of NPUs on the node", host("/usr/local/hami-shared-region"), REACHES),
    Case("privileged beside an NPU", share(NPU, securityContext={"privileged": True}), POWERFUL),
    Case("bytes where MB of an NPU are meant", share({**NPU, "huawei.com/Ascend310P-memory": "4Gi"}),
         "huawei.com/Ascend310P-memory counts MB, and 4294967296 is more than any card has; write 4096"),
    Case("more compute than an NPU has", share({**NPU, "huawei.com/Ascend310P-core": 101}), "-core is in per cent of one card"),
    Case("memory of no NPU", share({"huawei.com/Ascend910B3-memory": 16384}), "add huawei.com/Ascend910B3: 1"),
    Case("compute of no NPU", share({"huawei.com/Ascend910B3-core": 50}), "add huawei.com/Ascend910B3: 1"),
    Case("memory of another NPU", share({**NPU, "huawei.com/Ascend910B4-1-memory": 16384}), "add huawei.com/Ascend910B4-1: 1"),
)

CASES = (
    Case("an ordinary share", share()),
    Case("an ordinary share by claim", claiming()),
    Case("the switch that leaves the library out, by claim", claiming(**env("CUDA_DISABLE_CONTROL", "true")), LIFTS),
    Case("a preload of its own, by claim", with_volume(claiming(**mounted("/etc/ld.so.preload"))), COVERS),
    Case("privileged, by claim", claiming(securityContext={"privileged": True}), POWERFUL),
    Case("more devices of the runtime's, by claim", claiming(**env("NVIDIA_IMEX_CHANNELS", "0")), ADDS),
    Case("an ordinary pod", plain(env=[{"name": "A", "value": "b"}])),
    # the library's variables
    Case("its memory limit", share(**env("CUDA_DEVICE_MEMORY_LIMIT_0")), LIFTS),
    Case("the memory limit of all cards", share(**env("CUDA_DEVICE_MEMORY_LIMIT", "80g")), LIFTS),
    Case("its core limit", share(**env("CUDA_DEVICE_SM_LIMIT", "100")), LIFTS),
    Case("another region", share(**env("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/mine")), LIFTS),
    Case("the switch that leaves the library out", share(**env("CUDA_DISABLE_CONTROL", "true")), LIFTS),
    Case("no core limit", share(**env("GPU_CORE_UTILIZATION_POLICY", "disable")), LIFTS),
    Case("memory beyond the card", share(**env("CUDA_OVERSUBSCRIBE", "true")), LIFTS),
    Case("other cards than its own unlimited", share(**env("PUMICE_VGPU_CARDS", "none")), LIFTS),
    Case("no daemon of MPS", share(**env("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")), LIFTS),
    Case("more memory of MPS", share(**env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=80G")), LIFTS),
    Case("cheap contexts", share(**env("PUMICE_VGPU_CONTEXT_BYTES", "1")), LIFTS),
    Case("a limit from a field", share(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.name"}}}]), LIFTS),
    Case("its limit in an init container", beside(env("CUDA_DEVICE_MEMORY_LIMIT_0"), "initContainers"), LIFTS),
    Case("the limit in a container beside it", beside(env("CUDA_DEVICE_MEMORY_LIMIT_0")), LIFTS),
    Case("a limit where no card is shared", plain(**env("CUDA_DEVICE_MEMORY_LIMIT_0"))),
    Case("how much is logged", share(**env("LIBCUDA_LOG_LEVEL", "4"))),
    Case("its own order of cards", share(**env("CUDA_VISIBLE_DEVICES"))),
    # which cards are seen
    Case("every card, beside its share", share(**env("NVIDIA_VISIBLE_DEVICES", "all")), SEES),
    Case("every card, without a share", plain(**env("NVIDIA_VISIBLE_DEVICES", "all")), SEES),
    Case("a card by its number", plain(**env("NVIDIA_VISIBLE_DEVICES", "0")), SEES),
    Case("cards by a variable from elsewhere", plain(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {
        "configMapKeyRef": {"name": "m", "key": "k"}}}]), SEES),
    Case("every card in an init container", beside(env("NVIDIA_VISIBLE_DEVICES", "all"), "initContainers"), SEES),
    Case("slices to be cut", plain(**env("NVIDIA_MIG_CONFIG_DEVICES", "all")), SEES),
    Case("slices to be looked at", plain(**env("NVIDIA_MIG_MONITOR_DEVICES", "all")), SEES),
    Case("no card", plain(**env("NVIDIA_VISIBLE_DEVICES", "void"))),
    Case("none by another word", plain(**env("NVIDIA_VISIBLE_DEVICES", "none"))),
    # more devices, by NVIDIA's runtime
    *(Case(title, share(**env(name, value)), ADDS) for title, name, value in (
        ("channels to other machines' memory", "NVIDIA_IMEX_CHANNELS", "0"),
        ("the switches between cards", "NVIDIA_NVSWITCH", "enabled"),
        ("storage past the processor", "NVIDIA_GDS", "enabled"), ("the machine's network adapters", "NVIDIA_MOFED", "enabled"),
        ("cards' memory by the processor", "NVIDIA_GDRCOPY", "enabled"))),
    Case("more devices by a variable from elsewhere", share(env=[{"name": "NVIDIA_GDS", "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.name"}}}]), ADDS),
    Case("more devices in a container beside it", beside(env("NVIDIA_MOFED", "enabled")), ADDS),
    Case("a whole card of NVIDIA's with its storage", share({"nvidia.com/gpu": 1}, **env("NVIDIA_GDS", "enabled"))),
    # mounts
    Case("a preload of its own", with_volume(share(**mounted("/etc/ld.so.preload"))), COVERS),
    Case("another library", with_volume(share(**mounted("/usr/local/vgpu/libvgpu.so"))), COVERS),
    Case("another limits page", with_volume(share(**mounted("/usr/local/vgpu/limits"))), COVERS),
    Case("a folder over all of it", with_volume(share(**mounted("/usr/local/vgpu"))), COVERS),
    Case("a region of its own", with_volume(share(**mounted("/tmp/vgpu"))), COVERS),
    Case("pipes of a daemon of its own", with_volume(share(**mounted("/mps/GPU-0a0a0a0a/pipe"))), COVERS),
    Case("the locks", with_volume(share(**mounted("/tmp/vgpulock/"))), COVERS),
    Case("a path written oddly", with_volume(share(**mounted("//etc/./ld.so.preload"))), COVERS),
    Case("a path without a beginning", with_volume(share(**mounted("etc/ld.so.preload"))), COVERS),
    Case("a path that climbs", with_volume(share(**mounted("/data/../etc/ld.so.preload"))), COVERS),
    Case("a mount in a container beside it", with_volume(beside(mounted("/tmp/vgpu"))), COVERS),
    Case("all of /tmp", with_volume(share(**mounted("/tmp")))),
    Case("a folder of a like name", with_volume(share(**mounted("/data/vgpu")))),
    Case("a folder beside it", with_volume(share(**mounted("/tmp/vgpu-cache")))),
    Case("that path where no card is shared", with_volume(plain(**mounted("/usr/local/vgpu")))),
    Case("cards by a mount", with_volume(plain(**mounted("/var/run/nvidia-container-devices/all"))), NAMES_CARDS),
    Case("cards by a mount, shorter", with_volume(plain(**mounted("/run/nvidia-container-devices/0"))), NAMES_CARDS),
    # the node's files
    Case("the regions of the node", host("/usr/local/vgpu/vgpu/containers"), REACHES),
    Case("the limits pages of the node", host("/usr/local/vgpu/vgpu/limits/"), REACHES),
    Case("what is above them", host("/usr"), REACHES),
    Case("the whole node", host("/"), REACHES),
    Case("the node's locks", host("/tmp/vgpulock"), REACHES),
    Case("the node's /tmp", host("/tmp"), REACHES),
    Case("the kubelet's sockets", host("/var/lib/kubelet/device-plugins"), REACHES),
    Case("the card itself", host("/dev/nvidia0"), REACHES),
    Case("the node's processes as files", host("/proc"), REACHES),
    Case("the runtime's socket", host("/run/containerd/containerd.sock"), REACHES),
    Case("the machine's books by /var/run, which is /run", host("/var/run/pumice"), REACHES),
    Case("another runtime's socket", host("/var/run/docker.sock"), REACHES),
    *(Case(title, host(path), REACHES) for title, path in (
        ("what the runtime reads of devices (CDI)", "/etc/cdi"), ("the same where it is made anew", "/var/run/cdi"),
        ("the same by /run", "/run/cdi/pumice.json"), ("the runtime's containers", "/var/lib/containerd"),
        ("their files while they run", "/run/containerd/io.containerd.runtime.v2.task"), ("another runtime's", "/var/lib/docker"),
        ("CRI-O's", "/var/lib/containers/storage"), ("k3s' own runtime", "/run/k3s/containerd"),
        ("the driver in a container", "/run/nvidia/driver"), ("the pipes of NVIDIA's own MPS", "/var/run/nvidia/mps"),
        ("the runtime's configuration", "/etc/containerd/config.toml"), ("NVIDIA's runtime's", "/etc/nvidia-container-runtime"))),
    Case("a host path that climbs", host("/data/../usr/local/vgpu"), REACHES),
    Case("data of the node", host("/data/sets")),
    Case("the node's logs", host("/var/log")),
    # powers
    Case("privileged", share(securityContext={"privileged": True}), POWERFUL),
    Case("mounting", share(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), POWERFUL),
    Case("mounting, by the kernel's name", share(securityContext={"capabilities": {"add": ["CAP_SYS_ADMIN"]}}), POWERFUL),
    Case("mounting, in small letters", share(securityContext={"capabilities": {"add": ["sys_admin"]}}), POWERFUL),
    Case("reading other processes", share(securityContext={"capabilities": {"add": ["NET_ADMIN", "SYS_PTRACE"]}}), POWERFUL),
    *(Case(title, share(securityContext={"capabilities": {"add": [power]}}), POWERFUL) for title, power in (
        ("opening the node's files by their numbers", "DAC_READ_SEARCH"), ("programs in the kernel", "BPF"),
        ("the same by the kernel's name", "CAP_BPF"), ("events of other processes", "PERFMON"))),
    Case("the node's shared memory", {**share(), "hostIPC": True}, POWERFUL),
    Case("the node's shared memory where no card is shared", {**plain(), "hostIPC": True}),
    Case("every power", share(securityContext={"capabilities": {"add": ["ALL"]}}), POWERFUL),
    Case("the node's processes", {**share(), "hostPID": True}, POWERFUL),
    Case("a privileged container beside it", beside({"securityContext": {"privileged": True}}), POWERFUL),
    Case("a harmless power", share(securityContext={"capabilities": {"add": ["IPC_LOCK"]}})),
    Case("privileged, where no card is shared", plain(securityContext={"privileged": True})),
    # past every scheduler: a kubelet leaves out what its node does not have, and starts the pod
    *(Case(f"{name} on a node of its own choice", {**asking_pod({name: 1}), "nodeName": "n1"}, NAMES_NODE)
      for name in GIVEN_CARDS),
    Case("no card, on a node of its own choice", {**asking_pod({"nvidia.com/gpu": 0, "cpu": 1}), "nodeName": "n1"}),
    *NPU_CASES,
    # nonsense
    Case("gibibytes where MiB are meant", share({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "3Gi"}), "write 3072"),
    Case("gigabytes where MiB are meant", share({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "3G"}), "write 2861"),
    Case("mebibytes with their unit", share({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "3000Mi"}), "write 3000"),
    Case("kibibytes", share({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "3000Ki"}), "write 3000"),
    Case("more cores than a card has", share({**SHARE, "volcano.sh/vgpu-cores": 200}), "vgpu-cores is in per cent of one card"),
    Case("more than all memory", share({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 150}),
         "vgpu-memory-percentage is in per cent of one card"),
    Case("memory without a number of cards", share({"volcano.sh/vgpu-memory": 3000}), "add volcano.sh/vgpu-number: 1"),
    Case("cores without a number of cards", share({"volcano.sh/vgpu-cores": 30}), "add volcano.sh/vgpu-number: 1"),
    Case("memory of no cards", share({"volcano.sh/vgpu-number": 0, "volcano.sh/vgpu-memory": 3000}),
         "add volcano.sh/vgpu-number: 1"),
    Case("cores of no cards", share({"volcano.sh/vgpu-number": "0", "volcano.sh/vgpu-cores": 30}),
         "add volcano.sh/vgpu-number: 1"),
    Case("no cards and nothing of them", share({"volcano.sh/vgpu-number": "0", "volcano.sh/vgpu-memory": "0"})),
    Case("nonsense in an init container", beside({"resources": {"limits": {"volcano.sh/vgpu-memory": 3000}}}, "initContainers"),
         "add volcano.sh/vgpu-number: 1"),
    Case("a whole card", share({"volcano.sh/vgpu-number": 1})),
    Case("all cores of a large share", share({**SHARE, "volcano.sh/vgpu-memory": 140000, "volcano.sh/vgpu-cores": 100})),
)


class Void(NamedTuple):
    """``void``: whether the container is made to see no card, whatever its image says."""

    title: str
    container: dict[str, Any]
    void: bool


VOID_CASES = (
    Void("nothing asked for", {}, True),
    Void("a variable of its own", env("A", "b"), True),
    *(Void(f"{amount!r} of {name}", asking({name: amount}), amount != 1)
      for name in GIVEN_CARDS
      for amount in (0, "0", "0k", 1)),
    Void("memory of no card", asking({"volcano.sh/vgpu-number": "0", "volcano.sh/vgpu-memory": 3000}), True),
    Void("cores alone", asking({"volcano.sh/vgpu-cores": 50}), True),
    Void("a share of memory alone", asking({"volcano.sh/vgpu-memory-percentage": 50}), True),
    Void("no share and a card of NVIDIA's", asking({"volcano.sh/vgpu-number": 0, "nvidia.com/gpu": 1}), False),
    Void("cpu", asking({"cpu": 1, "memory": "1Gi"}), True),
    Void("an NPU", asking(NPU), True),
    Void("a share", asking(SHARE), False),
    Void("said by itself", env("NVIDIA_VISIBLE_DEVICES", "none"), False),
)  # fmt: skip
"""Containers as they come, and who of them is told that it sees none."""
