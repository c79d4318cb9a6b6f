"""``nvidia-smi`` for emulated machines: the common ways to ask, answered through nvidia-ml-py.

It shows what NVML says to this process, so a container under libvgpu sees its own limits. It is called ``nvidia-smi`` only
in the ``bin`` folder of a machine directory, says in its header what it is, and refuses to run anywhere else.
"""
