"""Mistakes on the command line are one line and exit code 2, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumice.cli.main import main
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiPlaces

NVIDIA = ["device-plugin", "nvidia", "--node-name", "n1"]
SHARE = ["device-plugin", "gpushare", "--node-name", "n1"]
NPUS = ["device-plugin", "ascend", "--node-name", "n1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["device-plugin", "nvidia"], "no --node-name and no NODE_NAME in the environment"),
        (["monitor"], "no --node-name and no NODE_NAME in the environment"),
        ([*NVIDIA, "--mig-strategy", "single"], "--mig-strategy single is not served; with none"),
        ([*NVIDIA, "--mig-strategy", "some"], "--mig-strategy 'some': use none or mixed"),
        ([*NVIDIA, "--device-list-strategy", "envvar,cdi"], "'cdi': use envvar, volume-mounts, cdi-annotations, cdi-cri"),
        ([*NVIDIA, "--device-list-strategy", "envar"], "--device-list-strategy 'envar': use envvar, volume-mounts"),
        ([*NVIDIA, "--kubelet-socket", "/tmp/x.sock"], "the kubelet's socket is called kubelet.sock"),
        ([*NVIDIA, "--health-bind-address", "9395"], "--health-bind-address '9395': write ADDRESS:PORT"),
        ([*NVIDIA, "--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config: No such file or directory"),
        ([*NVIDIA, "--kubeconfig", "/nowhere/config", "--log-level", "loud"], "--log-level 'loud': use debug, info"),
        ([*NVIDIA, "--kubelet-socket="], "--kubelet-socket is empty: nothing would be registered"),
        ([*NVIDIA, "--device-discovery-strategy", "tegra"], "cards of Tegra boards are not served"),
        ([*NVIDIA, "--device-discovery-strategy=wmi"], "--device-discovery-strategy 'wmi': use auto or nvml"),
        ([*NVIDIA, "--imex-channel-ids=[0]"], "no IMEX channels are handed out"),
        ([*NVIDIA, "--imex-required=true"], "no IMEX channels are handed out"),
        ([*NVIDIA, "--config-file", "/nowhere.yaml"], "/nowhere.yaml: No such file or directory"),
        ([*SHARE, "--gpu-strategy", "memory"], "--gpu-strategy 'memory': use share or number"),
        ([*SHARE, "--config-file", "/nowhere.yaml"], "/nowhere.yaml: No such file or directory"),
        ([*NPUS, "--mode", "mindcluster", "--node_config_file", "n.yaml"], "--node-config-file is for --mode hami alone"),
        ([*NPUS, "--mode", "mindcluster", "--report-time-offset", "1"], "--report-time-offset is for --mode hami alone"),
        ([*NPUS, "--listWatchPeriod", "5"], "--list-watch-period is for --mode mindcluster alone"),
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


# of NVIDIA's plugin and of Volcano's, as a manifest writes it (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/config)
EVERY_FLAG = [
    "--mig-strategy=none", "--fail-on-init-error=false", "--nvidia-driver-root=/run/nvidia/driver", "--driver-root=/",
    "--dev-root=/", "--nvidia-dev-root=/", "--pass-device-specs=true", "--device-list-strategy=envvar",
    "--device-id-strategy=uuid",
    "--gdrcopy-enabled=true", "--gds-enabled=false", "--mofed-enabled=false", "--cdi-annotation-prefix=cdi.k8s.io/",
    "--nvidia-cdi-hook-path=/usr/bin/nvidia-ctk", "--nvidia-ctk-path=/usr/bin/nvidia-ctk", "--driver-root-ctr-path=/driver-root",
    "--container-driver-root=/driver-root", "--mps-root=/run/nvidia/mps", "--device-discovery-strategy=nvml",
    "--imex-channel-ids=[]", "--imex-required=false", "--kubelet-socket=/var/lib/kubelet/device-plugins/kubelet.sock",
    "--cdi-feature-flags=",
    "--device-split-count=4", "--gpu-memory-factor=2", "--device-cores-scaling=1.5", "--device-config-namespace=kube-system",
]  # fmt: skip


@pytest.mark.parametrize("flag", EVERY_FLAG)
def test_every_flag_of_upstreams_plugins_is_understood_as_a_manifest_writes_it(flag, capsys):
    with pytest.raises(SystemExit):
        main([*NVIDIA, flag, "--kubeconfig", "/nowhere/config"])
    assert "kubeconfig /nowhere/config: No such file or directory" in capsys.readouterr().err  # as far as it could begin


@pytest.fixture
def started(monkeypatch):
    """The settings of the plugins that would have been started."""
    found = []
    for kind in ("nvidia_vgpu", "nvidia_gpushare", "ascend_mindcluster"):
        command = f"pumice.devices.{kind}.plugin.command"
        monkeypatch.setattr(f"{command}.run_daemon", lambda run, settings, *rest: found.append(settings))
    return found


def test_flag_then_variable_then_file_then_default(tmp_path, monkeypatch, started, caplog):
    file = tmp_path / "config.yaml"
    file.write_text("""
