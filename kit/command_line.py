"""A command, called inside the test's own process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from pumice.cli import flags, reading


@dataclass(frozen=True)
class Called:
    """``exception``: what it raised, also where it ended itself."""

    stdout: str
    stderr: str
    exit_code: int
    exception: BaseException | None


def call(app: flags.App, words: Sequence[str]) -> Called:
    raised: BaseException | None = None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            reading.run(app.build(), words)
        except (Exception, SystemExit) as error:
            raised = error
    code = 0 if raised is None else 1
    if isinstance(raised, SystemExit):
        code = raised.code if isinstance(raised.code, int) else int(raised.code is not None)
    return Called(out.getvalue(), err.getvalue(), code, raised)
