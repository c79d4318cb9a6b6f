"""Which extra of this package brings what a command imports: `pumice` alone is for one machine without a cluster."""

from __future__ import annotations

from typing import Final

from pumice.model.errors import Unavailable

BROUGHT_BY: Final = {
    "kubernetes": ("aiohttp", "cryptography", "google", "grpc", "httptools", "numpy"),
    "local": ("lark", "re2"),
}
"""By the name it is imported by; pyproject.toml has them by the name they are installed by."""
LEFT_OUT_OF_IMAGES: Final = ("pumice.cluster", "pumice.machine")


def missing(command: str, error: ModuleNotFoundError, *, all_of_local: bool = False) -> Unavailable:
    """The sentence for a command that does not find a package. Raises the error itself where our own module is missing."""
    package = (error.name or "pumice").partition(".")[0]
    if (error.name or "").startswith(LEFT_OUT_OF_IMAGES):
        return Unavailable(f"{command} is not part of this image, which holds the daemons alone; it is where Pumice is installed")
    if package == "pumice":
        raise error
    extra = next((extra for extra, brought in BROUGHT_BY.items() if package in brought), "")
    wanted = "[local]" if all_of_local else f"[{extra}]" if extra else ""
    lacking = f"{command} needs the Python package {package}, which is not installed"
    return Unavailable(f"{lacking}; pip install 'pumice{wanted}' brings it")
