"""``pumice claim fits``: which devices the claims in files would get."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kit.claims import asks, claim, published, shared_card

from pumice.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples" / "claims"
CLASS = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def _write(folder: Path, *objects: object) -> str:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_the_example_tells_both_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["claim", "fits", "-f", str(EXAMPLES / "slices.yaml"), "-f", str(EXAMPLES / "claim.yaml")])
    assert end.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "n1: does not fit",
        "  node n1: the claims cannot be allocated",
        "  claim research/training, request gpu: 1 wanted; gpu.example.com/n1/gpu-0: capacity memory: wants 32Gi, 20Gi is free",
        "n2: fits",
        "  claim research/training, request gpu: gpu.example.com/n2/gpu-0, cores 33, memory 32Gi",
    ]


def test_lists_and_templates_are_read_and_a_node_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slice_ = {"kind": "ResourceSlice", **published(shared_card(), allNodes=True)}
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim(asks(count=2))["spec"]}}
    path = _write(tmp_path, {"kind": "List", "metadata": {}, "items": [slice_, CLASS, template]})
    with pytest.raises(SystemExit) as end:
        main.main(["claim", "fits", "-f", path, "--node", "n7"])
    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines()[0] == "n7: does not fit"


@pytest.mark.parametrize(("objects", "said"), [
    ((CLASS,), "no ResourceClaim that has no devices yet"),
    (("text",), "objects.yaml:1: expected an object of Kubernetes"),
    (({"kind": "ResourceClaim", **claim({"name": "g"})},), "request g: exactly one of exactly and firstAvailable must be set"),
])  # fmt: skip
def test_what_is_wrong_is_one_line(
    tmp_path: Path, objects: tuple[object, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["claim", "fits", "-f", _write(tmp_path, *objects)])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
