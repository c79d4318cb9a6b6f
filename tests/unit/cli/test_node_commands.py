"""Mistakes on the command line are one line and exit code 2, never a traceback."""

from __future__ import annotations

import pytest

from pumice.cli.main import main

NVIDIA = ["device-plugin", "nvidia", "--node-name", "n1"]
SHARE = ["device-plugin", "gpushare", "--node-name", "n1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["device-plugin", "nvidia"], "no --node-name and no NODE_NAME in the environment"),
        (["monitor"], "no --node-name and no NODE_NAME in the environment"),
        ([*NVIDIA, "--mig-strategy", "single"], "--mig-strategy single is not served; with none"),
        ([*NVIDIA, "--mig-strategy", "some"], "--mig-strategy 'some': use none or mixed"),
        ([*NVIDIA, "--device-list-strategy", "cdi-cri"], "nobody writes the CDI specification that this names devices of"),
        ([*NVIDIA, "--device-list-strategy", "envvar,cdi-annotations"], "--device-list-strategy cdi-annotations: nobody writes"),
        ([*NVIDIA, "--device-list-strategy", "envar"], "--device-list-strategy 'envar': use envvar, volume-mounts"),
        ([*NVIDIA, "--kubelet-socket", "/tmp/x.sock"], "the kubelet's socket is called kubelet.sock"),
        ([*NVIDIA, "--health-bind-address", "9395"], "--health-bind-address '9395': write ADDRESS:PORT"),
        ([*NVIDIA, "--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config: No such file or directory"),
        ([*NVIDIA, "--kubeconfig", "/nowhere/config", "--log-level", "loud"], "--log-level 'loud': use debug, info"),
        ([*SHARE, "--gpu-strategy", "memory"], "--gpu-strategy 'memory': use share or number"),
        ([*SHARE, "--config-file", "/nowhere.yaml"], "/nowhere.yaml: No such file or directory"),
        (["monitor", "--node-name", "n1", "--metrics-bind-address", "x"], "--metrics-bind-address 'x': write ADDRESS"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_that_says_what_would_be_right(words, said, capsys, monkeypatch):
    for name in ("NODE_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(words)
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in error
    assert error.startswith("pumice: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["version: v3\n", "- a\n", "a: [b\n"])
def test_a_broken_configuration_file_of_the_legacy_plugin_is_told_although_it_has_no_effect(text, tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([*SHARE, "--config-file", str(file)])
    assert ended.value.code == 2
    assert str(file) in capsys.readouterr().err
