"""Exceptions that a daemon catches, logs and survives: an object that it sets aside for a defect of its own is found here, and
nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.property.history.checker import told
from tests.property.plane import last_release

from pumice.model.errors import PumiceError

OURS = ("pumice", last_release.NAME)
"""The loggers above those of all daemons, this release's and the last one's."""
EXPECTED = (PumiceError, OSError, TimeoutError)
"""Refusals of the API server, of a disk, of a driver."""


class Catcher(logging.Handler):
    """Tells each unexpected exception that is logged with its traceback."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, EXPECTED):
            self._told(f"{record.name} caught {told(error)}: {record.getMessage()}")


@contextmanager
def exceptions_told(told: Callable[[str], None]) -> Iterator[None]:
    """Let nothing else of the logs through, and put everything back at the end."""
    loggers, disabled, handler = [logging.getLogger(name) for name in OURS], logging.root.manager.disable, Catcher(told)
    before = [(logger, logger.propagate, logger.level) for logger in loggers]
    logging.disable(logging.WARNING)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, propagated, level in before:
            logger.removeHandler(handler)
            logger.propagate = propagated
            logger.setLevel(level)
        logging.disable(disabled)
