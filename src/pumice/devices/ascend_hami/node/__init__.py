"""Ascend NPUs in HAMi's mode on a node (spec ascend 15 to 18): what the node says of them, and what a container is given."""
