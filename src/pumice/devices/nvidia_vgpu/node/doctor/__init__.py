"""Is a node as it must be? A table of checks over what was found there: each says what is wrong and how it is mended."""

from pumice.devices.nvidia_vgpu.node.doctor.checks import CHECKS, examine
from pumice.devices.nvidia_vgpu.node.doctor.facts import (
    Holding,
    NodeFacts,
    PluginPod,
    Runtime,
)

__all__ = ["CHECKS", "Holding", "NodeFacts", "PluginPod", "Runtime", "examine"]
