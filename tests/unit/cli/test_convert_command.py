"""``pumice convert`` as it is called: what it prints where, what it writes, and how it ends."""

from __future__ import annotations

import io
import json

import pytest

from pumice.cli.main import main

HAMIS = "kind: Pod\nspec:\n  schedulerName: hami-scheduler   # HAMi's\n"
OURS = HAMIS.replace("hami-scheduler", "volcano")
CHANGE = "pod.yaml:3: hami-scheduler -> volcano: the scheduler that chooses cards\n"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["convert", *words])
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(HAMIS)
    return tmp_path


def test_the_file_is_printed_and_beside_it_what_was_changed(capsys):
    assert run("pod.yaml") == 0
    assert capsys.readouterr() == (OURS, f"{CHANGE}1 file: 1 change\n")


def test_a_diff_and_json(capsys):
    assert run("pod.yaml", "-o", "diff") == 0
    assert "-  schedulerName: hami-scheduler   # HAMi's\n+  schedulerName: volcano   # HAMi's\n" in capsys.readouterr().out
    assert run("pod.yaml", "-o", "json") == 0
    (reported,) = json.loads(capsys.readouterr().out)
    assert (reported["text"], reported["left"], reported["changes"][0]["line"]) == (OURS, [], 3)


def test_files_are_written_where_that_is_asked_for_and_what_stays_is_an_exit_code(folder, capsys):
    (folder / "more.yaml").write_text("a: {nvidia.com/priority: 0}\n")
    assert run(".", "--write") == 1
    assert (folder / "pod.yaml").read_text() == OURS
    out, err = capsys.readouterr()
    assert (CHANGE in out, "nvidia.com/priority is not converted: " in out, "2 files: 1 change, 1 not converted" in out, err) == (
        True, True, True, "")  # fmt: skip


def test_a_file_keeps_its_ends_of_lines(folder):
    (folder / "pod.yaml").write_bytes(HAMIS.replace("\n", "\r\n").encode())
    assert run("pod.yaml", "--write") == 0
    assert (folder / "pod.yaml").read_bytes() == OURS.replace("\n", "\r\n").encode()


@pytest.mark.parametrize(("text", "words", "said"), [
    ("a: [", ["pod.yaml"], "pod.yaml:1: not YAML"), ("", ["none.yaml"], "none.yaml: No such file"),
    ("x: {nvidia.com/gpumem: 1, volcano.sh/vgpu-memory: 1}", ["pod.yaml"], "pod.yaml: names of HAMi's and of Volcano's"),
    ("", ["-", "--write"], "--write wants files"), ("", ["pod.yaml", "--to", "slurm"], "'slurm' is not one of"),
])  # fmt: skip
def test_what_cannot_be_read_or_meant_is_one_line(folder, capsys, text, words, said, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (folder / "pod.yaml").write_text(text)
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
