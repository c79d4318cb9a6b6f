"""Every command of the product, in the files of the image as `make image` writes it, by the image's own interpreter."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from deploy.image import build, contents, debian
from kit import every_command
from kit.local_cluster import local_cluster

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]  # most of it is building the image


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("image")
    subprocess.run(["make", "-s", "-o", "setup", "image", f"DIST={directory}"], cwd=ROOT, check=True, timeout=400)
    root = directory / "root"
    with tarfile.open(directory / "pumice-image.tar") as layout:

        def blob(digest: str) -> bytes:
            found = layout.extractfile("blobs/" + digest.replace(":", "/"))
            assert found is not None
            return found.read()

        index = layout.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as files:
                files.extractall(root, filter="fully_trusted")
    return root


def test_every_command_of_the_product_serves_in_the_image(tree: Path, tmp_path: Path) -> None:
    said = contents.read(debian.python())
    home = tmp_path / "home"
    home.mkdir()

    def python(program: str, given: str) -> subprocess.CompletedProcess[str]:
        how = build.interpreter(tree, said, "-c", program)
        how["env"] |= {"PATH": "/usr/bin:/bin", "HOME": str(home), "COLUMNS": "200"}
        return subprocess.run(**how, cwd=home, input=given, capture_output=True, text=True, timeout=120)

    here = [*every_command.helps(), *every_command.without_cluster(tmp_path)]
    assert not every_command.all_that_is_wrong(python, here)
    with local_cluster(tmp_path / "cluster") as cluster:
        every_command.furnish(cluster, python)
        assert not every_command.all_that_is_wrong(python, list(every_command.in_a_cluster(cluster, tmp_path)))