version: v1
flags:
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  gdsEnabled: true
  gdrcopyEnabled: true
  mofedEnabled: true
  plugin: {passDeviceSpecs: true, deviceListStrategy: volume-mounts, deviceIDStrategy: index}
resources: {gpus: []}
""")
    monkeypatch.setenv("GDS_ENABLED", "false")
    with pytest.raises(SystemExit):
        main([*NVIDIA, "--config-file", str(file), "--gdrcopy-enabled=false"])
    (settings,) = started
    options = settings.response_options
    assert settings.wait_for_driver
    assert (options.gdrcopy, options.gds, options.mofed) == (False, False, True)
    assert (options.strategies, options.by_index, options.device_specs) == (("volume-mounts",), True, True)
    assert options.dev_root == "/run/nvidia/driver"
    assert "resources: has no effect" in caplog.text


def test_no_container_is_given_devices_that_nobody_switched_on(monkeypatch, started):
    """Volcano's plugin asks for GDRCopy, GPUDirect Storage and OFED unless told otherwise (HAMi volcano-vgpu-device-plugin
    pkg/plugin/vgpu/config)."""
    for flag in ("GDRCOPY_ENABLED", "GDS_ENABLED", "MOFED_ENABLED"):
        monkeypatch.delenv(flag, raising=False)
    with pytest.raises(SystemExit):
        main(NVIDIA)
    options = started[0].response_options
    assert (options.gdrcopy, options.gds, options.mofed) == (False, False, False)


def test_where_the_file_of_cdi_devices_lies_and_what_it_names_is_said_by_flags_variables_and_the_file(
    tmp_path, monkeypatch, started
):
    file = tmp_path / "config.yaml"
    file.write_text("""
version: v1
flags:
  nvidiaDriverRoot: /run/nvidia/driver
  plugin: {deviceListStrategy: [cdi-annotations, cdi-cri], containerDriverRoot: /host, nvidiaCTKPath: /opt/nvidia-ctk}
""")
    monkeypatch.setenv("CDI_ANNOTATION_PREFIX", "nvidia.cdi.k8s.io/")
    monkeypatch.setenv("CDI_ROOT", "/etc/cdi")
    with pytest.raises(SystemExit):
        main([*NVIDIA, "--config-file", str(file), "--cdi-feature-flags=a,b"])
    (settings,) = started
    assert settings.response_options.strategies == ("cdi-annotations", "cdi-cri")
    assert settings.response_options.annotation_prefix == "nvidia.cdi.k8s.io/"
    assert settings.cdi == CdiPlaces(Path("/etc/cdi"), "/opt/nvidia-ctk", "/run/nvidia/driver", Path("/host"),
                                     "/run/nvidia/driver", "a,b")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: v3\n", "expected `version: v1`"),
        ("a: [b\n", "not YAML"),
        ("version: v1\nflags: 3\n", "flags: expected a mapping"),
        ("version: v1\nflags: {migStrategy: [a]}\n", "flags.migStrategy: expected one value"),
        ("version: v1\nsharing: {timeSlicing: {resources: [{name: g, replicas: 4}]}}\n", "sharing.timeSlicing is not served"),
        ("version: v1\nsharing: {mps: {resources: [{name: g, replicas: 4}]}}\n", "sharing.mps is not served"),
        ("version: v1\nimex: {channelIDs: [0], required: true}\n", "no IMEX channels are handed out"),
        ("version: v1\nflags: {deviceDiscoveryStrategy: tegra}\n", "Tegra"),
        ("version: v1\nflags: {plugin: {deviceListStrategy: [cdi]}}\n", "'cdi': use envvar"),
    ],
)
def test_a_configuration_file_that_asks_for_what_is_not_served_is_refused(text, said, tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([*NVIDIA, "--config-file", str(file)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["version: v3\n", "- a\n", "a: [b\n"])
def test_a_broken_configuration_file_of_the_legacy_plugin_is_told_although_it_has_no_effect(text, tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([*SHARE, "--config-file", str(file)])
    assert ended.value.code == 2
    assert str(file) in capsys.readouterr().err
