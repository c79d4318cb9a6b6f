"""Settings of one node's kubelet twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pumice_lab.runtime.spec import Runtime


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Certificate and key of the node's HTTP server; ``client_ca`` signs the certificates that it accepts."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The settings of a kubelet. ``directory`` is the node's own folder in the data dir (``D/nodes/NAME``). Seconds unless a
    name says otherwise.

    ``hollow`` leaves out sockets, HTTP server and processes: for virtual time and for scale.
    """

    node: str
    directory: Path
    data_dir: Path
    address: str = "127.0.0.1"
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    ephemeral_storage: str = "100Gi"
    labels: Mapping[str, str] = field(default_factory=dict)
    container_env: Mapping[str, str] = field(default_factory=dict)  # lowest precedence, e.g. of the emulated machine
    host_paths: Mapping[str, str] = field(default_factory=dict)  # hostPath prefix -> this node's own folder
    pumice_images: tuple[str, ...] = ("pumice",)
    api_host: str = ""
    api_port: int = 0
    ca_certificate: Path | None = None  # stands in for a missing ConfigMap kube-root-ca.crt
    port: int = 0  # 0: any free port
    tls: ServerTls | None = None
    server_token: str = ""  # bearer token that the HTTP server accepts; empty and no client_ca: everybody on loopback
    status_period: float = 10.0
    eager_status: bool = True  # tell new device counts within a tenth of a second instead of at the next period
    lease_seconds: int = 40
    plugin_patience: float = 30.0  # how long restarted pods wait for the plugin of their devices
    hollow: bool = False
    runtime: Callable[[Runtime], Runtime] = lambda below: below  # what stands around the node's own, as a vendor's does
    device_files: bool = True  # whether the machine has those of its cards; an emulated one has none
    socket_root: Path | None = None  # a shorter way to ``directory``: a unix socket's path has at most 107 bytes

    @property
    def kubelet_dir(self) -> Path:
        return (self.socket_root or self.directory) / "kubelet"

    @property
    def plugin_dir(self) -> Path:
        return self.kubelet_dir / "device-plugins"

    @property
    def cdi_folders(self) -> tuple[Path, ...]:
        """Return where files of CDI devices lie: the machine's, and the node's own in place of /var/run/cdi."""
        return Path("/etc/cdi"), self.directory / "cdi"

    @property
    def pods_dir(self) -> Path:
        return self.directory / "pods"

    @property
    def logs_dir(self) -> Path:
        return self.directory / "logs"
