"""Containers with a share of a card on one machine, by an engine that is played: it writes the container's id as engines do, and
its container is a process with the container's environment. Podman itself: ``tests/e2e/test_podman.py``."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit import page_commands
from kit.one_machine import PUMICE, OneMachine, wait_until

from pumice.adapters.bookings.processes import hold
from pumice.cli.docker import SWITCHES
from pumice.wire import variables

ENGINE = """\
#!/bin/sh
printf '%s\\n' "$@" > "$0.said"
[ -z "$BROKEN" ] || exit 125
while [ $# -gt 0 ]; do
    case $1 in
        --cidfile) id=$2; shift ;;
        --env) case $2 in CUDA_DEVICE_MEMORY_SHARED_CACHE=*) region=$2 ;; esac; shift ;;
        -d) detached=1 ;;
    esac
    shift
done
printf '%064d' 7 > "$id"
env "$region" sleep 100 > /dev/null 2>&1 &
echo $! > "$0.container"
[ -n "$detached" ] || wait $!
"""


class Engine:
    """An engine on the search path of a machine."""

    def __init__(self, here: OneMachine, name: str = "docker") -> None:
        self.here, self.program = here, here.directory.parent / "bin" / name
        self.program.parent.mkdir(exist_ok=True)
        self.program.write_text(ENGINE)
        self.program.chmod(0o755)
        self.environment = {"PATH": f"{self.program.parent}:{os.environ['PATH']}"}

    def words(self, *words: str) -> list[str]:
        return ["docker", "run", "--emulated", str(self.here.directory), "--engine", str(self.program), *words]

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.here.pumice(*self.words(*words), env=env)

    def start(self, *words: str, umask: int = -1) -> subprocess.Popen[str]:
        program = subprocess.Popen([*PUMICE, *self.words(*words)], env=self.here.environment, text=True, umask=umask,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.here.started.append(program)
        wait_until(lambda: self.container and program.poll() is None)
        return program

    @property
    def container(self) -> int:
        """The process that is the container; 0 before it has begun."""
        path = Path(f"{self.program}.container")
        return int(path.read_text() or 0) if path.exists() else 0

    @property
    def said(self) -> list[str]:
        return Path(f"{self.program}.said").read_text().splitlines()


@pytest.fixture
def engine(here: OneMachine) -> Engine:
    return Engine(here)


def test_a_container_is_given_the_library_its_limits_and_the_region(engine: Engine) -> None:
    program = engine.start("--memory", "3G", "--cores", "50", "--rm", "-v", "/a:/b", "image", "--restart", "word")
    assert engine.said[0] == "run"
    assert engine.said[-6:] == ["--rm", "-v", "/a:/b", "image", "--restart", "word"], "what is the engine's goes to it as it is"
    (share,) = engine.here.ps()
    assert (share["pid"], share["cards"][0]["memoryLimitMiB"], share["cards"][0]["coresLimitPercent"]) == (program.pid, 3072, 50)
    mounts = [word for before, word in zip(engine.said, engine.said[1:], strict=False) if before == "--mount"]
    for target in ("/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload", "/usr/local/vgpu/limits"):
        assert any(f"target={target},readonly" in mount for mount in mounts), target
    assert f"type=bind,source={share['region']},target={share['region']}" in mounts
    assert f"PUMICE_SHARE={share['id']}" in engine.said
    os.kill(engine.container, signal.SIGKILL)
    program.wait(timeout=60)
    assert engine.here.ps() == []


NERDCTLS_SWITCHES = frozenset((
    "--detach", "--help", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all",
    "--quiet", "--read-only", "--rm", "--rootfs", "--sig-proxy", "--tty",
))  # fmt: skip


def test_nerdctl_is_given_what_it_has_words_for_and_no_option_of_its_own_is_taken_for_the_image(here: OneMachine) -> None:
    """As nerdctl 2 defines them (cmd/nerdctl/container/container_run.go); a mount it splits at each comma and colon, and it
    knows no quotes there (pkg/mountutil)."""
    engine = Engine(here, "nerdctl")
    assert engine.run("--memory", "1G", "--cores", "50", "-d", "image").returncode == 0
    options = engine.said[1 : engine.said.index("-d")]
    given = list(zip(options[::2], options[1::2], strict=True))
    assert {flag for flag, _ in given} == {"--cidfile", "--env", "--mount"}
    for _, mount in (one for one in given if one[0] == "--mount"):
        kind, source, target, *rest = mount.split(",")
        assert (kind, source[:8], target[:8], rest in ([], ["readonly"])) == ("type=bind", "source=/", "target=/", True), mount
        assert ":" not in mount
    assert NERDCTLS_SWITCHES <= SWITCHES
    os.kill(engine.container, signal.SIGKILL)


def test_a_container_whose_client_is_killed_keeps_its_share_until_it_ends(engine: Engine) -> None:
    client = engine.start("--memory", "100%", "image")
    client.kill()
    client.wait()
    (share,) = engine.here.ps()
    assert share["pids"] == [engine.container]
    refused = engine.here.run("--memory", "1", "--", "true")
    assert refused.returncode == 2
    assert "container 000000000000" in refused.stderr
    os.kill(engine.container, signal.SIGKILL)
    wait_until(lambda: engine.here.ps() == [])
    assert engine.here.run("--memory", "100%", "--", "true").returncode == 0


def test_a_closed_umask_hides_the_id_of_a_container_from_nobody(engine: Engine) -> None:
    engine.start("--memory", "1G", "image", umask=0o077)
    (share,) = engine.here.ps()
    folder = Path(share["region"]).parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o755, 0o755]


def test_a_containers_share_that_no_process_keeps_is_ended_by_force(engine: Engine) -> None:
    """Anybody may lock a region, for containers run as any user."""
    assert engine.run("--memory", "100%", "-d", "image").returncode == 0
    (found,) = engine.here.ps()
    held = share(engine.here, "delete", found["id"])
    assert (held.returncode, len(held.stderr.splitlines())) == (2, 1)
    assert (f"{found['id']} is no share with a name: container 000000000000 has it; stop that, as by `docker stop 000000000000`, "
            "and it is free") in held.stderr  # fmt: skip
    refused = share(engine.here, "delete", "--force", found["id"])
    assert (refused.returncode, "its container runs" in refused.stderr) == (2, True)
    lock = hold(found["region"])
    try:
        os.kill(engine.container, signal.SIGKILL)
        wait_until(lambda: engine.here.ps()[0]["pids"] == [])
        assert "something holds it; --force ends it" in share(engine.here, "delete", found["id"]).stderr
        assert share(engine.here, "delete", "--force", found["id"]).returncode == 0
        assert engine.here.ps() == []
    finally:
        os.close(lock)


def test_a_container_in_the_background_and_two_at_once_have_a_share_each(engine: Engine) -> None:
    other = Engine(engine.here, "podman")
    assert engine.run("--memory", "60%", "-d", "image").returncode == 0
    assert other.run("--memory", "40%", "-d", "image").returncode == 0
    assert len({share["id"] for share in engine.here.ps()}) == 2
    Path(f"{engine.program}.said").unlink()
    refused = engine.run("--memory", "1%", "-d", "image")
    assert refused.returncode == 2
    assert "card 0 has no room for 1 % of the memory" in refused.stderr
    assert not Path(f"{engine.program}.said").exists(), "no container is started without its share"
    for one in (engine, other):
        os.kill(one.container, signal.SIGKILL)
    wait_until(lambda: engine.here.ps() == [])
    assert engine.here.run("--", "true").returncode == 0
    assert not any((engine.here.directory / "run/limits").iterdir()), "what lay there for containers goes with their shares"


def test_an_engine_that_starts_nothing_leaves_nothing_booked(engine: Engine) -> None:
    assert engine.run("--memory", "100%", "image", BROKEN="1").returncode == 125
    assert engine.here.ps() == []


def test_without_an_engine_one_is_told_what_to_do(here: OneMachine) -> None:
    done = here.pumice("docker", "run", "--memory", "3G", "image", env={"PATH": "/nonexistent"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "install one of them, name one with --engine, or start the program without a container by `pumice run`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no image"),
        (["--rm", "--cores", "50", "image"], "--cores stands after an option of the engine"),
        (["--rm", "--memory", "3G", "image"], "here it is RAM"),
        (["--memory", "1G", "--restart", "always", "image"], "pumice share create"),
        (["--memory", "1G", "--restart=on-failure:3", "image"], "pumice share create"),
        (["--memory", "1G", "-it", "--cidfile=/x", "image"], "when the container has ended"),
        (["--memory", "1G", "--", "--gpus", "all", "image"], "pumice opens the cards"),
        (["--memory", "1G", "-dp", "80:80", "--restart", "always", "image"], "pumice share create"),
        (["--memory", "1G", "-itv", "/a:/b", "--cidfile", "/x", "image"], "when the container has ended"),
        (["--memory", "1G", "-d", "--rmi", "--gpus", "all", "image"], "pumice opens the cards"),
        (["--memory", "1G", "-v/a:/b", "-e", "A=B", "--restart", "always", "image"], "pumice share create"),
        (["-m8G", "image"], "-m 8G: here it is RAM"),
        (["-itm", "8G", "image"], "-m 8G: here it is RAM"),
        (["--memory", "nan", "image"], "--memory nan"),
        (["--engine", "/bin/true", "--memory", "1G", "image"], "must be docker, podman or nerdctl"),
    ],
)
def test_what_has_no_meaning_is_said_in_a_line_and_nothing_is_started(engine: Engine, words: list[str], why: str) -> None:
    done = engine.run(*words)
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path(f"{engine.program}.said").exists()


def test_an_engine_of_another_machine_is_refused(engine: Engine) -> None:
    done = engine.run("--memory", "1G", "image", DOCKER_HOST="tcp://10.0.0.1:2375")
    assert done.returncode == 2
    assert "shares are of this machine's cards" in done.stderr


def test_nothing_that_a_container_loads_and_nothing_that_is_swept_lies_where_others_write(engine: Engine, tmp_path: Path) -> None:
    """The folder of the book is everybody's: whoever puts a link or a folder of his own in a place there gains nothing by it."""
    book, theirs = engine.here.directory / "run", tmp_path / "theirs"
    (theirs / "kept").mkdir(parents=True)
    engine.start("--memory", "1G", "image")
    sources = dict(re.findall("type=bind,source=([^,]*),target=([^,]*)", "\n".join(engine.said)))
    for source, target in sources.items():
        if target in ("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so"):
            assert not Path(source).is_relative_to(book)
    for folder in ("limits", "regions"):
        (book / folder).rename(book / f"was-{folder}")
        (book / folder).symlink_to(theirs)
    refused = engine.run("--memory", "1G", "image")
    assert refused.returncode == 2
    assert "is a link, which no pumice has made" in refused.stderr
    assert engine.here.ps() != [], "who only reads follows no link either"
    assert [path.name for path in theirs.iterdir()] == ["kept"], "nothing is removed or made through a link"


