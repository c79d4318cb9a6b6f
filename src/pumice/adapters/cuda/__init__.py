"""CUDA's driver API, as far as a small load program needs it."""
