"""Logs as text or JSON, and durations as Go writes them: what the flags of scheduler and controller mean."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from pumice.model.errors import BadInput
from pumice.wire.duration import parse_duration


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def setup_logging(log_format: LogFormat, verbosity: int = 3) -> None:
    """Log to stderr; ``verbosity`` counts as upstream's -v does."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format is LogFormat.JSON:
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s %(message)s"))
    level = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 1 else logging.WARNING
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pumice").setLevel(level)


def duration(flag: str, text: str) -> float:
    """Seconds of a Go duration such as ``1h2m3s`` or ``500ms``. Raises BadInput that names the flag."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{flag}: {error}") from None
