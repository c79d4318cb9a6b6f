"""Steps of a forked child before it execs: namespaces, mounts, user, program. Standard library only (see spawner).

It tells through a pipe: one line when it is inside its namespaces, then JSON when something failed, else the pipe closes
with the exec.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import termios
from typing import Any, NoReturn

from pumice_lab.runtime import rootfs
from pumice_lab.runtime.signals import refuse_to_signal_all

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
