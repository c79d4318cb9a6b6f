"""Ascend NPUs in HAMi's mode on a node (HAMi ascend-device-plugin): what the node says of them, and what a container is given."""
