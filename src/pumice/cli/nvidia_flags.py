"""Flags that the vGPU plugin has in common with NVIDIA's own (spec nvidia-device-plugin 2.2): those whose promise is not kept
here are named, or refused where a container would miss what it was promised."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pumice.apps.node.cdi_files import CdiPlaces
from pumice.model.errors import BadInput
from pumice.wire import variables
from pumice.wire.nvidia_plugin_config import parse_nvidia_plugin_config

log = logging.getLogger("pumice.cli")
PANEL: Final = "Of NVIDIA's plugin"
WITH_CDI: Final = " With cdi-annotations or cdi-cri."


def _from_file(ctx: typer.Context, path: Path | None) -> Path | None:
    """Flag, then environment variable, then this file, then default."""
    if path is not None:
        try:
            config = parse_nvidia_plugin_config(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: {getattr(error, 'strerror', '') or error}") from error
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        for warning in config.warnings:
            log.warning("%s: %s", path, warning)
        ctx.default_map = {**(ctx.default_map or {}), **config.options}
    return path


def _of(*flags: str, env: str | list[str], text: str) -> Any:
    return typer.Option(*flags, envvar=env, help=text, rich_help_panel=PANEL)


ConfigFile = Annotated[
    Path | None, typer.Option("--config-file", envvar="CONFIG_FILE", is_eager=True, callback=_from_file, rich_help_panel=PANEL,
                              help="Its configuration file, version v1; flags and variables count before it."),
]  # fmt: skip
DriverRoot = Annotated[str, _of("--nvidia-driver-root", "--driver-root", env=variables.DRIVER_ROOT, text="The driver's root.")]
Discovery = Annotated[str, _of("--device-discovery-strategy", env="DEVICE_DISCOVERY_STRATEGY", text="auto or nvml.")]
ImexIds = Annotated[str, _of("--imex-channel-ids", env="IMEX_CHANNEL_IDS", text="Empty: no channels are handed out.")]
ImexRequired = Annotated[bool, _of("--imex-required", env="IMEX_REQUIRED", text="Not served.")]
MpsRoot = Annotated[Path | None, _of("--mps-root", env="MPS_ROOT", text="Host folder of MPS's pipes, for operatingmode mps.")]
CdiRoot = Annotated[str, _of("--cdi-root", env="CDI_ROOT", text=f"Where the file of CDI devices is written.{WITH_CDI}")]
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


def cdi_places(root: str, hook: str, driver_root: str, inside: str, dev_root: str, features: str) -> CdiPlaces:
    """Empty: the default."""
    usual = CdiPlaces()
    return CdiPlaces(
        Path(root) if root else usual.root, hook or usual.hook, driver_root, Path(inside) if inside else usual.inside,
        (dev_root or driver_root).rstrip("/"), features,
    )  # fmt: skip


def check(discovery: str, imex_ids: str, imex_required: bool, **without_effect: str) -> None:
    """Refuse what would not be kept, and name what has no effect. Raises BadInput."""
    if discovery == "tegra":
        raise BadInput("--device-discovery-strategy tegra: cards of Tegra boards are not served; use auto or nvml")
    if discovery not in ("auto", "nvml"):
        raise BadInput(f"--device-discovery-strategy {discovery!r}: use auto or nvml")
    if imex_ids.strip("[] "):
        raise BadInput(f"--imex-channel-ids {imex_ids}: no IMEX channels are handed out to containers; leave it empty")
    if imex_required:
        raise BadInput("--imex-required: no IMEX channels are handed out to containers")
    if given := sorted(f"--{name.replace('_', '-')}" for name, value in without_effect.items() if value):
        log.warning("without effect: %s", ", ".join(given))
