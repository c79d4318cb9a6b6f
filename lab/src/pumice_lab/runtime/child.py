"""Steps of a forked child before it execs: namespaces, mounts, user, program. Standard library only (see spawner).

It tells through a pipe: one line when it is inside its namespaces, then JSON when something failed, else the pipe closes
with the exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import termios
from typing import Any, NoReturn

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


Message = dict[str, Any]


def become_container(spec: Message, isolation: str, streams: tuple[int, int, int], report: int) -> NoReturn:
    """``streams``: stdin or the terminal (-1: none), stdout, stderr."""
    stage = "namespaces"
    try:
        os.setsid()
        _join_network(spec["network"])
        console, out, err = streams
        if console < 0:
            console = os.open("/dev/null", os.O_RDONLY)
        elif spec["tty"]:
            out = err = console
        for source, target in ((console, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        report = _keep_only(report)
        if spec["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if isolation != "none":
            rootfs.enter_namespaces(isolation)
            if spec["hostname"]:
                rootfs.set_hostname(spec["hostname"])
        os.write(report, b"\n")
        if isolation != "none":
            stage = "mounts"
            rootfs.build_root(spec["stage"], spec["mounts"])
        stage = "user"
        _become_user(spec)
        stage = "cwd"
        os.chdir(spec["cwd"] or "/")
        stage = "exec"
        _exec_program(spec["argv"], spec["env"])
    except BaseException as error:
        _report(report, stage, error)


def become_exec(message: Message, spec: Message, isolation: str, pid: int, fds: list[int], report: int) -> NoReturn:
    stage = "namespaces"
    try:
        os.setsid()
        for source, target in zip(fds, (0, 1, 2), strict=True):
            os.dup2(source, target)
        report = _keep_only(report)
        os.write(report, b"\n")
        _join_network(spec["network"])
        if message["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if isolation != "none":
            user = rootfs.CLONE_NEWUSER if isolation == "user" else 0
            handle = os.pidfd_open(pid)
            rootfs.setns(handle, user | rootfs.CLONE_NEWNS | rootfs.CLONE_NEWUTS)
            os.close(handle)
        stage = "user"
        _become_user(spec)
        stage = "cwd"
        os.chdir(spec["cwd"] or "/")
        stage = "exec"
        _exec_program(message["argv"], {**spec["env"], **message["env"]})
    except BaseException as error:
        _report(report, stage, error)


def _join_network(namespace: str) -> None:
    """Before any user namespace, whose root may not enter what the machine's root made."""
    if namespace:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        rootfs.setns(descriptor, rootfs.CLONE_NEWNET)
        os.close(descriptor)


def _keep_only(report: int) -> int:
    """Close everything but 0, 1, 2 and the report pipe, which becomes descriptor 3."""
    if report != 3:
        os.dup2(report, 3, inheritable=False)
    os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    signal.set_wakeup_fd(-1)
    return 3


def _become_user(spec: Message) -> None:
    refuse_to_signal_all()
    if spec["group"] is not None and os.getegid() != spec["group"]:
        os.setgroups([])
        os.setresgid(spec["group"], spec["group"], spec["group"])
    if spec["user"] is not None and os.geteuid() != spec["user"]:
        os.setresuid(spec["user"], spec["user"], spec["user"])
    rootfs.prctl(rootfs.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    if os.getppid() != spec["spawner"]:
        raise OSError(3, "the spawner is gone")


def _exec_program(argv: list[str], env: dict[str, str]) -> NoReturn:
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    program = argv[0]
    if "/" in program:
        os.execve(program, argv, env)
    denied: OSError | None = None
    for directory in env.get("PATH", "").split(":"):
        try:
            os.execve(os.path.join(directory or ".", program), argv, env)
        except PermissionError as error:
            denied = error
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise denied or FileNotFoundError(2, "executable file not found in $PATH", program)


def _report(pipe: int, stage: str, error: BaseException) -> NoReturn:
    number = error.errno if isinstance(error, OSError) else 0
    text = (error.strerror or str(error)) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    named = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else ""
    body = json.dumps({"stage": stage, "errno": number, "message": text, "path": named}).encode()
    with contextlib.suppress(OSError):
        os.write(pipe, (b"\n" if stage == "namespaces" else b"") + body)
    os._exit(127)
