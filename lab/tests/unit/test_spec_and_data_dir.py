"""Mistakes in the description of a cluster, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumice.model.errors import BadInput
from pumice_lab.datadir import DataDir
from pumice_lab.spec import load, uniform


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    return file


def test_a_cluster_file_names_nodes_by_hand_or_by_count(tmp_path: Path) -> None:
    spec = load(written(tmp_path, "nodes:\n- {cards: 8, model: A100-SXM4-80GB}\n- {name: old, count: 2, cpu: 16}\n"))
    nodes = [(n.name, n.cards, n.cpu) for n in spec.nodes]
    assert nodes == [("node-1", 8, "8"), ("old-1", 2, "16"), ("old-2", 2, "16")]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("nodes:\n- cards: 2\n  modle: A30\n", ':3: nodes[0].modle: unknown key; did you mean "model"?'),
        ("nodes:\n- {cards: 1}\n- model: A31\n", """:3: nodes[1].model: 'A31' is not known; did you mean "A30"?"""),
        ("nodes: [{sharing: msp}]\n", """:1: nodes[0].sharing: 'msp' is not known; did you mean "mps"?"""),
        ("noeds: []\n", ':1: noeds: unknown key; did you mean "nodes"?'),
        ("nodes: 3\n", ":1: nodes: must be a list"),
        ("- a\n", ":1: must be a mapping of keys to values"),
        ("nodes: [{cards: -1}]\n", ":1: nodes[0].cards: must be at least 0, not -1"),
        ("nodes: [{cards: two}]\n", ":1: nodes[0].cards: must be a whole number, not 'two'; what cards they are stands"),
        ("nodes: [{cards: [Tesla-T4]}]\n", ":1: nodes[0].cards: must be a whole number, not ['Tesla-T4']; what cards they are "
         "stands beside it, as in {cards: 2, model: Tesla-T4}"),
        ("nodes: [{name: {a: [1]}}]\n", ":1: nodes[0].name: must be a word, not {'a': [1]}"),
        ("nodes: [{count: 0}]\n", ":1: nodes[0].count: must be at least 1, not 0"),
        ("nodes: [{memory: 3Gb}]\n", ":1: nodes[0].memory: '3Gb' is not a quantity"),
        ("nodes: [{cpu: 0}]\n", ":1: nodes[0].cpu: must be above zero, not 0"),
        ("nodes: [{mig: 'no'}]\n", ":1: nodes[0].mig: must be true or false, not 'no'"),
        ("nodes: [{name: Gpu_1}]\n", ":1: nodes[0].name: 'Gpu_1' cannot be a node's name: a lowercase RFC 1123 subdomain"),
        ("nodes: [{labels: [a]}]\n", ":1: nodes[0].labels: must be a mapping of labels to values"),
        ("nodes:\n- labels:\n    a: b c\n", ":3: nodes[0].labels.a: cannot be a node's label: "),
        ("nodes: [{labels: {'/a': b}}]\n", "cannot be a node's label: prefix part must be non-empty"),
        ("nodes: [{labels: {a: 3}}]\n", ":1: nodes[0].labels.a: must be a word, not 3"),
        ("nodes: [{name: a}, {name: a}]\n", "two nodes are named 'a'"),
        ("nodes: [\n", ":2: not YAML"),
        ("podNetwork: 10.0.0.0/30\n", ": pod network 10.0.0.0/30: it is a private range of /24 or larger"),
        ("podNetwork: here\n", ": pod network 'here': it is auto, none, or a range such as 10.77.0.0/16"),
        ("controlPlane: kubernetes\n", ":1: controlPlane: 'kubernetes' is not known; "),
        ("port: 70000\n", ":1: port: must be at most 65535, not 70000"),
        ("images: pumice\n", ":1: images: must be a list"),
        ("admission: [/job/mutate]\n", ":1: admission[0]: '/job/mutate' is not known; "),
    ],
)
def test_a_wrong_cluster_file_is_told_with_place_and_nearest_word(tmp_path: Path, text: str, reported: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(written(tmp_path, text))
    assert reported in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cluster_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_bytes(b"nodes: \xff")
    with pytest.raises(BadInput, match=r"cluster\.yaml: cannot be read: not UTF-8 text"):
        load(tmp_path / "cluster.yaml")
    with pytest.raises(BadInput, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")


def test_a_cluster_file_says_which_network_pods_get(tmp_path: Path) -> None:
    assert load(written(tmp_path, "podNetwork: 10.77.0.0/16\n")).pod_network == "10.77.0.0/16"
    assert load(written(tmp_path, "nodes: []\n")).pod_network == "auto"


def test_a_cluster_file_says_what_the_admission_decides(tmp_path: Path) -> None:
    assert load(written(tmp_path, "admission: [/pods/validate, /jobs/mutate]\n")).admission == ("/pods/validate", "/jobs/mutate")
    assert load(written(tmp_path, "admission: []\n")).admission == ()
    assert load(written(tmp_path, "nodes: []\n")).admission is None


def test_a_label_of_a_node_may_be_empty_as_that_of_its_role_is(tmp_path: Path) -> None:
    (node,) = load(written(tmp_path, 'nodes: [{labels: {node-role.kubernetes.io/control-plane: ""}}]\n')).nodes
    assert node.labels == (("node-role.kubernetes.io/control-plane", ""),)


def test_an_empty_cluster_file_means_one_node_of_two_cards(tmp_path: Path) -> None:
    for text in ("", "nodes:\n", "nodes: [{}]\n"):
        (node,) = load(written(tmp_path, text)).nodes
        assert (node.name, node.cards, node.model) == ("node-1", 2, "GeForce-GTX-1080-Ti")


def test_numbers_on_the_command_line_are_bounded() -> None:
    with pytest.raises(BadInput, match=r"--nodes: 0 is outside 1\.\.1000"):
        uniform(0, 2, "A30")


def test_a_held_data_dir_is_refused_to_a_second_cluster(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path / "d"), DataDir(tmp_path / "d")
    with first.hold():
        first.write_facts({"pid": 4242})
        assert second.running()
        with pytest.raises(BadInput, match=r"belongs to a running cluster \(pid 4242\)"), second.hold():
            pass
    assert not second.running()
    with second.hold():
        assert first.running()


def test_a_data_dir_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below_a_file = DataDir(tmp_path / "file" / "d")
    with pytest.raises(BadInput, match="Not a directory; name another with --data-dir"), below_a_file.hold():
        pass


def test_two_data_dirs_have_addresses_of_their_own_on_loopback() -> None:
    one, other = DataDir(Path("/a")), DataDir(Path("/b"))
    addresses = {d.address(i) for d in (one, other) for i in range(1000)}
    assert len(addresses) == 2000
    assert all(a.startswith("127.") for a in addresses)
