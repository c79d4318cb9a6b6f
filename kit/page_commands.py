"""The commands of the documents' pages, typed as a reader types them: ``python -m kit.page_commands PAGE...`` shows their times.

A page is its own script. What it shows below a command must be what the command prints; ``…`` stands for anything, a line of it
alone for any lines. A command that says `Ctrl-C` runs beside the others of its block. Comments of HTML say the rest:

- ``<!-- prepare: COMMANDS -->``: typed here before what follows, and no reader sees it;
- ``<!-- differs: PATTERN -->``: in the next block figures and bars within a match may differ;
- ``<!-- until Ctrl-C: PATTERN -->``: commands of the next block with a match run beside the others, as those that say `Ctrl-C`;
- ``<!-- prints: PATTERN -->``: what the next block prints has a match;
- ``<!-- then: COMMANDS -->``: typed here after the next block, and each must succeed: what it does where it prints nothing fixed;
- ``<!-- not run: REASON; TEST types it -->``: the next block is typed by `make e2e` alone, in that file;
- ``<!-- run by TEST -->``, ``<!-- all run by TEST -->``: the next block, or every block, is typed by that file of tests.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from kit.signals import heed_interrupts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TYPED = frozenset({"sh", "console", "python"})
"""Kinds of blocks that somebody types."""
COMMAND = re.compile(r"(\$ |sudo |(pumice|kubectl|helm|vcctl|make|ctr|curl|pip|nvidia-smi)\s+(?!:)\S)")
"""Beginning of a line that is a command whatever its block is called."""
LOOKS = re.compile(r"(pumice (explain|top|ps|status|inspect|usage|doctor|defrag plan|queue|(job|pod|jobflow|jobtemplate) list)|"
                   r"\S*nvidia-smi$|vcctl \w+ (list|view|get|describe)|vjobs|vqueues|"
                   r"kubectl (get|logs|top|wait|exec|rollout status|describe)|cat|sleep)\b")  # fmt: skip
"""Commands that change nothing: a reader who is too early types them once more."""
TELLS = re.compile(r"pumice (doctor|lint|convert|mig plan|replay|diff|defrag plan)\b")
"""Commands that end with 1 when they have something to say."""
FAREWELL = 60.0
"""Seconds after Ctrl-C in which a program ends."""
NOTICE = re.compile(r"pumice [\w ]+: on the emulated machine .*, no real card is used\n")
VARIES = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"\bpid \d+", "pid …"),
    (r"^(r\d+ +)\d+", r"\g<1>…"),
    (r"\br(\d+)_[\d-]+", r"r\g<1>_…"),
    (r"\b127(\.\d+){3}(:\d+)?", "ADDRESS"),
    (r"\b10(\.\d+){3}\b", "ADDRESS"),
    (r"\?token=[\w-]+", "?token=…"),
    (r"\bpod-?group-[0-9a-f-]{36}", "podgroup-…"),
    (r"\bMIG-[0-9a-f-]{36}", "MIG-…"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*", "TIME"),
    (r"\b\d+(\.\d+)?(ms|s|m|h|d)\d*s?\b", "AGE"),
    (r"\b\d+ min\b", "AGE"),
    (r"\(\d+\.\d s\)", "(…)"),
    (r"[ \t]+", " "),
)
"""Processes, addresses, ages, names made up by controllers; and how wide columns are: what no two runs have in common."""


@dataclass
class Block:
    """A fenced block of a page with what its page says of it. ``shown``: what stands below its commands, if anything."""

    line: int
    kind: str
    text: str
    shown: str | None = None
    differs: str = ""
    endless: str = "(?!)"
    prints: list[str] = field(default_factory=list)
    not_run: str | None = None
    run_by: str = ""
    prepare: list[str] = field(default_factory=list)
    then: list[str] = field(default_factory=list)

    @property
    def typed(self) -> bool:
        return self.kind in TYPED

    @property
    def here(self) -> bool:
        """True where it is typed by a reader of this module."""
        return self.typed and self.not_run is None and not self.run_by

    @property
    def compared(self) -> bool:
        """True where something that it prints or does is looked at."""
        below = self.kind == "console" and any(shown for _, shown in dialogue(self.text))
        return bool(below or self.shown or self.prints or self.then)


def pages() -> list[Path]:
    """Return what users read. Decisions are left out, and translations, whose blocks are their originals'."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if path.relative_to(DOCS).parts[0] not in ("adr", "zh")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *found]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order, each with what its page says of it."""
    found: list[Block] = []
    said = Block(0, "", "")
    everywhere = "".join(re.findall(r"<!-- all run by (\S+) -->", text))
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("<!--"):
            end = next(n for n in range(at, len(lines)) if "-->" in lines[n])
            remark = dedent("\n".join(lines[at : end + 1]).strip().removeprefix("<!--").removesuffix("-->")).strip()
            word, _, rest = remark.partition(": ")
            if word == "differs":
                said.differs = rest
            elif word == "until Ctrl-C":
                said.endless = rest
            elif word == "prints":
                said.prints.append(rest)
            elif word.rstrip(":") == "not run":
                said.not_run = rest
            elif remark.startswith("run by "):
                said.run_by = remark.removeprefix("run by ")
            elif remark.startswith("prepare:"):
                said.prepare.append(dedent(remark.removeprefix("prepare:")).strip())
            elif remark.startswith("then:"):
                said.then.append(dedent(remark.removeprefix("then:")).strip())
            at = end + 1
        elif fence := re.match(r"( *)(?:\d+\. +|- +)?```(\w*)", line):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == "```")
            body = dedent("\n".join(lines[at + 1 : end])) + "\n"
            said.line, said.kind, said.text = at + 1, fence[2], body
            if said.kind == "text" and found and found[-1].kind == "sh" and found[-1].shown is None:
                found[-1].shown, found[-1].differs = body, said.differs
            else:
                said.run_by = said.run_by or (everywhere if said.typed else "")
                found.append(said)
            said = Block(0, "", "")
            at = end + 1
        else:
            at += 1
    return found


