"""A real kubelet on Debian's containerd, or on containerd 2, on this machine, as a context that leaves nothing behind.

Every flag was tried; the reasons are in ADR 120. Needs root, containerd, runc, the CNI plugins and a static
busybox, and the kubelet of ``make kube``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from deploy.image import oci

from pumice_lab.free_ports import free_port

IMAGE = "local.test/busybox:1"
PAUSE = "local.test/pause:1"
PLUGINS = Path("/var/lib/kubelet/device-plugins")  # does not follow --root-dir
SERVICES = "10.96.0.0/16"  # by way of the node
BRIDGE, NODE_IP = "pumice-e2e", "10.231.7.1"  # the kubelet reports no loopback address, so it lives on the pods' bridge
BRIDGE_MAC = "02:50:75:6d:69:63"
"""Of its own: else a bridge has the lowest address of its pods, a new pod may change it, and those who are there do not reach the
API server for half a minute."""


@dataclass(frozen=True, slots=True)
class RealNode:
    name: str
    root: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def kubelet_log(self) -> Path:
        return self.root / "kubelet.log"

    @property
    def cdi_folder(self) -> Path:
        """Where containerd 2 looks for CDI devices."""
        return self.root / "cdi"

    def restart_kubelet(self) -> None:
        """End it as a crash does, and start it with the same words."""
        old = self.processes["kubelet"]
        old.kill()
        old.wait()
        self.processes["kubelet"] = _start(old.args, self.kubelet_log)  # type: ignore[arg-type]


def containerd_2() -> Path:
    """The folder of containerd 2, as ``make kube`` builds it."""
    return Path(os.environ.get("KUBEBUILDER_ASSETS", ""), "containerd-2")


def missing() -> str:
    """Why a real kubelet cannot run here, or an empty string."""
    if os.geteuid() != 0:
        return "a real kubelet needs root"
    for program in ("containerd", "ctr", "runc"):
        if not shutil.which(program):
            return f"{program} is not installed (apt-get install containerd runc)"
    if not Path("/usr/lib/cni/bridge").exists():
        return "the CNI plugins are not installed (apt-get install containernetworking-plugins)"
    if not Path("/bin/busybox").exists():
        return "busybox is not installed (apt-get install busybox-static)"
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets or not Path(assets, "kubelet").exists():
        return "KUBEBUILDER_ASSETS names no kubelet (make kube)"
    return ""


@contextlib.contextmanager
def real_node(root: Path, server: str, token: str, certificate: tuple[Path, Path], name: str = "real-1",
              images: Sequence[Path] = (), runtime: Path | None = None,
              programs: Path | None = None) -> Iterator[RealNode]:  # fmt: skip
    """Run containerd and a kubelet that registers itself at ``server`` with a bearer token, until the context ends.

    ``certificate`` (file, key) is what the kubelet serves logs and exec with; it must name NODE_IP. ``images`` are OCI layouts
    that the node has; ``runtime`` is called in runc's place. ``programs``: the folder of another containerd than Debian's.
    """
    node = RealNode(name, root)
    root.mkdir(parents=True, exist_ok=True)
    try:
        for command in (f"link add {BRIDGE} address {BRIDGE_MAC} type bridge", f"addr add {NODE_IP}/24 dev {BRIDGE}",
                        f"link set {BRIDGE} up"):  # fmt: skip
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        node.processes["containerd"] = _containerd(root, runtime, programs)
        _import_images(root, images)
        node.processes["kubelet"] = _kubelet(node, server, token, certificate)
        yield node
    finally:
        for process in reversed(node.processes.values()):
            _end(process)
        _clean_up(root)


def _containerd(root: Path, runtime: Path | None, programs: Path | None) -> subprocess.Popen[bytes]:
    (root / "cni").mkdir(exist_ok=True)
    (root / "cni" / "10-pumice.conflist").write_text(json.dumps({
        "cniVersion": "1.0.0", "name": "pumice",
        "plugins": [{"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": False,
                     "ipam": {"type": "host-local", "dataDir": str(root / "ipam"),
                              "ranges": [[{"subnet": "10.231.7.0/24"}]], "routes": [{"dst": SERVICES}]}}],
    }))  # fmt: skip
    settings = _settings_of_1 if programs is None else _settings_of_2
    (root / "containerd.toml").write_text(settings(root, runtime))
    program, path = ("containerd", "") if programs is None else (str(programs / "containerd"), f"{programs}:")
    process = _start([program, "--config", str(root / "containerd.toml")], root / "containerd.log",
                     {**os.environ, "PATH": f"{path}{os.environ['PATH']}"})  # fmt: skip
    _until(lambda: _ctr(root, "version").returncode == 0, process, root / "containerd.log", "containerd")
    return process


def _settings_of_1(root: Path, runtime: Path | None) -> str:
    return f"""
