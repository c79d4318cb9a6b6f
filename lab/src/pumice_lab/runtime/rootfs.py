"""A container's own view of the local root: mount namespace, mirrored directories, bind mounts.

Standard library only: the spawner imports this without site-packages. Everything runs in a forked child that is
about to exec, so an error is an OSError with the path that failed.

A mount point that the host lacks is never made on the host. The nearest existing directory above it is mirrored:
a tmpfs over it, inside the namespace, with every entry of the original bound back in. The technique needs nothing but
a mount namespace, so it is the same as root and inside a user namespace (bubblewrap builds its root so, too).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Sequence
from typing import Any, TypedDict

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x04000000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYMLINKS_MAX = 40

_libc = ctypes.CDLL(None, use_errno=True)


class MountRequest(TypedDict):
    source: str
    target: str
    read_only: bool
    own: bool  # the source lies in the data dir: mount points may be made in it


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    _check(_libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags),
                       data.encode() or None), target)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    _check(_libc.setns(fd, flags), "setns")


def prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def syscall(number: int, *arguments: Any, what: str) -> None:
    _check(_libc.syscall(number, *arguments), what)


def set_hostname(name: str) -> None:
    raw = name.encode()[:63]
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def pivot_root(new: str, old: str) -> None:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, "pivot_root is not known for this machine", os.uname().machine)
    syscall(number, new.encode(), old.encode(), what=f"pivot_root {new}")


def enter_namespaces(isolation: str) -> None:
    """Unshare for isolation ``mount`` or ``user``; inside a user namespace the caller is mapped to root."""
    if isolation == "user":
        uid, gid = os.geteuid(), os.getegid()
        unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    else:
        unshare(CLONE_NEWNS | CLONE_NEWUTS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def build_root(stage: str, mounts: Sequence[MountRequest]) -> None:
    """Make the root of this namespace a mirror of the host's with ``mounts`` on it. ``stage``: any empty directory."""
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
    os.mkdir(f"{stage}/host")
    os.mkdir(f"{stage}/new")
    # The first pivot moves the host below /host, so that binding the host's tree does not bind the stage with it.
    pivot_root(stage, f"{stage}/host")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    view = _View("/new", "/host")
    _bind_entries("/host", "/new")
    for request in sorted(mounts, key=lambda m: m["target"].rstrip("/").count("/")):
        view.add(request)
    os.chdir("/new")
    pivot_root(".", ".")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the host's root")
    os.chdir("/")


def _bind_entries(source: str, target: str) -> None:
    """Bind each entry of ``source`` into the empty directory ``target``; links are copied."""
    with os.scandir(source) as entries:
        for entry in entries:
            place = f"{target}/{entry.name}"
            try:
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), place)
                    continue
                _make_point(place, entry.is_dir(follow_symlinks=False))
                mount(f"{source}/{entry.name}", place, flags=MS_BIND | MS_REC)
            except OSError:
                continue  # an entry that vanished or may not be bound is no reason to refuse the container


class _View:
    """The container's root while it is being put together at ``root``; the host's tree is at ``host``."""

    def __init__(self, root: str, host: str) -> None:
        self.root, self.host = root, host
        self.ours = {os.stat(root).st_dev}  # tmpfs mounted here: nobody else sees what is made in them
        self.volumes: dict[str, bool] = {}  # mounted so far -> may mount points be made inside?

    def add(self, request: MountRequest) -> None:
        source = _resolve(self.host, request["source"])
        is_dir = stat.S_ISDIR(os.stat(source).st_mode)
        target = _resolve(self.root, request["target"])
        if target == self.root:
            raise OSError(22, "cannot mount over the root", request["target"])
        if not os.path.lexists(target):
            self._provide(target, is_dir)
        mount(source, target, flags=MS_BIND | MS_REC)
        self.volumes[target] = request["own"] and not request["read_only"]
        if request["read_only"]:
            mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | _locked_flags(target))

    def _provide(self, target: str, is_dir: bool) -> None:
        """Make ``target`` exist, in the namespace or in the data dir only."""
        above = os.path.dirname(target)
        missing = []
        while not os.path.lexists(above):
            missing.append(above)
            above = os.path.dirname(above)
        if not self._may_make_in(above):
            self._mirror(above)
        for path in reversed(missing):
            os.mkdir(path)
        _make_point(target, is_dir)

    def _may_make_in(self, path: str) -> bool:
        if os.stat(path).st_dev in self.ours:
            return True
        while path != self.root:
            if path in self.volumes:
                return self.volumes[path]
            path = os.path.dirname(path)
        return False

    def _mirror(self, path: str) -> None:
        info = os.stat(path)
        original = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={stat.S_IMODE(info.st_mode):o}")
            with contextlib.suppress(OSError):  # the owner may not be mapped in this user namespace
                os.chown(path, info.st_uid, info.st_gid)
            _bind_entries(f"{self.host}/proc/self/fd/{original}", path)
        finally:
            os.close(original)
        self.ours.add(os.stat(path).st_dev)


def _locked_flags(path: str) -> int:
    """Flags that a user namespace must keep on a remount."""
    present = os.statvfs(path).f_flag
    table = {os.ST_NOSUID: MS_NOSUID, os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: MS_NOATIME,
             os.ST_NODIRATIME: MS_NODIRATIME, os.ST_RELATIME: MS_RELATIME}
    return sum(flag for bit, flag in table.items() if present & bit)


def _make_point(path: str, is_dir: bool) -> None:
    if is_dir:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _resolve(root: str, path: str) -> str:
    """``path`` with its links followed as if ``root`` were the root; parts that do not exist are kept."""
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            del done[-1:]
            continue
        here = "/".join([root, *done, part])
        if os.path.islink(here):
            links += 1
            if links > _SYMLINKS_MAX:
                raise OSError(40, os.strerror(40), path)
            link = os.readlink(here)
            if link.startswith("/"):
                done.clear()
            todo.extend(p for p in reversed(link.split("/")) if p not in ("", "."))
        else:
            done.append(part)
    return "/".join([root, *done]) if done else root
