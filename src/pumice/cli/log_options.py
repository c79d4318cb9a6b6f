"""Log format and level, and durations as Go writes them: what the flags of daemons mean."""

from __future__ import annotations

import logging
from enum import StrEnum

from pumice.model.errors import BadInput
from pumice.wire.duration import parse_duration


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def setup_logging(log_format: LogFormat, level: str = "", verbosity: int = 3) -> None:
    """Log to stderr from ``level`` up; where that is empty, ``verbosity`` counts as upstream's -v does. Raises BadInput."""
    from pumice.apps.service.logs import log_to

    number = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 1 else logging.WARNING
    if level:
        found = getattr(logging, level.upper(), None)
        if not isinstance(found, int):
            raise BadInput(f"--log-level {level!r}: use debug, info, warning or error")
        number = found
    log_to(level=number, as_json=log_format is LogFormat.JSON)


def duration(flag: str, text: str) -> float:
    """Seconds of a Go duration such as ``1h2m3s`` or ``500ms``. Raises BadInput that names the flag."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{flag}: {error}") from None
