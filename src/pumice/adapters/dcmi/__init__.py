"""Ascend's driver interface: the library's calls, cards as the node needs them, and slices."""

from pumice.adapters.dcmi.cards import DcmiCards, DcmiVnpus
from pumice.adapters.dcmi.driver import Dcmi, Device

__all__ = ["Dcmi", "DcmiCards", "DcmiVnpus", "Device"]
