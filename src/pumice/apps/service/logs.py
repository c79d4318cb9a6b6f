"""Logging of daemons: one line for people, or one JSON object per line, the same for all of them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

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
