"""The daemons of a node that serve the kubelet: device plugins."""
