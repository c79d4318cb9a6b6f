"""The image of the daemons: what it is made of, that it is always the same, and what is refused."""

from __future__ import annotations

import json
import os
import platform
import tarfile
from pathlib import Path

import pytest
from deploy.image import build, contents, debian, oci
from kit.manifests import manifest

from pumice import __version__

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = sorted((ROOT / "deploy/manifests").glob("*.yml"))


def test_the_dockerfile_says_what_the_image_is_made_of() -> None:
    dockerfile = (ROOT / "deploy/image/Dockerfile").read_text()
    assert dockerfile == contents.read("python3.11").dockerfile(__version__)
    for path in contents.read("python3.11").said["left_out"]["paths"]:
        assert path in dockerfile


def test_every_manifest_names_the_image_that_is_built() -> None:
    named = {
        container["image"]
        for path in MANIFESTS
        for obj in manifest(path.name)
        for container in obj.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    }
    assert named == {f"{contents.read('python3.11').said['image']['name']}:{build.version()}"}
    assert build.version() == __version__


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("usr/local/lib/python3.11/dist-packages/pumice/apps/scheduler/daemon.py", True),
        ("usr/local/lib/python3.11/dist-packages/pumice/_native/vgpu/libvgpu.so", True),
        ("usr/local/lib/python3.11/dist-packages/numpy/_core/tests/test_api.py", False),
        ("usr/share/doc/libc6/copyright", True),
        ("usr/share/doc/libc6/changelog.Debian.gz", False),
    ],
)
def test_daemons_and_licences_are_in_it_and_tests_are_not(path: str, holds: bool) -> None:
    assert contents.read("python3.11").holds(path) is holds


def test_who_built_it_and_when_leaves_no_trace(tmp_path: Path) -> None:
    def made(folder: Path, time: float, mask: int) -> oci.Image:
        before = os.umask(mask)
        try:
            for name in ("b/second", "a/first", "a/third"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(name)
                os.utime(folder / name, (time, time))
            (folder / "link").symlink_to("a/first")
        finally:
            os.umask(before)
        return oci.image("x:1", "amd64", [build._layer(folder, 0, lambda path: True)], {"User": "0"})

    one, other = made(tmp_path / "one", 1.0, 0o022), made(tmp_path / "other", 2e9, 0o027)
    assert one.blobs == other.blobs
    one.write(tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar") as layout:
        index = json.load(layout.extractfile("index.json"))  # type: ignore[arg-type]
        assert index["manifests"][0]["digest"] == one.manifest
        assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "x:1"
        assert {entry.uid for entry in layout} == {0}
        for digest in one.blobs:
            assert layout.extractfile("blobs/" + digest.replace(":", "/")).read() == one.blobs[digest]  # type: ignore[union-attr]


def test_a_wheel_for_another_kind_of_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(debian, "architecture", lambda: "amd64")
    wheel = tmp_path / "pumice-0.1.0-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"
    wheel.touch()
    assert build.main([str(wheel)]) == 2
    assert capsys.readouterr().err == (
        f"build.py: {wheel.name}: it is for arm64, and this machine's packages are for amd64 (its processor: "
        f"{platform.machine()}); make the image on a machine of that kind\n"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "name the wheel"),
        ("gone.whl", "there is no such wheel"),
        ("pumice-0.1.0-py3-none-any.whl", "tells of no architecture"),
    ],
)
def test_no_wheel_and_a_wheel_for_any_machine_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    monkeypatch.setattr(debian, "architecture", lambda: "amd64")
    (tmp_path / "pumice-0.1.0-py3-none-any.whl").touch()
    assert build.main([str(tmp_path / name)] if name else []) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_where_there_are_no_debian_packages_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(debian.Refused, match="on Debian or Ubuntu"):
        debian.architecture()
