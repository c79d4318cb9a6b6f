"""Ascend's driver interface: the library's calls, cards as the node needs them, and slices."""

from pumice.adapters.dcmi.cards import DcmiCards
from pumice.adapters.dcmi.driver import Dcmi, Device
from pumice.adapters.dcmi.slices import DcmiVnpus

__all__ = ["Dcmi", "DcmiCards", "DcmiVnpus", "Device"]
