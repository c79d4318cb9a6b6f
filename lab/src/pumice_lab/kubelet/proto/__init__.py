"""The kubelet's protocols as the laboratory plays them: the socket of pods' resources, and the stubs of the device plugins'."""
