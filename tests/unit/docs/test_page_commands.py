"""Every block of commands in the documents is typed by a test or says why not, and who types them sees what differs."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from kit import page_commands
from kit.command_line import call
from kit.page_commands import COMMAND, Block, Failed, Reader, alike, blocks, commands, dialogue, pages, play
from kit.signals import heed_interrupts

from pumice.cli.lint import app

PAGES = {page.relative_to(page_commands.ROOT).as_posix(): blocks(page.read_text("utf-8")) for page in pages()}
TYPED = [(name, block) for name, found in PAGES.items() for block in found if block.typed]


def test_at_most_one_block_in_ten_is_left_to_the_end_to_end_run_and_each_says_why() -> None:
    """Of the pages that people write, that is: the reference of commands has as many blocks again.

    What a file of tests/e2e types counts as left, whatever the page calls it.
    """
    written = [(name, block) for name, block in TYPED if Path(name).name != "commands.md"]
    assert [f"{name}:{block.line}" for name, block in written if block.run_by.startswith("tests/e2e/")] == [], "give the reason"
    left = [(name, block.not_run) for name, block in written if block.not_run is not None]
    assert len(written) > 60
    assert len(left) <= len(written) / 10, left
    for name, why in left:
        reason, _, test = (why or "").partition("; ")
        assert len(reason.split()) > 3, name
        assert re.fullmatch(r"tests/e2e/\S+\.py types it", test), name
        assert name in (page_commands.ROOT / test.removesuffix(" types it")).read_text("utf-8"), name


def test_of_each_block_that_is_typed_something_is_looked_at() -> None:
    assert [f"{name}:{block.line}" for name, block in TYPED if block.here and not block.compared] == []


def test_who_types_a_block_elsewhere_names_its_page() -> None:
    for name, block in TYPED:
        if block.run_by:
            assert Path(name).name in (page_commands.ROOT / block.run_by).read_text("utf-8"), f"{name}:{block.line}"


def test_no_command_stands_in_a_block_of_another_kind() -> None:
    """Nobody would type it."""
    for page in pages():
        name = page.relative_to(page_commands.ROOT).as_posix()
        others = [block for block in PAGES[name] if not block.typed and block.kind in ("", "text", "shell", "bash")]
        assert [block.line for block in others if any(map(COMMAND.match, block.text.splitlines()))] == [], name
        plain = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", page.read_text("utf-8"), flags=re.M | re.S)
        indented = re.findall(r"(?:^|\n)\n    (.*)", plain)
        assert [line for line in indented if COMMAND.match(line) and "[OPTIONS]" not in line] == [], name  # but how one is called


def data() -> Iterator[tuple[str, Block]]:
    for name, found in PAGES.items():
        yield from ((name, block) for block in found if block.kind in ("yaml", "json"))


@pytest.mark.parametrize(("name", "block"), list(data()), ids=lambda value: value if isinstance(value, str) else str(value.line))
def test_configuration_on_a_page_is_what_its_reader_takes(name: str, block: Block, tmp_path: Path) -> None:
    """Of the scheduler, of nodes, a kind of Kubernetes' or Volcano's, or a part of a pod: `pumice lint` finds nothing."""
    said = yaml.safe_load(block.text)
    assert said
    file = tmp_path / "page.yaml"
    if isinstance(said, dict) and ({"actions", "tiers", "configurations"} & set(said)):
        said = {"actions": "enqueue, allocate, backfill", "tiers": [{"plugins": [{"name": "gang"}]}], **said}
        file = tmp_path / "volcano-scheduler.conf"
    elif isinstance(said, list):
        said = {"actions": "enqueue, allocate, backfill", "tiers": [{"plugins": said}]}
        file = tmp_path / "volcano-scheduler.conf"
    elif "nodeconfig" in said:
        file = tmp_path / "config.json"
    elif set(said) == {"resources"}:
        said = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "any", **said}]}}  # fmt: skip
    elif "kind" not in said:
        return
    file.write_text(yaml.safe_dump(said))
    called = call(app, [str(file)])
    assert called.exit_code == 0, called.stdout + called.stderr


# -- The reader


PAGE = """# A page

<!-- prepare:
echo two > file
-->
<!-- prints: ^tw.$ -->
```sh
cat file
for n in 1 2; do
  echo $n
done
```

says

```text
...
2
```

<!-- not run: nobody has one -->
```sh
a-quantum-computer
```

1. An item
   <!-- differs: \\S+ \\d+ of -->
   <!-- prints: ^pid -->
   ```console
   $ echo "███░ 7 of 9"; echo pid $$
   ██░░ 3 of 9
   pid 4711
   $ export THERE=here
   $ echo $THERE && false
   here
   ```

<!-- prints: ^bytes$ -->
```python
print("bytes")
```

