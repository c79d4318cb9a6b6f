"""One attempt of a tenant to get more than was granted, from inside: attempt.py WHAT [DEVICE].

Does it, then takes blocks of memory until there are no more, says [what came of it, blocks of 64 MiB], and holds them until its
input ends.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

PAGE, REGION, BLOCK = "/usr/local/vgpu/limits", "/tmp/vgpu/0.cache", 64 << 20
NEEDED = ("LD_LIBRARY_PATH", "PUMICE_MACHINE")


def write(path, at, content):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def tried(*actions):
    """The errors of actions that were refused; empty where one went through."""
    names = []
    for action in actions:
        try:
            action()
        except OSError as error:
            names.append(type(error).__name__ + str(error.errno))
        else:
            return ""
    return " ".join(names)


def again(what):
    """This program anew with a cleared environment: only what the emulated machine needs stays."""
    kept = {name: os.environ[name] for name in NEEDED}
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, what, *sys.argv[2:]], kept)


def attempt(what):
    match what:
        case "nothing":
            return ""
        case "scrubbed":
            again("nothing")
        case "write the page":
            return tried(lambda: write(PAGE, 376, bytes(8)), lambda: os.unlink(PAGE), lambda: os.truncate(PAGE, 0),
                         lambda: os.rename(PAGE, PAGE + ".old"))  # fmt: skip
        case "remove the region":
            return tried(lambda: os.unlink(REGION), lambda: os.rename(REGION, REGION + ".old"), lambda: os.rmdir("/tmp/vgpu"))
        case "zero the region's limits":
            return tried(lambda: write(REGION, 1600, bytes(128)))
        case "zero the region's head":
            return tried(lambda: write(REGION, 0, bytes(8)))
        case "zero the extension's head":
            return tried(lambda: write(REGION, 2011136, bytes(8)))
        case "zero every process":
            return tried(lambda: write(REGION, 1856, bytes(1960 * 1024)), lambda: write(REGION, 2015232, bytes(320 * 1024)))
        case "zero the joints":
            return tried(lambda: write(REGION, 2342912, bytes(131072)))
        case "say that no process was ever there":
            return tried(lambda: write(REGION, 2008896, bytes(4)))
        case "cut the region short":
            return tried(lambda: os.truncate(REGION, 0))
        case "switch the region's limits off":
            return tried(lambda: write(REGION, 2008900, bytes(4)))
        case "rename the region's cards":
            return tried(lambda: write(REGION, 64, b"GPU-00000000-0000-0000-0000-000000000000"))
        case "fill the region with processes":
            return tried(lambda: [write(REGION, 1856 + 1960 * slot, b"\1\0\0\0") for slot in range(1024)])
    raise SystemExit(f"no such attempt: {what}")


if __name__ == "__main__":
    came_of_it = attempt(sys.argv[1])
    from driver import alloc, hear, say, start

    count = 0
    try:
        start(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
        while alloc(BLOCK)[0] == 0:
            count += 1
    except Exception as error:
        came_of_it += f" {error}"
    say([came_of_it, count])
    hear()
