"""The program of a device stack that a container is, told by its image and its words.

Volcano's: installer/helm/chart/volcano and volcano-vgpu-device-plugin.yml (volcano-sh/devices). HAMi's: charts/hami of
Project-HAMi/HAMi. NVIDIA's: deployments/helm of k8s-device-plugin. MindCluster's: Volcano pkg/scheduler/plugins/deviceshare,
HAMi ascend-device-plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from pumice.wire import names
from pumice.wire.our_devices import CARDS, CHIPS, GPUSHARE, HAMI_NPUS, MINDCLUSTER, OUR_DEVICES, VGPU


class Role(StrEnum):
    SCHEDULER = "scheduler"
    CONTROLLER = "controller"
    ADMISSION = "admission server"
    PLUGIN = "device plugin"
    MONITOR = "monitor"


class Maker(StrEnum):
    OURS = "Pumice"
    VOLCANO = "Volcano"
    HAMI = "HAMi"
    NVIDIA = "NVIDIA"
    HUAWEI = "MindCluster"


HAMI_SCHEDULER: Final = "hami-scheduler"
HAMI_WEBHOOK: Final = names.HAMI_DOMAIN
"""The end of the names of HAMi's webhooks, and the domain of the label by which objects pass them by."""
HAMI_IGNORE: Final = f"{HAMI_WEBHOOK}/webhook=ignore"
GPU_PRESENT: Final = f"{names.NVIDIA_DOMAIN}/gpu.present"
"""Label that NVIDIA's feature discovery puts on nodes with cards."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a device stack. ``word``: what it is among its maker's. ``names``: the schedulerNames that a scheduler
    takes. ``elects``: whether several replicas of it would choose one. ``devices``: what a plugin hands out, as ``resource``."""

    maker: Maker
    role: Role
    word: str
    names: tuple[str, ...] = ()
    elects: bool = True
    devices: str = ""
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.maker}'s {self.role}"


OUR_ROLES: Final = {"scheduler": Role.SCHEDULER, "controller": Role.CONTROLLER, "webhook": Role.ADMISSION,
                    "device-plugin": Role.PLUGIN, "monitor": Role.MONITOR}  # fmt: skip
OUR_ACCOUNTS: Final = ("volcano-", "hami-ascend", "ascend-mindcluster")
"""Beginnings of the names of our manifests' accounts."""
VOLCANOS: Final = {"vc-scheduler": Role.SCHEDULER, "vc-controller-manager": Role.CONTROLLER,
                   "vc-webhook-manager": Role.ADMISSION}  # fmt: skip
PLUGINS: Final = {
    # the image's last word: whose it is, and what it hands out
    "volcano-vgpu-device-plugin": (Maker.VOLCANO, CARDS, VGPU.resource),
    "volcano-device-plugin": (Maker.VOLCANO, CARDS, GPUSHARE.resource),
    "k8s-device-plugin": (Maker.NVIDIA, CARDS, names.WHOLE_GPU),
    "ascend-device-plugin": (Maker.HAMI, CHIPS, HAMI_NPUS.resource),
    "ascend-k8sdeviceplugin": (Maker.HUAWEI, CHIPS, MINDCLUSTER.resource),
}  # fmt: skip


def programs(spec: Mapping[str, Any]) -> Iterator[tuple[Program, str]]:
    """Those of a pod's containers that are known, with their images."""
    containers, account = spec.get("containers"), str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict):
            image = str(container.get("image") or "")
            if (found := program_of(image, _words(container.get("command")), _words(container.get("args")), account)) is not None:
                yield found, image


def program_of(image: str, command: Sequence[str], args: Sequence[str], account: str = "") -> Program | None:
    """None for what has nothing to do with devices and batches. An image of ours may have any name, and others have daemons that
    are called ``webhook`` or ``controller``: where the name does not tell, the account does."""
    base = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    called = command[0].rpartition("/")[2] if command else ""
    words = [*command[1:], *args]
    if called in ("", "pumice") and words and words[0] in OUR_ROLES and (
        called or "pumice" in image or account.startswith(OUR_ACCOUNTS)
    ):
        return _ours(words)
    for name, role in VOLCANOS.items():
        if name in (base, called):
            taken = _flags(words, "--scheduler-name") or (names.SCHEDULER_NAME,) if role is Role.SCHEDULER else ()
            return Program(Maker.VOLCANO, role, name, taken, "--leader-elect=false" not in words)
    if base in PLUGINS:
        maker, devices, resource = PLUGINS[base]
        return Program(maker, Role.PLUGIN, base, devices=devices, resource=resource)
    if base == "hami" or base.startswith("hami-"):
        return _hamis(called, words)
    return None


def _ours(words: Sequence[str]) -> Program | None:
    role = OUR_ROLES[words[0]]
    if role is Role.PLUGIN:
        device_type = words[1] if len(words) > 1 else ""
        ours = next((one for one in OUR_DEVICES if one.word == device_type), None)
        if ours is None:
            return None
        resource = names.GPU_NUMBER if ours is GPUSHARE and "--gpu-strategy=number" in words else ours.resource
        return Program(Maker.OURS, role, f"device-plugin {device_type}", devices=ours.devices, resource=resource)
    taken = _flags(words, "--scheduler-name") or (names.SCHEDULER_NAME,) if role is Role.SCHEDULER else ()
    elects = role not in (Role.SCHEDULER, Role.CONTROLLER) or "--leader-elect" in words
    return Program(Maker.OURS, role, words[0], taken, elects)


def _hamis(called: str, words: Sequence[str]) -> Program | None:
    if called == "scheduler":
        taken = _flags(words, "--scheduler-name") or (HAMI_SCHEDULER,)
        return Program(Maker.HAMI, Role.SCHEDULER, "hami", taken, "--leader-elect=true" in words)
    if called == "nvidia-device-plugin":
        return Program(Maker.HAMI, Role.PLUGIN, "hami", devices=CARDS, resource=names.WHOLE_GPU)
    return Program(Maker.HAMI, Role.MONITOR, "hami") if called == "vGPUmonitor" else None


def _flags(words: Sequence[str], flag: str) -> tuple[str, ...]:
    """Values of a flag that may be given again, written in one word or in two."""
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    return tuple(joined + [after for word, after in pairwise(words) if word == flag])


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
