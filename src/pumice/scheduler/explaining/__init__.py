"""Reasons for which a pod waits, and what would let it in."""
