"""The container's memory in use as programs see it: total minus free. Used by other scripts of this folder."""

from driver import info

MIB = 1 << 20
BLOCK = 64 * MIB
before = 0


def in_use():
    available, total = info()
    return total - available


def begin():
    """Take the present use as the base of later figures."""
    global before
    before = in_use()


def used():
    return in_use() - before
