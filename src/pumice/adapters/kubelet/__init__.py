"""The kubelet speaks gRPC over unix sockets: its device plugin and pod resources protocols."""
