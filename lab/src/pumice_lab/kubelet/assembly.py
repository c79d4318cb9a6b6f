"""Putting a container together: env, mounts and command from the pod, its volumes and the plugins' answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice_lab.kubelet import command
from pumice_lab.kubelet.devices import cdi
from pumice_lab.kubelet.devices.plugin import Allocation
from pumice_lab.kubelet.environment import build_environment
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.status import PodFacts
from pumice_lab.kubelet.volumes import ConfigReader, PodVolumes, host_path
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import PodNetwork
from pumice_lab.runtime.spec import ContainerSpec, Mount, StartFailed

Json = Mapping[str, Any]


class Assembly:
    """The parts of one pod that its containers share. ``volumes`` must be set up before the first ``spec``."""

    def __init__(self, settings: KubeletSettings, cluster: Cluster, clock: Clock, network: PodNetwork, names: PodNames,
                 pod: Json, facts: PodFacts) -> None:
        self.settings, self.facts, self.network, self.names = settings, facts, network, names
        meta = pod["metadata"]
        self.reader = ConfigReader(cluster, clock, settings, meta)
        self.downward = {
            "status.podIP": facts.pod_ip, "status.podIPs": facts.pod_ip, "status.hostIP": facts.host_ip,
            "status.hostIPs": facts.host_ip, "spec.nodeName": settings.node,
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName") or "default",
        }  # fmt: skip
        self.volumes = PodVolumes(settings, self.reader, pod, self.downward)
        self._logs = settings.logs_dir / f"{meta.get('namespace', 'default')}_{meta['name']}_{meta['uid']}"

    def log_path(self, container: str, run: int) -> Path:
        return self._logs / container / f"{run}.log"

    async def spec(self, ident: str, pod: Json, container: Json, run: int, answers: Sequence[Allocation],
                   private_files: bool) -> ContainerSpec:
        """Raises ConfigMissing, VolumeNotReady, or StartFailed when a device node is missing or a CDI device unknown.

        ``private_files``: the container sees files of its own at will (mount namespaces); then it gets an /etc/hosts.
        """
        settings, meta = self.settings, pod["metadata"]
        shared = bool(pod["spec"].get("hostNetwork"))
        maps, secrets = await self._references(container)
        services = self.names.links(meta.get("namespace", "default")) if pod["spec"].get("enableServiceLinks", True) else {}
        base = command.base_environment(settings, pod, container, self.facts.pod_ip, None if shared else self.network.api)
        env = build_environment(
            container, pod, facts=self.downward, base=services | base,
            plugins=[answer.envs for answer in answers], maps=maps, secrets=secrets)
        mounts = [*self.volumes.mounts(container)]
        mounts += self._answered(answers, {mount.target for mount in mounts})
        devices = cdi.requested(answers)
        edits = self._injected(devices)  # they count before the pod's own
        env |= edits.env
        injected = [replace(mount, source=str(host_path(settings, mount.source))) for mount in edits.mounts.values()]
        mounts = [*(mount for mount in mounts if mount.target not in edits.mounts), *injected]
        if private_files:
            taken = {mount.target for mount in mounts}
            mounts += [mount for mount in self._files(pod, shared=shared) if mount.target not in taken]
        user, group = command.user_and_group(settings, pod, container)
        return ContainerSpec(
            id=ident, argv=command.command_line(settings, container, env), env=env, mounts=tuple(mounts),
            log_path=str(self.log_path(container["name"], run)), working_dir=container.get("workingDir") or "",
            hostname=command.hostname(pod), user=user, group=group,
            network="" if shared else await self.network.attach(meta["uid"], self.facts.pod_ip),
            stdin=bool(container.get("stdin")), tty=bool(container.get("tty")), cdi_devices=devices,
            about={"namespace": meta.get("namespace", ""), "pod": meta["name"], "container": container["name"]},
        )  # fmt: skip

    def _answered(self, answers: Sequence[Allocation], taken: set[str]) -> list[Mount]:
        """Mounts and device nodes of the plugins; of one path twice the first wins."""
        mounts: list[Mount] = []
        for answer in answers:
            for device in answer.devices:
                if not Path(device.host_path).exists():
                    raise StartFailed("CreateContainerError", f"lstat {device.host_path}: no such file or directory",
                                      transient=True)
            moved = [device for device in answer.devices if device.container_path != device.host_path]
            for mount in (*answer.mounts, *moved):
                if mount.container_path not in taken:
                    taken.add(mount.container_path)
                    source = host_path(self.settings, mount.host_path)
                    mounts.append(Mount(str(source), mount.container_path, mount.read_only))
        return mounts

    def _injected(self, devices: Sequence[str]) -> cdi.Edits:
        """Return the edits of CDI devices. Raises StartFailed."""
        edits = cdi.resolve(devices, self.settings.cdi_folders)
        if self.settings.device_files:
            edits.stat()
        return edits

    async def _references(self, container: Json) -> tuple[dict[str, Any], dict[str, Any]]:
        """The ConfigMaps and Secrets that a container's env names, as text."""
        named: dict[str, set[str]] = {"configMap": set(), "secret": set()}
        sources = [*(container.get("envFrom") or ()), *(e.get("valueFrom") or {} for e in container.get("env") or ())]
        for source in sources:
            for key, ref in source.items():
                for kind, names in named.items():
                    if key in (f"{kind}Ref", f"{kind}KeyRef") and ref:
                        names.add(ref["name"])
        maps = {name: _as_text(await self.reader.config_map(name)) for name in sorted(named["configMap"])}
        secrets = {name: _as_text(await self.reader.secret(name)) for name in sorted(named["secret"])}
        return maps, secrets

    def _files(self, pod: Json, *, shared: bool) -> list[Mount]:
        """/etc/hosts, and where the name server is not the machine's, /etc/resolv.conf."""
        meta = pod["metadata"]
        folder: Path = self.settings.pods_dir / meta["uid"]
        hosts, resolver = folder / "etc-hosts", "" if shared else self.network.resolver
        api = self.network.api[0] if self.network.api and not shared else ""
        head = command.hosts_file(pod, self.facts.pod_ip, _text(Path("/etc/hosts")), api)
        self.names.follow(meta["uid"], meta.get("namespace", "default"), hosts, head)
        if not resolver:
            return [Mount(str(hosts), "/etc/hosts")]
        names = folder / "etc-resolv.conf"
        names.write_text(command.resolv_conf(resolver, _text(Path("/etc/resolv.conf"))))
        return [Mount(str(hosts), "/etc/hosts"), Mount(str(names), "/etc/resolv.conf")]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _as_text(data: Mapping[str, bytes] | None) -> dict[str, str] | None:
    return None if data is None else {key: value.decode(errors="replace") for key, value in data.items()}