def commands(script: str) -> Iterator[str]:
    """Yield the commands of a block one by one, as a terminal would see that they are complete."""
    held: list[str] = []
    for line in script.splitlines():
        if not held and (not line.strip() or line.startswith("#")):
            continue
        held.append(line)
        done = subprocess.run(["bash", "-nc", "\n".join(held)], capture_output=True, text=True)
        if not done.returncode and not done.stderr and not line.endswith("\\"):
            yield "\n".join(held)
            held = []
    if held:
        raise ValueError(f"no shell takes this: {held}")


def dialogue(text: str) -> list[tuple[str, str | None]]:
    """The commands of a block `console`, each with what is shown below it."""
    found: list[tuple[str, str | None]] = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.rstrip("\n").splitlines()
        count = next(n for n in range(1, len(lines) + 1) if "".join(commands("\n".join(lines[:n]))))
        shown = "\n".join(lines[count:]).strip("\n")
        found.append(("\n".join(lines[:count]), shown + "\n" if shown else None))
    return found


def alike(shown: str, printed: str, home: str = "/nowhere", differs: str = "") -> bool:
    """Compare what a page shows with what was printed, but for what no two runs have in common."""

    def plain(line: str) -> str:
        line = line.replace(home, "/home/me")
        if differs:
            line = re.sub(differs, lambda found: re.sub(r"[█▒░▓]+", "BAR", re.sub(r"-?\d+(\.\d+)?", "N", found[0])), line)
        for pattern, instead in VARIES:
            line = re.sub(pattern, instead, line)
        return line.rstrip()

    wanted = ""
    for line in map(plain, shown.strip("\n").splitlines()):
        wanted += r"(?:.*\n)*?" if line in ("...", "…") else re.escape(line).replace("…", ".*?") + "\n"
    said = "".join(plain(line) + "\n" for line in NOTICE.sub("", printed).strip("\n").splitlines())
    return bool(re.fullmatch(wanted, said))


