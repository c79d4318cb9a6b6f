"""A filter of system calls for containers, which have no process namespace (ADR 4): ``kill(-1, ...)`` is refused.

In a pod of a real cluster `kill -9 -1` ends the container. Here it would end every process of the user, under root those of
the whole machine. Standard library only (see spawner).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os

from pumice_lab.runtime import rootfs

PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in ``struct seccomp_data`` (linux/seccomp.h); of the argument the low half, little endian."""
_KILL = (
    (0xC000003E, 62),  # x86-64
    (0xC000003E, 62 | 0x40000000),  # its x32
    (0x40000003, 37),  # i386
    (0xC00000B7, 129),  # arm64
    (0x40000028, 37),  # arm
)
"""AUDIT_ARCH_* (linux/audit.h) and the number of kill there."""


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def _instructions() -> list[tuple[int, int, int, int]]:
    block_end = 7
    found = []
    for arch, number in _KILL:
        found += [
            (_LOAD_WORD, 0, 0, _ARCH),
            (_JUMP_IF_EQUAL, 0, block_end - 2, arch),
            (_LOAD_WORD, 0, 0, _NR),
            (_JUMP_IF_EQUAL, 0, block_end - 4, number),
            (_LOAD_WORD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_IF_EQUAL, 0, block_end - 6, 0xFFFFFFFF),
            (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM),
        ]
    return [*found, (_RETURN, 0, 0, _RET_ALLOW)]


def refuse_to_signal_all() -> None:
    """Refuse ``kill(-1, ...)`` to this process and all that it starts, with EPERM. Call it before the user is changed.

    Root, also of a user namespace, may set a filter as it is; others give up setuid programs for it. A kernel without
    seccomp leaves things as they are.
    """
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        return
    rows = [_Instruction(*row) for row in _instructions()]
    program = _Program(len(rows), (_Instruction * len(rows))(*rows))
    with contextlib.suppress(OSError):
        if os.geteuid() != 0:
            rootfs.prctl(PR_SET_NO_NEW_PRIVS, 1)
        rootfs.syscall(number, _SET_MODE_FILTER, _SPEC_ALLOW, ctypes.byref(program), what="seccomp")
