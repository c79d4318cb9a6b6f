"""Ascend chips cut on demand on a node, as MindCluster's device plugin does it (MindCluster ascend-device-plugin): what the
node says of its
chips, which pod a call is for, and the slices that are made for it."""
