"""Containers as local processes. Kept empty: the spawner imports this package with the standard library only."""
