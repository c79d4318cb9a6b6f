"""Plugins of the scheduler, one file each: leaves that know the state and their contract, and nothing of cycle or placer."""
