"""The settings of `pumice up` from a cluster file and options together."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.command_line import call

from pumice.cli.main import main
from pumice_lab.cli import up
from pumice_lab.spec import ClusterSpec


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{name: a, cards: 1, real: true}]\nbare: false\nport: 6443\ncontrolPlane: embedded\n")
    return file


def test_the_command_line_wins_over_the_cluster_file(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought_up: list[ClusterSpec] = []

    async def foreground(spec: ClusterSpec, data: object) -> int:
        brought_up.append(spec)
        return 0

    monkeypatch.setattr(up, "_foreground", foreground)
    file = ["--config", str(config), "--data-dir", str(tmp_path)]
    words = ["--bare", "--control-plane", "kube", "--port", "0", "--pod-network", "none", "--emulated"]
    assert [call(up.app, [*file, *more]).exit_code for more in ((), words)] == [0, 0]
    plain, reported = brought_up
    assert (plain.bare, plain.control_plane, plain.port, plain.pod_network, plain.nodes[0].real) == (
        False, "embedded", 6443, "auto", True)  # fmt: skip
    assert (reported.bare, reported.control_plane, reported.port, reported.pod_network, reported.nodes[0].real) == (
        True,
        "kube",
        0,
        "none",
        False,
    )


@pytest.mark.parametrize(("words", "said"), [
    (["--nodes", "3"], "--nodes: with --config the nodes stand in"), (["--mig"], "--mig: with --config the nodes stand in"),
    (["--control-plane", "k3s"], "control plane 'k3s': it is one of embedded, kube"),
])  # fmt: skip
def test_what_a_cluster_file_alone_can_say_is_refused_on_the_command_line(
    words: list[str], said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["up", "--config", str(config), "--data-dir", str(tmp_path), *words])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
