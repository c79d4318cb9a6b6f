"""The monitor daemon of a node."""
