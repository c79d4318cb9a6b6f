"""The arguments that only the chips that are cut on demand read."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.devices.settings import Section, argument
from pumice.wire.names import INIT_PARAMS, PARAMS_READ

NPU_POLICIES = ("listed", "expected")
_PRESET, _GATHERED, _SELF_MAINTAINED = (f"{INIT_PARAMS}.{key}" for key in PARAMS_READ)


@dataclass(frozen=True, slots=True)
class CoreArguments(Section):
    """The arguments of these chips alone. The first three stand in ``init-params``, where only the word ``true`` is true."""

    preset: bool = argument(_PRESET, False, kind="flag")
    gathered: bool = argument(_GATHERED, True, kind="flag")
    self_maintained: bool = argument(_SELF_MAINTAINED, True, kind="flag")
    avoid_unhealthy: bool = argument("pumice.AvoidUnhealthyHosts", False)
    policy: str = argument("pumice.NpuPolicy", "listed", one_of=NPU_POLICIES)