<!-- then: grep made effect -->
```sh
echo made > effect
```
"""


def test_a_page_is_read_with_what_it_says_of_its_blocks() -> None:
    first, second, third, fourth, fifth = blocks(PAGE)
    assert (first.prepare, first.prints, first.shown) == (["echo two > file"], ["^tw.$"], "...\n2\n")
    assert list(commands(first.text)) == ["cat file", "for n in 1 2; do\n  echo $n\ndone"]
    assert second.not_run == "nobody has one"
    assert [command for command, _ in dialogue(third.text)][1] == "export THERE=here"
    assert (fourth.prints, fifth.then) == (["^bytes$"], ["grep made effect"])
    assert [block.compared for block in blocks(re.sub("<!--.*-->\n", "", PAGE))] == [True, False, True, False, False]
    assert {block.run_by for block in blocks(PAGE + "<!-- all run by x.py -->\n")} == {"x.py"}


def test_a_page_that_does_what_it_says_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_commands, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    assert play(tmp_path / "page.md", tmp_path / "me") == 4


@pytest.mark.parametrize(("right", "wrong"), [
    ("3 of 9", "3 of 8"), ("   here\n", "   there\n"), ("^tw.$", "^three$"), ("2\n```\n\n<!--", "3\n```\n\n<!--"),
    ("cat file", "cat missing-file"), ("^pid", "^pod"), ("^bytes$", "^bits$"), ("grep made", "grep nothing"),
])  # fmt: skip
def test_a_page_that_prints_something_else_does_not(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_commands, "ROOT", tmp_path)
    monkeypatch.setattr(page_commands, "LOOKS", re.compile("(?!)"))
    (tmp_path / "page.md").write_text(PAGE.replace(right, wrong))
    with pytest.raises(Failed, match=r"page.md:\d+: "):
        play(tmp_path / "page.md", tmp_path / "me")


def test_what_no_two_runs_have_in_common_is_alike_and_all_else_is_not() -> None:
    assert alike("a  b pid 7\n", "a b pid 12\n")
    assert alike("from 127.0.0.1:80 after 3s\n", "from 127.9.0.1:8080 after 2m\n")
    assert alike("/home/me/x\n", "/tmp/h/x\n", home="/tmp/h")
    assert alike("first\n...\nlast\n", "first\n1\n2\nlast\n")
    assert alike("a … d\n", "a b c d\n")
    assert not alike("first\n", "first\nsecond\n")
    assert not alike("3000 MiB\n", "3001 MiB\n")
    assert not alike("3 of 9, 4 of 9\n", "1 of 9, 5 of 9\n", differs="^. of")


INTERRUPTS = (signal.SIGINT, signal.SIGQUIT)
UNTIL_CTRL_C = Block(1, "sh", "echo begun; exec sleep 1000   # until Ctrl-C\npgrep -s 0 -x sleep\n")


def test_what_runs_until_ctrl_c_runs_beside_the_rest_of_its_block(tmp_path: Path) -> None:
    with closing(Reader(tmp_path / "me")) as reader:
        reader.follow(UNTIL_CTRL_C)
        assert reader.type("pgrep -s 0 -x sleep")[0] == 1


def test_a_program_that_needs_ctrl_c_twice_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_commands, "FAREWELL", 0.5)
    with closing(Reader(tmp_path / "me")) as reader:
        script = "trap 'trap - INT' INT; echo begun; while :; do sleep 0.05; done   # until Ctrl-C\n"
        with pytest.raises(Failed, match=r"goes on 0\.5 s after Ctrl-C"):
            reader.follow(Block(1, "sh", script))


@pytest.fixture
def behind_a_shell() -> Iterator[None]:
    """A shell without job control starts all that is behind it with Ctrl-C and Ctrl-\\ ignored."""
    assert signal.SIG_IGN not in map(signal.getsignal, INTERRUPTS), "kit.pytest_plugin lets tests heed them, wherever they run"
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("behind_a_shell")
def test_ctrl_c_ends_programs_of_a_reader_that_was_started_behind_a_shell(tmp_path: Path) -> None:
    with closing(Reader(tmp_path / "me")) as reader:
        reader.follow(UNTIL_CTRL_C)
        ignored = int(reader.type("awk '/^SigIgn/ {print $2}' /proc/self/status")[1], 16)
        assert [number for number in INTERRUPTS if ignored >> number - 1 & 1] == []


@pytest.mark.usefixtures("behind_a_shell")
def test_ctrl_c_ends_what_tests_start_that_run_behind_a_shell() -> None:
    heed_interrupts()
    program = subprocess.Popen(["sleep", "1000"])
    program.send_signal(signal.SIGINT)
    assert program.wait(timeout=60) == -signal.SIGINT