class Failed(AssertionError):
    """A command of a page does something else than the page says."""


class Reader:
    """Somebody with a checkout, a home of his own and one terminal. ``told``: hears each command and its seconds."""

    def __init__(self, home: Path, told: list[tuple[str, float]] | None = None) -> None:
        self.home, self.told, self.started = home, told if told is not None else [], 0
        self.folder, self.printed = home / "pumice", home / "printed"
        self.folder.mkdir(parents=True)
        for name in ("examples", "deploy", "docs", "tests"):
            (self.folder / name).symlink_to(ROOT / name)
        (home / "bin").mkdir()
        assets = os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")
        for name in ("kubectl", "helm"):
            if there := shutil.which(name) or shutil.which(name, path=assets):
                (home / "bin" / name).symlink_to(there)
        path = os.pathsep.join([str(home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
        self.answers, answer = os.pipe()
        self.shell = subprocess.Popen(
            ["bash", "--norc"], cwd=self.folder, env={**kept, "HOME": str(home), "PATH": path, "COLUMNS": "130"},
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(answer,), text=True,
            start_new_session=True, preexec_fn=heed_interrupts)  # fmt: skip
        os.close(answer)
        self._send(f"set -m\nexec 9>&{answer} {answer}>&-\n")

    def _send(self, text: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(text)
        self.shell.stdin.flush()

    def type(self, command: str, seconds: float = 120) -> tuple[int, str]:
        """The exit code and all that is printed, on both streams."""
        begun, answer = time.monotonic(), b""
        self._send(f"{{ {command}\n}} >{self.printed} 2>&1 </dev/null 9>&-\necho $? >&9\n")
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.answers], [], [], 0.2)
            answer += os.read(self.answers, 100) if ready else b""
            if self.shell.poll() is not None or time.monotonic() - begun > seconds:
                raise Failed(f"no end after {seconds} s, or of the shell itself: {command}\n{self.printed.read_text()}")
        self.told.append((command, time.monotonic() - begun))
        return int(answer), self.printed.read_text(errors="replace")

    def demand(self, command: str) -> str:
        code, printed = self.type(command)
        if code and not (code == 1 and TELLS.match(command)):
            raise Failed(f"{command}\nended with {code}:\n{printed}")
        return printed

    def once_more(self, command: str, shown: str | None, differs: str) -> str:
        """Return what is printed by a command that is typed until it prints what is shown, if it only looks."""
        deadline = time.monotonic() + (60 if LOOKS.match(command) else 0)
        while True:
            code, printed = self.type(command)
            ended = not code or (code == 1 and TELLS.match(command))
            if alike(shown, printed, str(self.home), differs) if shown is not None else ended:
                return printed
            if time.monotonic() > deadline:
                wanted = f"shown is\n{shown}" if shown is not None else f"it ended with {code}"
                raise Failed(f"{command}\nprinted\n{printed}\n{wanted}")
            time.sleep(0.5)

    def follow(self, block: Block) -> None:
        """Type all of a block, and compare."""
        for hidden in block.prepare:
            for command in commands(hidden):
                self.demand(command)
        if not block.here:
            return
        beside: list[str] = []
        if block.kind == "python":
            self._compare(block, [self.demand(f"python - <<'PAGE'\n{block.text}PAGE")])
        elif block.kind == "console":
            self._compare(block, [self.once_more(command, shown, block.differs) for command, shown in dialogue(block.text)
                                  if not self._beside(command, block.endless, beside)])  # fmt: skip
        else:
            self._script(block, beside)
        for job in beside:
            self.demand(f"kill -INT -- -{job}")
        for job in beside:
            there = f"kill -0 -- -{job} 2>/dev/null"
            code, _ = self.type(f"for i in $(seq {10 * FAREWELL:.0f}); do {there} || break; sleep 0.1; done; ! {there}")
            if code:
                raise Failed(f"{block.text}\na program of it goes on {FAREWELL:g} s after Ctrl-C")
            self.demand(f"wait {job} || [ $? -eq 130 ]")
        for hidden in block.then:
            for command in commands(hidden):
                self.once_more(command, None, "")

    def _compare(self, block: Block, printed: list[str]) -> None:
        if fault := self._fault(block, printed):
            raise Failed(f"{block.text}\nprinted\n{''.join(printed)}\n{fault}")

    def _script(self, block: Block, beside: list[str]) -> None:
        typed, printed = [], []
        for command in commands(block.text):
            if not self._beside(command, block.endless, beside):
                typed.append(command)
                printed.append(self.once_more(command, None, ""))
        deadline = time.monotonic() + 60
        while self._fault(block, printed):
            if not any(map(LOOKS.match, typed)) or time.monotonic() > deadline:
                self._compare(block, printed)
            time.sleep(0.5)
            for at, one in enumerate(typed):
                printed[at] = self.once_more(one, None, "") if LOOKS.match(one) else printed[at]

    def _fault(self, block: Block, printed: list[str]) -> str:
        """Say what is not as the page says; it may show all that is printed, or what the last command prints."""
        both = ("".join(printed), printed[-1] if printed else "")
        if block.shown is not None and not any(alike(block.shown, one, str(self.home), block.differs) for one in both):
            return f"shown is\n{block.shown}"
        missing = [pattern for pattern in block.prints if not re.search(pattern, both[0], re.M)]
        return f"nothing matches {missing[0]}" if missing else ""

    def _beside(self, command: str, pattern: str, jobs: list[str]) -> bool:
        """Start what the page ends by Ctrl-C, or has running beside the rest, and go on when it has said something."""
        bare = re.sub(r"  +# .*", "", command)
        endless = "Ctrl-C" in command.removeprefix(bare) or re.search(pattern, command) is not None
        if not endless and not bare.endswith(" &"):
            return False
        said = self.home / f"beside-{self.started}"
        self.started += 1
        _, pid = self.type(f"{{ {bare.removesuffix(' &')}; }} >{said} 2>&1 & echo $!")
        if endless:
            jobs.append(pid.strip())
        self.type(f"for i in $(seq {600 if endless else 20}); do [ -s {said} ] && break; sleep 0.1; done; [ -s {said} ]")
        return True

    def close(self) -> None:
        """End the shell and all that it has started in its session; a cluster, too, which has left it."""
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if status.read_text().rpartition(")")[2].split()[3] == str(self.shell.pid):
                    os.kill(int(status.parent.name), signal.SIGKILL)
        self.shell.communicate()
        os.close(self.answers)
        for facts in (self.home / ".local/share/pumice").glob("*/kubeconfig"):
            subprocess.run([Path(sys.executable).parent / "pumice", "down", "--data-dir", facts.parent],
                           env={**os.environ, "HOME": str(self.home)}, capture_output=True)  # fmt: skip
        shutil.rmtree(self.home / ".local", ignore_errors=True)


def play(page: Path, home: Path, told: list[tuple[str, float]] | None = None) -> int:
    """Type a page from its first block to its last; return how many of them were typed."""
    reader = Reader(home, told)
    count = 0
    try:
        for block in blocks(page.read_text("utf-8")):
            try:
                reader.follow(block)
            except Failed as failed:
                raise Failed(f"{page.relative_to(ROOT)}:{block.line}: {failed}") from None
            count += block.here
    finally:
        reader.close()
    return count


def main(names: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name in names:
        told: list[tuple[str, float]] = []
        with tempfile.TemporaryDirectory(prefix="pumice-page-", dir="/var/tmp") as home:
            try:
                play(Path(name).resolve(), Path(home) / "me", told)
            except Failed as failed:
                print(failed, file=sys.stderr)
                return 1
            finally:
                print(*(f"{seconds:6.1f} s  {command}" for command, seconds in told), sep="\n")
        print(f"{sum(seconds for _, seconds in told):6.1f} s  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
