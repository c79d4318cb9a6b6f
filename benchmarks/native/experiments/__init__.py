"""The experiments E0 to E15 on libvgpu: written for a real card, carried as far as it goes by an emulated one.

One function an experiment, listed in ``catalogue.py``. What runs on the card runs in processes of its own (``worker.py``),
through the driver API alone (``cuda.py``) with kernels as PTX text (``kernels.py``); the same code meets a real driver and the
emulated one.
"""
