"""One attempt of a tenant to get past the library: break_out.py WHAT.

Does it, takes blocks of 64 MiB until there are no more, says [what came of it, blocks], and holds them until its input ends.
"""

import ctypes as c
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(__file__))

BLOCK, NEW_NAMESPACE, DEEPBIND, FORK = 64 << 20, -1, 8, 57
NAME = "libcuda.so.1"
libc = c.CDLL(None)
stopped: list[subprocess.Popen[str]] = []


def folder_of_the_driver():
    return next(folder for folder in os.environ["LD_LIBRARY_PATH"].split(":") if os.path.exists(f"{folder}/{NAME}"))


def copied():
    folder = tempfile.mkdtemp()
    shutil.copy(f"{folder_of_the_driver()}/{NAME}", folder)
    return folder


def opened(path, mode=c.DEFAULT_MODE):
    return c.CDLL(path, mode=mode)


def in_a_namespace():
    libc.dlmopen.restype = c.c_void_p
    handle = libc.dlmopen(c.c_long(NEW_NAMESPACE), NAME.encode(), os.RTLD_NOW)
    if not handle:
        raise OSError("no namespace of its own to be had")
    return c.CDLL(NAME, handle=handle)


def again(*words, **environment):
    """This program anew, with the driver's plain name."""
    os.execve(words[0], [*words, "-I", "-S", __file__, "nothing"], os.environ | environment)


def begin(cuda):
    context = c.c_void_p()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0), cuda.cuCtxSetCurrent(context)]
    return next((code for code in codes if code), 0)


def take(cuda):
    count = 0
    while cuda.cuMemAlloc_v2(c.byref(c.c_uint64()), c.c_size_t(BLOCK)) == 0:
        count += 1
    return count


def by_threads(cuda):
    def run():
        begin(cuda)
        counts.append(take(cuda))

    counts: list[int] = []
    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def by_another(cuda, split):
    """A process of its own takes all it gets and says so, and this one takes what is left."""
    reading, writing = os.pipe()
    if split() == 0:
        begin(cuda)
        os.write(writing, str(take(cuda)).encode())
        os.close(writing)
        os.close(1)
        os.close(2)
        os.read(0, 1)  # it ends with the program that made it
        os._exit(0)
    os.close(writing)
    return int(os.read(reading, 100) or b"0")


def raw_fork():
    """No handler of the C library is run."""
    return libc.syscall(FORK)


def orphan():
    """Of another session, and nobody's child."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
    else:
        os.waitpid(pid, 0)
    return pid


def attempt(what):
    """The answer, and the blocks that it got."""
    cuda = opened(NAME)
    match what:
        case "nothing" | "by threads" | "by a raw fork" | "by an orphan" | "closing everything":
            pass
        case "a copy of the driver":
            cuda = opened(f"{copied()}/{NAME}")
        case "a namespace of the loader":
            cuda = in_a_namespace()
        case "bound deeply":
            cuda = opened(NAME, DEEPBIND | os.RTLD_NOW)
        case "the driver by another path":
            again(sys.executable, LD_LIBRARY_PATH=f"{copied()}:{os.environ['LD_LIBRARY_PATH']}")
        case "the loader as a program":
            with open("/proc/self/maps") as maps:
                loader = next(line.split()[-1] for line in maps if "/ld-linux" in line)
            again(loader, sys.executable)
        case "spawned without anything":
            kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PUMICE_MACHINE")}
            os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", __file__, "nothing"], kept)
            os.wait()
            os._exit(0)
        case "no descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
        case "a stopped sibling":
            words = [sys.executable, "-I", "-S", __file__, "nothing"]
            sibling = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            sibling.stdout.readline()
            sibling.send_signal(signal.SIGSTOP)
            stopped.append(sibling)
        case _:
            raise SystemExit(f"no such attempt: {what}")
    rc = begin(cuda)
    match what:
        case "closing everything":
            os.closerange(3, 65536)
        case "by threads":
            return str(rc or ""), by_threads(cuda)
        case "by a raw fork":
            return str(rc or ""), by_another(cuda, raw_fork) + take(cuda)
        case "by an orphan":
            return str(rc or ""), by_another(cuda, orphan) + take(cuda)
    return str(rc or ""), take(cuda)


if __name__ == "__main__":
    from driver import hear, say

    try:
        say(attempt(sys.argv[1]))
    except (OSError, AttributeError) as error:
        say([str(error), 0])
    hear()
    for process in stopped:
        process.kill()
