"""Emulated machines for these tests."""

from kit.machines import make_machine

__all__ = ["make_machine"]
