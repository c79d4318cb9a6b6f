"""Units, so that no bare number is taken for another one.

A *memory unit* is ``gpuMemoryFactor`` MiB (Volcano pkg/scheduler/api/devices/nvidia/vgpu, conventions); with the default factor 1
it is 1 MiB.
"""

from typing import NewType

Mib = NewType("Mib", int)
"""Memory in memory units of the wire (MiB with the default factor)."""

INT32_MAX = 2**31 - 1
"""Largest value that the wire carries for a count, a memory or a percentage (defect D-18)."""
