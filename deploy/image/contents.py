"""The contents of the image (contents.toml), and the Dockerfile that says the same."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NEVER_BUILT = """\
# Made of contents.toml by `python3 deploy/image/build.py --dockerfile`. Nobody has ever built it, for there was no Docker
# where it was made: what is tested is the image that `make image` writes."""


@dataclass(frozen=True, slots=True)
class Contents:
    """``python`` is Debian's name for its interpreter, as python3.11."""

    said: dict[str, Any]
    python: str

    @property
    def packages(self) -> list[str]:
        return [name.format(python=self.python) for name in self.said["debian"]["packages"]]

    @property
    def without(self) -> frozenset[str]:
        return frozenset(self.said["debian"]["without"])

    @property
    def home(self) -> str:
        """Where Python's packages lie."""
        return str(self.said["python"]["home"].format(python=self.python))

    @property
    def config(self) -> dict[str, Any]:
        image = self.said["image"]
        return {"Entrypoint": image["entrypoint"], "Env": image["environment"], "User": image["user"]}

    def holds(self, path: str) -> bool:
        """Return whether a path, without the first slash, is in the image."""
        out, kept = self.said["left_out"]["paths"], self.said["left_out"]["kept"]
        return any(fnmatchcase(path, one) for one in kept) or not any(fnmatchcase(path, one) for one in out)

    @property
    def passwd(self) -> str:
        return "".join(f"{name}:x:{number}:{number}::/nonexistent:/usr/sbin/nologin\n" for name, number in self._users())

    @property
    def group(self) -> str:
        return "".join(f"{name}:x:{number}:\n" for name, number in self._users())

    def _users(self) -> list[tuple[str, int]]:
        return list(self.said["image"]["users"].items())

    def dockerfile(self, version: str) -> str:
        """The same image by Docker's tools, after `make wheel`."""
        debian, home, said = self.said["debian"], "/" + self.home, self.said["image"]
        packages = " ".join(name for name in self.packages if name != "base-files")
        rooted = (path if path.startswith("*") else f"/{path}" for path in self.said["left_out"]["paths"])
        out = " -o ".join(f"\\\n        -path '{path}'" for path in rooted)
        kept = " ".join(f"! -path '/{path}'" for path in self.said["left_out"]["kept"])
        more = "\n".join(f"ENV {pair}" for pair in said["environment"])
        users = " && ".join(f"echo '{line}' >> /etc/{file}" for file, text in (("passwd", self.passwd), ("group", self.group))
                            for line in text.splitlines() if not line.startswith("root:"))  # fmt: skip
        entry = ", ".join(f'"{word}"' for word in said["entrypoint"])
        install = "apt-get update && apt-get install -y --no-install-recommends"
        return f"""\
{NEVER_BUILT}
# docker build -f deploy/image/Dockerfile -t {said["name"]}:{version} .
FROM debian:{debian["release"]} AS packages
RUN {install} python3-pip
COPY dist/pumice-{version}-*.whl constraints.txt /tmp/
RUN python3 -m pip install --no-compile --only-binary=:all: --constraint /tmp/constraints.txt --target {home} \\
        "$(ls /tmp/pumice-*.whl)[{self.said["python"]["extra"]}]" \\
    && python3 -m compileall -q --invalidation-mode unchecked-hash {home}

FROM debian:{debian["release"]}-slim AS files
RUN {install} {packages} \\
    && ln -sf {self.python} /usr/bin/python3 && rm -rf /var/lib/apt/lists/* \\
    && {users}
COPY --from=packages {home} {home}
COPY --chmod=755 deploy/image/pumice /usr/bin/pumice
RUN find / -xdev \\( {out} \\) {kept} -delete

FROM scratch
COPY --from=files / /
{more}
USER {said["user"]}
ENTRYPOINT [{entry}]
"""


def read(python: str) -> Contents:
    return Contents(tomllib.loads((HERE / "contents.toml").read_text("utf-8")), python)
