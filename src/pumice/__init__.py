"""Pumice: fractions of GPUs and NPUs, on one machine or a Kubernetes cluster."""

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pumice.model.errors import PumiceError
    from pumice.sharing import Card, CardShare, Share, cards, share, shares

__all__ = ["Card", "CardShare", "PumiceError", "Share", "cards", "share", "shares"]


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: commands start without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("pumice.model.errors" if name == "PumiceError" else "pumice.sharing"), name)
