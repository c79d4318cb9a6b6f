"""``pumice fits`` and its other name ``pumice claim fits`` of claims: which devices those in files would get."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kit.claims import asks, claim, published, shared_card

from pumice.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples" / "claims"
CLASS = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
SLICE = {"kind": "ResourceSlice", **published(shared_card(), allNodes=True)}


def _write(folder: Path, *objects: object) -> str:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


@pytest.mark.parametrize("words", [["fits"], ["claim", "fits"]])
def test_the_example_tells_both_nodes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main([*words, "-f", str(EXAMPLES / "slices.yaml"), "-f", str(EXAMPLES / "claim.yaml")])
    assert end.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "n1: does not fit",
        "  node n1: the claims cannot be allocated",
        "  claim research/training, request gpu: 1 wanted; gpu.example.com/n1/gpu-0: capacity memory: wants 32Gi, 20Gi is free",
        "n2: fits",
        "  claim research/training, request gpu: gpu.example.com/n2/gpu-0, cores 33, memory 32Gi",
    ]


def test_lists_and_templates_are_read_and_a_node_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim(asks(count=2))["spec"]}}
    path = _write(tmp_path, {"kind": "List", "metadata": {}, "items": [SLICE, CLASS, template]})
    with pytest.raises(SystemExit) as end:
        main.main(["claim", "fits", "-f", path, "--node", "n7"])
    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines()[0] == "n7: does not fit"


@pytest.mark.parametrize(("objects", "said"), [
    ((CLASS,), "no Pod and nothing with a pod template in it, and no ResourceClaim"),
    ((SLICE, CLASS), "no ResourceClaim in the files that has no devices yet"),
    (("text",), "objects.yaml:1: expected an object of Kubernetes"),
    ((SLICE, {"kind": "ResourceClaim", **claim({"name": "g"})}), "g: exactly one of exactly and firstAvailable must be set"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(
    tmp_path: Path, objects: tuple[object, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["claim", "fits", "-f", _write(tmp_path, *objects)])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("more", "said"), [
    (["--from", "case.json"], "of slices in files the answer is text, and of nothing else"),
    (["-o", "json"], "of slices in files the answer is text, and of nothing else"),
])  # fmt: skip
def test_slices_in_files_are_asked_alone(
    tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["fits", "-f", _write(tmp_path, SLICE, CLASS, {"kind": "ResourceClaim", **claim(asks())}), *more])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_node_is_named_for_slices_in_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    with pytest.raises(SystemExit) as end:
        main.main(["fits", "-f", _write(tmp_path, pod), "--node", "n1"])
    assert end.value.code == 2
    assert "--node is for slices in files" in capsys.readouterr().err