version = 2
root = "{root}/containerd/root"
state = "{root}/containerd/state"
[grpc]
  address = "{root}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runtime or "runc"}"
"""


def _settings_of_2(root: Path, runtime: Path | None) -> str:
    return f"""
version = 3
root = "{root}/containerd/root"
state = "{root}/containerd/state"
[grpc]
  address = "{root}/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{root}/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{root}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{runtime or "runc"}"
"""


def _import_images(root: Path, more: Sequence[Path]) -> None:
    busybox_image(IMAGE, root / "busybox.tar")
    busybox_image(PAUSE, root / "pause.tar", entrypoint=["/bin/busybox", "sleep", "2000000000"])
    for tar in (root / "busybox.tar", root / "pause.tar", *more):
        done = _ctr(root, "-n", "k8s.io", "images", "import", str(tar))
        assert done.returncode == 0, done.stderr.decode()


def _kubelet(node: RealNode, server: str, token: str, certificate: tuple[Path, Path]) -> subprocess.Popen[bytes]:
    root = node.root
    config = {
        "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": NODE_IP, "port": free_port(NODE_IP),
        "tlsCertFile": str(certificate[0]), "tlsPrivateKeyFile": str(certificate[1]), "healthzPort": 0, "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"}, "failCgroupV1": False, "failSwapOn": False,
        "cgroupDriver": "cgroupfs", "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{root}/containerd.sock",
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                         "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": False, "makeIPTablesUtilChains": False,
        "resolvConf": "", "podLogsDir": str(root / "pod-logs"), "staticPodPath": "",
        "nodeStatusUpdateFrequency": "1s", "registerNode": True,
    }  # fmt: skip
    (root / "kubelet.yaml").write_text(yaml.safe_dump(config))
    (root / "kubelet.kubeconfig").write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    return _start([str(Path(os.environ["KUBEBUILDER_ASSETS"], "kubelet")), f"--config={root}/kubelet.yaml",
                   f"--kubeconfig={root}/kubelet.kubeconfig", f"--root-dir={root}/kubelet",
                   f"--cert-dir={root}/kubelet-pki", f"--hostname-override={node.name}",
                   f"--node-ip={NODE_IP}", "--v=2"], node.kubelet_log)  # fmt: skip


def _ctr(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ctr", "-a", f"{root}/containerd.sock", *arguments], capture_output=True, timeout=60)


def _start(command: list[str], log: Path, environ: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environ)


def _until(done: object, process: subprocess.Popen[bytes], log: Path, what: str, seconds: float = 60) -> None:
    assert callable(done)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with code {process.returncode}: {log.read_text(errors='replace')[-600:]}")
        if done():
            return
        time.sleep(0.1)
    raise RuntimeError(f"{what} did not come up: {log.read_text(errors='replace')[-600:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _clean_up(root: Path) -> None:
    """End what a killed containerd leaves: shims, containers, mounts, network namespaces, the bridge, cgroups."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{root}/containerd.sock".encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)
    for cgroup in sorted(Path("/sys/fs/cgroup").glob("*/kubepods/**/cgroup.procs"), reverse=True):
        with contextlib.suppress(OSError):
            for pid in cgroup.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
    time.sleep(0.3)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{root}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], capture_output=True)
    for name in Path("/run/netns").glob("cni-*"):
        subprocess.run(["umount", "-l", str(name)], capture_output=True)
        name.unlink(missing_ok=True)
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)
    for cgroup in sorted(Path("/sys/fs/cgroup").glob("*/kubepods/**/"), key=lambda p: len(p.parts), reverse=True):
        with contextlib.suppress(OSError):
            cgroup.rmdir()


# -- Small images for tests, without a registry: Debian's static busybox and what a test puts beside it


APPLETS = ("sh", "env", "sleep", "cat", "ls", "echo", "true", "false", "id", "ps", "grep", "mkdir")


def busybox_image(name: str, destination: Path, *, entrypoint: Sequence[str] = (),
                  files: Mapping[str, bytes] | None = None) -> Path:
    """An image with Debian's static busybox, a link per common applet, and ``files`` (path to content)."""
    layer = oci.Layer()
    for folder in ("bin", "tmp", "etc", "usr", "usr/local"):
        layer.folder(folder)
    layer.file("bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
    for applet in APPLETS:
        layer.link(f"bin/{applet}", "busybox")
    for path, content in (files or {}).items():
        layer.file(path, content, 0o755)
    oci.image(name, "amd64", [layer], {"Env": ["PATH=/bin"], "Entrypoint": list(entrypoint) or None}).write(destination)
    return destination
