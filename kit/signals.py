"""Signals as a terminal gives them to a program, whatever started us."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """Let Ctrl-C and Ctrl-\\ end this program and what it starts. A shell without job control starts what it puts into the
    background with both ignored, and children inherit that."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)
