"""CANN's runtime (AscendCL), as little of it as a load needs."""

from pumice.adapters.ascendcl.driver import AclDriver

__all__ = ["AclDriver"]
