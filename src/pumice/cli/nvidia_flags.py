"""Flags that the vGPU plugin has in common with NVIDIA's own (spec nvidia-device-plugin 2.2): those whose promise is not kept
here are named, or refused where a container would miss what it was promised."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pumice.model.errors import BadInput
from pumice.wire import variables
from pumice.wire.nvidia_plugin_config import parse_nvidia_plugin_config

log = logging.getLogger("pumice.cli")
PANEL: Final = "Of NVIDIA's plugin"
NO_CDI: Final = "Without effect: no CDI specification is written here."


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
MpsRoot = Annotated[str, _of("--mps-root", env="MPS_ROOT", text="Without effect: MPS is not served.")]
CdiPrefix = Annotated[str, _of("--cdi-annotation-prefix", env="CDI_ANNOTATION_PREFIX", text=NO_CDI)]
CdiHook = Annotated[
    str, _of("--nvidia-cdi-hook-path", "--nvidia-ctk-path", env=[*variables.CDI_HOOK_PATHS], text=NO_CDI)
]
CdiFeatures = Annotated[str, _of("--cdi-feature-flags", env="CDI_FEATURE_FLAGS", text=NO_CDI)]
RootInside = Annotated[
    str, _of("--driver-root-ctr-path", "--container-driver-root", text=NO_CDI,
             env=["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"]),
]  # fmt: skip


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