# -- Shares with a name -----------------------------------------------------------------------------------------------


def share(here: OneMachine, *words: str) -> subprocess.CompletedProcess[str]:
    folder = [] if words[0] == "list" else ["--cdi-dir", str(here.directory.parent / "cdi")]
    return here.pumice("share", *words, "--emulated", str(here.directory), *folder)


def named(here: OneMachine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(share(here, "list", "-o", "json").stdout)
    return found


def test_a_share_with_a_name_lasts_until_it_is_deleted(here: OneMachine) -> None:
    made = share(here, "create", "train", "--memory", "3G", "--cores", "50")
    assert (made.returncode, made.stdout) == (0, "train\n")
    (file,) = (here.directory.parent / "cdi").iterdir()
    spec = json.loads(file.read_text())
    assert (spec["kind"], [device["name"] for device in spec["devices"]]) == ("pumice.io/share", ["train"])
    edits = spec["devices"][0]["containerEdits"]
    assert {"/usr/local/vgpu/limits", "/etc/ld.so.preload"} <= {mount["containerPath"] for mount in edits["mounts"]}
    assert all(Path(mount["hostPath"]).exists() for mount in edits["mounts"])
    assert "PUMICE_SHARE=train" in edits["env"]
    (found,) = named(here)
    assert (found["id"], found["pid"], found["cards"][0]["memoryLimitMiB"]) == ("train", None, 3072)
    refused = here.run("--memory", "100%", "--", "true")
    assert refused.returncode == 2
    assert "train  share with a name  3072 MiB" in refused.stderr
    assert here.pumice("limit", "train", "--memory", "2G", "--emulated", str(here.directory)).returncode == 0
    assert share(here, "delete", "train").returncode == 0
    assert not file.exists()
    assert named(here) == []
    assert here.run("--memory", "100%", "--", "true").returncode == 0


def test_a_name_is_given_once_and_one_without_gets_a_number(here: OneMachine) -> None:
    assert share(here, "create", "train", "--memory", "1G").returncode == 0
    again = share(here, "create", "train", "--memory", "1G")
    assert again.returncode == 2
    assert "there is a share of this name already" in again.stderr
    number = share(here, "create", "--memory", "1G").stdout.strip()
    assert [one["id"] for one in named(here)] == ["train", number]
    assert share(here, "delete", number).returncode == 0


HOSTILE = ["", "../../etc/x", "a/b", "A", "a b", "-x-", "r7", "7", "a\nb", "a=b", "é", "a" * 64, "$(id)", "a,b"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_and_nothing_is_written(here: OneMachine, name: str) -> None:
    words = ["--memory", "1G", "--emulated", str(here.directory), "--cdi-dir", str(here.directory.parent / "cdi")]
    done = here.pumice("share", "create", *words, "--", name)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (here.directory.parent / "cdi").exists()
    assert named(here) == []


def test_where_the_file_cannot_be_written_nothing_is_booked(here: OneMachine) -> None:
    (here.directory.parent / "cdi").write_text("no folder")
    done = share(here, "create", "train", "--memory", "1G")
    assert done.returncode == 2
    assert "the CDI file cannot be written" in done.stderr
    assert named(here) == []


def test_a_share_in_use_is_deleted_by_force_alone_and_free_when_its_containers_have_ended(here: OneMachine) -> None:
    assert share(here, "create", "train", "--memory", "100%").returncode == 0
    (found,) = named(here)
    container = subprocess.Popen(["sleep", "100"], env={variables.SHARED_CACHE: found["region"]})
    try:
        wait_until(lambda: named(here)[0]["pids"] == [container.pid])
        refused = share(here, "delete", "train")
        assert refused.returncode == 2
        assert "containers use it" in refused.stderr
        assert share(here, "delete", "--force", "train").returncode == 0
        assert list((here.directory.parent / "cdi").iterdir()) == [], "no further container gets it"
        assert here.run("--memory", "1", "--", "true").returncode == 2
    finally:
        container.kill()
        container.wait()
    assert here.run("--memory", "100%", "--", "true").returncode == 0


def test_a_programs_share_is_not_ended_by_its_id(here: OneMachine) -> None:
    program = here.start("--memory", "1G", "--", "sleep", "100")
    wait_until(here.ps)
    for force in ([], ["--force"]):
        refused = share(here, "delete", *force, here.ps()[0]["id"])
        assert refused.returncode == 2
        assert f"a program of `pumice run` has it (pid {program.pid}); it is free when that has ended" in refused.stderr


def test_the_template_of_systemd_is_one_and_its_commands_make_and_end_a_share(here: OneMachine, tmp_path: Path) -> None:
    """The template of docs/how-to/containers.md, where this test's `pumice` is."""
    page = (Path(__file__).parents[2] / "docs/how-to/containers.md").read_text("utf-8")
    program = tmp_path / "pumice"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PUMICE)} "$@" --emulated {here.directory} --cdi-dir {tmp_path}/cdi\n')
    program.chmod(0o755)
    (text,) = [block.text for block in page_commands.blocks(page) if block.kind == "ini" and "[Service]" in block.text]
    unit = text.replace("/usr/bin/pumice", str(program)).replace("/etc/pumice/shares", str(tmp_path))
    (tmp_path / "pumice-share@.service").write_text(unit)
    (ask,) = re.findall(r"`/etc/pumice/shares/train` has one line: `(ASK=[^`]*)`", page)
    (tmp_path / "train").write_text(f"{ask}\n")
    if analyze := shutil.which("systemd-analyze"):
        instance = tmp_path / "pumice-share@train.service"
        verified = subprocess.run([analyze, "verify", instance], capture_output=True, text=True, timeout=60)
        assert (verified.returncode, verified.stderr) == (0, "")
    commands = dict(re.findall("^(Exec[A-Za-z]+)=(.*)$", unit.replace("%i", "train"), flags=re.MULTILINE))
    for name, there in (("ExecStart", ["train"]), ("ExecStop", [])):
        words = f". {tmp_path}/train.sh; {commands[name]}"
        (tmp_path / "train.sh").write_text(ask.replace("=", "='", 1) + "'\n")
        done = subprocess.run(words, shell=True, env=here.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert [one["id"] for one in named(here)] == there


def test_a_file_of_the_same_name_for_another_book_is_neither_written_over_nor_removed(here: OneMachine, tmp_path: Path) -> None:
    assert share(here, "create", "train", "--memory", "1G").returncode == 0
    (file,) = (here.directory.parent / "cdi").iterdir()
    others = tmp_path / "region"
    others.touch()
    file.write_text(file.read_text().replace(named(here)[0]["region"], str(others)))
    assert share(here, "delete", "train").returncode == 0
    assert file.exists()
    refused = share(here, "create", "train", "--memory", "1G")
    assert refused.returncode == 2
    assert "a share of another book has this name" in refused.stderr
    assert (file.exists(), named(here)) == (True, [])
    others.unlink()
    assert share(here, "create", "train", "--memory", "1G").returncode == 0


def test_what_is_gone_already_is_no_obstacle(here: OneMachine) -> None:
    assert share(here, "create", "train", "--memory", "1G").returncode == 0
    for file in (here.directory.parent / "cdi").iterdir():
        file.unlink()
    assert share(here, "delete", "train").returncode == 0
    gone = share(here, "delete", "train")
    assert gone.returncode == 2
    assert "there is no share of this name" in gone.stderr
