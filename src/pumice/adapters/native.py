"""Where the libraries lie that are built with the package."""

from pathlib import Path


def vgpu_library() -> Path:
    """``libvgpu.so`` of this installation; whoever asks looks whether it was built."""
    return Path(__file__).resolve().parents[1] / "_native" / "vgpu" / "libvgpu.so"
