"""Log format and level, and durations as Go writes them: what the flags of daemons mean.

Logging of daemons: one line for people, or one JSON object per line, the same for all of them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pumice.model.errors import BadInput
from pumice.wire.quantity import parse_duration

LINE = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


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


def log_to(path: Path | None = None, *, level: int = logging.INFO, as_json: bool = False) -> None:
    """Log to a file, or to stderr. What others than we say is logged from warnings up."""
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    handler.setFormatter(JsonFormatter() if as_json else LINE)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pumice").setLevel(level)


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def setup_logging(log_format: LogFormat, level: str = "", verbosity: int = 3) -> None:
    """Log to stderr from ``level`` up; where that is empty, ``verbosity`` counts as upstream's -v does. Raises BadInput."""

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
