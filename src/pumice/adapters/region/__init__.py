"""Shared regions of containers, read with suspicion: the user's container writes them (HAMi-core
src/multiprocess/multiprocess_memory_limit.h)."""

from pumice.adapters.region.folders import ContainerFolders
from pumice.adapters.region.reader import read_region

__all__ = ["ContainerFolders", "read_region"]
