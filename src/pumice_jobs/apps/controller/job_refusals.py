"""Answers of the API server that waiting alone does not change."""

from __future__ import annotations

from pumice.ports.cluster import ApiError


class NotTaken(ApiError):
    """An answer that will not change by waiting alone: the object is invalid, or forbidden."""

    action = "SyncJob"


class GroupNotTaken(NotTaken):
    """That answer to its PodGroup."""


def lasting(error: ApiError) -> bool:
    """Return whether an error is such an answer; conflicts, outages and overload are not."""
    return 400 <= error.code < 500 and error.code not in (401, 404, 408, 409, 410, 429)


def refused(error: ApiError, kind: type[NotTaken] = NotTaken) -> ApiError:
    """The error as such an answer, where it is one."""
    if not lasting(error):
        return error
    return kind(error.code, error.reason, error.message, error.retry_after)
