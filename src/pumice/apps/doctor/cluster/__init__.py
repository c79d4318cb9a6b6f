"""Is a cluster as it must be? A table of checks over what its API server tells: what is wrong, and how it is mended."""
