"""Device families, pure: one folder each. ``seam`` is the contract that the engine drives."""
