"""Flags of the vGPU plugin, by HAMi's and NVIDIA's names (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/config). Those
whose promise is not
kept here are named, or refused where a container would miss what it was promised."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pumice.cli import flags
from pumice.model.errors import BadInput
from pumice.wire import variables
from pumice.wire.cdi import STRATEGIES

log = logging.getLogger("pumice.cli")

WITH_CDI: Final = " With cdi-annotations or cdi-cri."


class Advertise(StrEnum):
    STATUS = "status"
    DEVICES = "devices"
    AUTO = "auto"


class Handshake(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class IdStrategy(StrEnum):
    UUID = "uuid"
    INDEX = "index"


HookPath = Annotated[Path, flags.Option(envvar="HOOK_PATH", help="Host folder of library and regions.")]
LockDir = Annotated[Path, flags.Option(envvar=variables.LOCK_DIR, help="Host folder of the library's lock.")]
Library = Annotated[
    Path | None, flags.Option(envvar=variables.LIBVGPU, help="libvgpu.so to install; default: the package's own.")
]
Advertised = Annotated[
    Advertise, flags.Option(help="How memory and cores reach the node object; auto: as devices where the list fits.")
]
Percentage = Annotated[
    bool, flags.Option(help="Offer volcano.sh/vgpu-memory-percentage as well, which Volcano 1.13 and later look for.")
]
Handshakes = Annotated[Handshake, flags.Option(help="For schedulers up to Volcano 1.15.")]
SplitCount = Annotated[int, flags.Option(min=0, max=1000, help="Shares per card; 0: as configured.")]
MemoryFactor = Annotated[int, flags.Option(min=0, help="MiB per memory unit; 0: as configured.")]
CoresScaling = Annotated[float, flags.Option(min=0.0, help="Scale of the cores; 0: as configured.")]
ConfigNamespace = Annotated[
    str, flags.Option(envvar="DEVICE_CONFIG_NAMESPACE", help="Where to look first for the device ConfigMap.")
]
NodeConfig = Annotated[Path, flags.Option(help="config.json of the node ConfigMap.")]
DeviceLists = Annotated[
    list[str] | None,
    flags.Option(envvar=variables.DEVICE_LIST_STRATEGY, help=f"How cards are named: {', '.join(STRATEGIES)}."),
]
DeviceIds = Annotated[IdStrategy, flags.Option(envvar="DEVICE_ID_STRATEGY", help="Name cards by UUID or index.")]
DeviceSpecs = Annotated[bool, flags.Option(envvar="PASS_DEVICE_SPECS", help="Answer /dev/nvidia* too.")]
DevRoot = Annotated[
    str, flags.Option("--nvidia-dev-root", "--dev-root", envvar=variables.DEV_ROOT, help="Root of the device files.")
]
Gdrcopy = Annotated[bool, flags.Option(envvar="GDRCOPY_ENABLED", help="NVIDIA_GDRCOPY=enabled.")]
Gds = Annotated[bool, flags.Option(envvar="GDS_ENABLED", help="NVIDIA_GDS=enabled.")]
Mofed = Annotated[bool, flags.Option(envvar="MOFED_ENABLED", help="NVIDIA_MOFED=enabled.")]
AllowDisable = Annotated[
    bool, flags.Option(help="CUDA_DISABLE_CONTROL in a pod, of any value, leaves the library and so its limits out, as upstream.")
]
DisableStrict = Annotated[
    bool, flags.Option(help="With --allow-disable-control: only CUDA_DISABLE_CONTROL=true does, not any value.")
]
DisableNever = Annotated[
    bool, flags.Option(help="The default by now: no pod leaves the library out. Stands above --allow-disable-control.")
]
MigStrategy = Annotated[
    str, flags.Option(envvar="MIG_STRATEGY", help="none: cards in MIG mode are cut on demand; mixed: as they are cut.")
]
MpsControl = Annotated[str, flags.Option(help="MPS's control program, by name or path.")]


def _from_file(ctx: flags.Context, path: Path | None) -> Path | None:
    """Flag, then environment variable, then this file, then default."""
    if path is not None:
        from pumice.cli.streams import read
        from pumice.wire.document import read_document
        from pumice.wire.nvidia_plugin_config import nvidia_plugin_config

        config = nvidia_plugin_config(read_document(read(path), file=str(path)))
        for warning in config.warnings:
            log.warning("%s", warning)
        ctx.defaults |= config.options
    return path


def _of(*names: str, env: str | list[str], text: str) -> flags.Option:
    return flags.Option(*names, envvar=env, help=text)


ConfigFile = Annotated[
    Path | None, flags.Option("--config-file", envvar="CONFIG_FILE", first=_from_file,
                              help="Its configuration file, version v1; flags and variables count before it."),
]  # fmt: skip
DriverRoot = Annotated[str, _of("--nvidia-driver-root", "--driver-root", env=variables.DRIVER_ROOT, text="The driver's root.")]
Discovery = Annotated[str, _of("--device-discovery-strategy", env="DEVICE_DISCOVERY_STRATEGY", text="auto or nvml.")]
ImexIds = Annotated[str, _of("--imex-channel-ids", env="IMEX_CHANNEL_IDS", text="Empty: no channels are handed out.")]
ImexRequired = Annotated[bool, _of("--imex-required", env="IMEX_REQUIRED", text="Not served.")]
MpsRoot = Annotated[Path | None, _of("--mps-root", env="MPS_ROOT", text="Host folder of MPS's pipes, for operatingmode mps.")]
CdiPrefix = Annotated[str, _of("--cdi-annotation-prefix", env="CDI_ANNOTATION_PREFIX", text="Of the answer's annotation.")]
CdiHook = Annotated[
    str, _of("--nvidia-cdi-hook-path", "--nvidia-ctk-path", env=[*variables.CDI_HOOK_PATHS],
             text=f"The host's hook that the file names.{WITH_CDI}"),
]  # fmt: skip
CdiFeatures = Annotated[str, _of("--cdi-feature-flags", env="CDI_FEATURE_FLAGS", text=f"For nvidia-ctk.{WITH_CDI}")]
RootInside = Annotated[
    str, _of("--driver-root-ctr-path", "--container-driver-root", text=f"Where the driver's root is mounted here.{WITH_CDI}",
             env=["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"]),
]  # fmt: skip


def check(mig: str, discovery: str, imex_ids: str, imex_required: bool) -> None:
    """Refuse what would not be kept. Raises BadInput."""
    if mig == "single":
        raise BadInput("--mig-strategy single is not served; with none a card in MIG mode is cut as pods need it, with mixed its "
                       "slices are resources of their own")  # fmt: skip
    if mig not in ("none", "mixed"):
        raise BadInput(f"--mig-strategy {mig!r}: use none or mixed")
    if discovery == "tegra":
        raise BadInput("--device-discovery-strategy tegra: cards of Tegra boards are not served; use auto or nvml")
    if discovery not in ("auto", "nvml"):
        raise BadInput(f"--device-discovery-strategy {discovery!r}: use auto or nvml")
    if imex_ids.strip("[] "):
        raise BadInput(f"--imex-channel-ids {imex_ids}: no IMEX channels are handed out to containers; leave it empty")
    if imex_required:
        raise BadInput("--imex-required: no IMEX channels are handed out to containers")


def say_without_effect(**options: str) -> None:
    """Name those that were given."""
    if given := sorted(f"--{name.replace('_', '-')}" for name, value in options.items() if value):
        log.warning("without effect: %s", ", ".join(given))
