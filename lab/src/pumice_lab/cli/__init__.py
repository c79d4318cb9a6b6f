"""The laboratory's commands of ``pumice``, found by the entry points of this distribution."""
