"""Is a node as it must be? A table of checks over what was found there: each says what is wrong and how it is mended."""

from pumice.devices.nvidia_vgpu.node.doctor.checks import CHECKS, examine
from pumice.devices.nvidia_vgpu.node.doctor.facts import (
    ConfigText,
    Finding,
    Holding,
    NodeFacts,
    PluginPod,
    Runtime,
    State,
)

__all__ = ["CHECKS", "ConfigText", "Finding", "Holding", "NodeFacts", "PluginPod", "Runtime", "State", "examine"]
