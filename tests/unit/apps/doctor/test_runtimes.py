"""NVIDIA's runtime and whether it is the default, as the runtimes' configurations say."""

from __future__ import annotations

import pytest

from pumice.apps.doctor.node import runtimes

OLD = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
{}[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{}]
"""
NEW = """version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
{}[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{}]
"""
CRIO = "[crio.runtime]\n{}[crio.runtime.runtimes.{}]\n"


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("etc/docker/daemon.json", '{"default-runtime": "nvidia", "runtimes": {"nvidia": {}}}', (True, "nvidia")),
        ("etc/docker/daemon.json", '{"runtimes": {"nvidia": {}}}', (True, "")),
        ("etc/docker/daemon.json", "{}", (False, "")),
        ("etc/containerd/config.toml", OLD.format('default_runtime_name = "nvidia"\n', "nvidia"), (True, "nvidia")),
        ("etc/containerd/config.toml", NEW.format('default_runtime_name = "nvidia"\n', "nvidia"), (True, "nvidia")),
        ("etc/containerd/config.toml", NEW.format('default_runtime_name = "runc"\n', "nvidia"), (True, "runc")),
        ("etc/containerd/config.toml", NEW.format("", "runc"), (False, "")),
        ("etc/containerd/conf.d/99-nvidia.toml", NEW.format('default_runtime_name = "nvidia"\n', "nvidia"), (True, "nvidia")),
        ("etc/crio/crio.conf.d/99-nvidia.conf", CRIO.format('default_runtime = "nvidia"\n', "nvidia"), (True, "nvidia")),
    ],
)
def test_each_runtimes_own_words_are_read(tmp_path, path, text, found):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    (runtime,) = runtimes(tmp_path)
    assert ((runtime.knows, runtime.default), runtime.error) == (found, "")


def test_a_file_of_the_folder_counts_over_the_one_before(tmp_path):
    folder = tmp_path / "etc/containerd/conf.d"
    folder.mkdir(parents=True)
    (folder.parent / "config.toml").write_text(NEW.format('default_runtime_name = "runc"\n', "runc"))
    (folder / "99-nvidia.toml").write_text(NEW.format('default_runtime_name = "nvidia"\n', "nvidia"))
    (runtime,) = runtimes(tmp_path)
    assert (runtime.knows, runtime.default) == (True, "nvidia")


@pytest.mark.parametrize("text", ["[[", "plugins = 3", '{"runtimes": 3'])
def test_a_broken_file_is_named(tmp_path, text):
    for path in ("etc/docker/daemon.json", "etc/containerd/config.toml"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    found = list(runtimes(tmp_path))
    assert len(found) == 2
    assert all(runtime.error for runtime in found)


def test_a_host_without_any_says_nothing(tmp_path):
    assert list(runtimes(tmp_path)) == []
