"""``pumice lint`` finds what is misspelt, refused or without effect, and says where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pumice.cli import main as cli
from pumice.devices.lint import lint_files
from pumice.devices.registry import ALIASES, ARGUMENTS
from pumice.wire import hami_names, names
from pumice.wire.device_config_text import KEYS

SCHEDULER = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: volcano-scheduler-configmap
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate"
    tiers:
    - plugins:
      - name: predicats
      - name: deviceshare
        arguments:
          deviceshare.VGPUEnabled: true
          deviceshare.VGPUEnable: true
          deviceshare.SchedulePolicy: binpak
          deviceshare.ScheduleWeight: "ten"
          deviceshare.KnowGeometriesCMName: my-map
"""

DEVICES = """\
nvidia:
  resourceCountname: volcano.sh/vgpu-number
  knownMigGeometries:
  - models: [A100-SXM4-40GB]
    allowedGeometries:
    - group: group1
      geometries:
      - {name: 1g.5gb, memory: 5120, count: 8}
    - group: group2
      geometries:
      - {name: 1g.5gb, memory: 5120, count: 1}
      - {name: 2g.10gb, memory: 10240, count: 3}
    - group: group3
      geometries:
      - {name: 2g.20gb, memory: 20480, count: 2}
  - models: [Z900]
    allowedGeometries: []
"""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    volcano.sh/vgpu-mode: MIG
    volcano.sh/vgpu-use-gpu-uuid: GPU-1
    nvidia.com/nouse-gputype: A100
    nvidia.com/use-gputype: V100
spec:
  containers:
  - name: c
    resources:
      limits:
        volcano.sh/vgpu-number: 1
        volcano.sh/vgpu-memory: 3Gi
        volcano.sh/vgpu-core: 50
        nvidia.com/gpu: 1
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j}
spec:
  tasks:
  - name: w
    template:
      spec:
        containers:
        - name: c
          resources:
            limits:
              volcano.sh/vgpu-memory: 8
              volcano.sh/vgpu-cores: 120
              volcano.sh/vgpu-memory-percentage: 50
"""


def found(text: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.text) for finding in lint_files({"f.yaml": text})]


def has(findings: list[tuple[int, str]], line: int, *container_devices: str) -> bool:
    return any(at == line and all(container_device in text for container_device in container_devices) for at, text in findings)


def test_a_scheduler_configuration_is_read_inside_its_configmap_with_the_files_own_lines() -> None:
    findings = found(SCHEDULER)
    assert has(findings, 10, "predicats", "predicates")
    assert has(findings, 13, "deviceshare.VGPUEnabled", "deviceshare.VGPUEnable")
    assert has(findings, 15, "binpak", "binpack")
    assert has(findings, 16, "ten", "no whole number")
    assert has(findings, 17, "KnowGeometriesCMName is an old spelling")
    assert len(findings) == 5, findings


def test_both_sharing_modes_on_one_scheduler_are_an_error_with_its_line() -> None:
    text = SCHEDULER.replace("deviceshare.VGPUEnabled: true", "deviceshare.GPUSharingEnable: true")
    errors = [finding for finding in lint_files({"f.yaml": text}) if finding.error]
    assert [error.line for error in errors] == [13]
    assert "cannot both be true" in errors[0].text


def test_arguments_that_do_nothing_are_named() -> None:
    conf = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      '
    assert has(found(conf + "deviceshare.SchedulePolicy: binpack\n"), 5, "shares nothing")
    both = "deviceshare.VGPUEnable: true\n      deviceshare.SchedulePolicy: spread\n      deviceshare.ScheduleWeight: 0\n"
    assert has(found(conf + both), 8, "orders the cards of a node but not the nodes")
    legacy = "deviceshare.GPUSharingEnable: true\n      deviceshare.SchedulePolicy: spread\n"
    assert has(found(conf + legacy), 7, "does nothing without deviceshare.VGPUEnable")


def test_geometries_that_no_card_offers_are_named() -> None:
    findings = found(DEVICES)
    assert has(findings, 2, "resourceCountname", "resourceCountName")
    assert has(findings, 6, "8 × 1g.5gb do not fit on one card")
    assert has(findings, 9, "list the larger profiles first")
    assert has(findings, 15, "NVIDIA offers no profile 2g.20gb", "2g.10gb")
    assert has(findings, 16, "no card that we know with MIG is called Z900")
    assert len(findings) == 5, findings


def test_the_published_geometries_have_no_findings() -> None:
    import yaml
    from kit.objects import render_geometries

    from pumice.devices.nvidia_vgpu.mig_catalogue import PUBLISHED

    text = yaml.safe_dump({"nvidia": {"knownMigGeometries": render_geometries(PUBLISHED)}})
    assert found(text) == []


def test_wrong_units_and_misspelt_keys_of_pods_are_named() -> None:
    findings = found(POD)
    assert has(findings, 6, "'MIG' matches no card; write hami-core or mig")
    assert has(findings, 7, "nobody reads the annotation", "volcano.sh/vgpu-use-gpuuuid")
    assert has(findings, 8, "is not looked at")
    assert has(findings, 10, "schedulerName is not volcano")
    assert has(findings, 16, "3Gi is 3221225472 MiB", "write 3072")
    assert has(findings, 17, "nobody offers the resource volcano.sh/vgpu-core", "volcano.sh/vgpu-cores")
    assert has(findings, 14, "nvidia.com/gpu belongs to another plugin")
    assert has(findings, 32, "8 MiB; for 8 GiB write 8192")
    assert has(findings, 32, "the percentage wins")
    assert has(findings, 33, "120", "above 100 it fits nowhere")


def test_yaml_that_cannot_be_read_is_an_error_with_its_line() -> None:
    findings = lint_files({"f.yaml": "nvidia:\n  a: [1\n"})
    assert [finding.error for finding in findings] == [True]
    assert findings[0].line == 2


def test_the_command_exits_with_1_on_findings_and_2_on_unreadable_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("kind: Service\nspec: {ports: []}\n")
    bad.write_text(POD)
    with pytest.raises(SystemExit) as fine:
        cli.main(["lint", str(good)])
    assert fine.value.code == 0
    with pytest.raises(SystemExit) as refused:
        cli.main(["lint", str(tmp_path)])
    assert refused.value.code == 1
    assert f"{bad}:16: warning: volcano.sh/vgpu-memory: 3Gi is 3221225472 MiB" in capsys.readouterr().out
    with pytest.raises(SystemExit) as missing:
        cli.main(["lint", str(tmp_path / "none.yaml")])
    assert missing.value.code == 2


ARGUMENT = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n%s\n'
TEMPLATE = """apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
%s
spec:
  containers:
  - name: c
    resources:
      limits:
%s
"""
ANNOTATIONS = (names.VGPU_MODE, names.USE_GPU_TYPE, names.NOUSE_GPU_TYPE, names.USE_GPU_UUID, names.NOUSE_GPU_UUID,
               names.PODGROUP_POLICY, names.NODE_POLICY, names.CARD_POLICY, names.GROUP_NAME, names.GROUP_NAME_VOLCANO,
               names.QUEUE_NAME)  # fmt: skip
RESOURCES = (names.VGPU_NUMBER, names.VGPU_MEMORY, names.VGPU_CORES, names.VGPU_MEMORY_PERCENTAGE, names.GPU_MEMORY,
             names.GPU_NUMBER)  # fmt: skip


def misspelt(word: str) -> list[str]:
    """One letter left out, doubled or swapped with its neighbour, at every place behind the domain."""
    begin = word.find("/") + 2 if "/" in word else word.find(".") + 2
    made = {word[:at] + word[at + 1 :] for at in range(begin, len(word))}
    made |= {word[:at] + word[at] + word[at:] for at in range(begin, len(word))}
    made |= {word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :] for at in range(begin + 1, len(word))}
    return sorted(made - {word} - set(ANNOTATIONS) - set(RESOURCES) - set(ARGUMENTS) - set(ALIASES) - set(KEYS))


def lines(words: Sequence[str], indent: int, value: str) -> str:
    return "\n".join(f"{' ' * indent}{word}: {value}" for word in words)


def by_line(text: str, name: str, first: int, words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each word of a list that begins at that line, and what is found there."""
    found = lint_files({name: text})
    return ((word, [str(finding) for finding in found if finding.line == line]) for line, word in enumerate(words, first))


@pytest.mark.parametrize("key", ARGUMENTS)
def test_every_misspelt_argument_is_named_with_its_line(key: str) -> None:
    value = {"bool": "true", "int": "1", "str": "x", "rules": "[{a: b}]"}[ARGUMENTS[key].kind]
    words = misspelt(key)
    for word, found in by_line(ARGUMENT % lines(words, 6, value), "f.conf", 6, words):
        assert any(repr(word) in text or f"argument {word}" in text for text in found), word


@pytest.mark.parametrize("key", KEYS)
def test_every_misspelt_key_of_the_device_configmap_is_named_with_its_line(key: str) -> None:
    words = [word[1:] for word in misspelt(f".{key}")]
    for word, found in by_line(f"nvidia:\n{lines(words, 2, '1')}\n", "d.yaml", 2, words):
        assert found, word
        assert "did you mean" in found[0], word


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_every_misspelt_annotation_is_named_with_its_line(key: str) -> None:
    words = misspelt(key)
    text = TEMPLATE % (lines(words, 4, '"spread"'), lines([names.VGPU_NUMBER], 8, "1"))
    for word, found in by_line(text, "p.yaml", 6, words):
        assert any(f"nobody reads the annotation {word}; did you mean" in text for text in found), word


@pytest.mark.parametrize("key", RESOURCES)
def test_every_misspelt_resource_is_named_with_its_line(key: str) -> None:
    words = misspelt(key)
    text = TEMPLATE % (lines([names.GROUP_NAME], 4, '"spread"'), lines(words, 8, "1"))
    for word, found in by_line(text, "p.yaml", 12, words):
        assert any(f"nobody offers the resource {word}; did you mean" in text for text in found), word


@pytest.mark.parametrize("key", [names.GROUP_MIN_MEMBER, "volcano.sh/preemptable", "volcano.sh/task-spec", "example.com/note",
                                 "scheduling.k8s.io/other"])  # fmt: skip
def test_annotations_that_are_somebody_elses_are_left_alone(key: str) -> None:
    text = TEMPLATE % (lines([key], 4, '"spread"'), lines([names.VGPU_NUMBER], 8, "1"))
    assert not [finding for finding in lint_files({"p.yaml": text}) if finding.line == 6]


@pytest.mark.parametrize(("key", "ours"), hami_names.ANNOTATIONS.items())
def test_an_annotation_of_hamis_is_named_as_it_is_called_here(key: str, ours: str) -> None:
    text = TEMPLATE % (lines([key], 4, '"spread"'), lines([names.VGPU_NUMBER], 8, "1"))
    (found,) = [str(finding) for finding in lint_files({"p.yaml": text}) if finding.line == 6]
    assert found.endswith(f"{key} is HAMi's name; here it is {ours}")


def test_templates_of_npus_that_a_card_has_not_enough_for_are_found_at_their_line():
    text = """\
vnpus:
- {chipName: 310P3, commonWord: Ascend310P, resourceName: r/a, resourceMemoryName: r/a-memory, memoryAllocatable: 21}
- chipName: 910X
  commonWord: Ascend910
  resourceName: r/b
  resourceMemoryName: r/b-memory
  memoryAllocatable: 24000
  aiCore: 8
  aiCPU: 7
  templates:
  - {name: two, memory: 12000, aiCore: 9}
  - {name: one, memory: 6000, aiCore: 2, aiCPU: 2}
"""
    found = [(finding.line, finding.text) for finding in lint_files({"device-config.yaml": text})]
    assert [line for line, _ in found] == [2, 11, 12]
    assert "for 21 GiB write 21504" in found[0][1]
    assert "template two has 9 AI cores, the card 8" in found[1][1]
    assert "4 × one fit by memory and need 8 AI CPUs, the card has 7" in found[2][1]


@pytest.mark.parametrize("text", ["", "\n", "# a comment\n", "---\n", "---\n---\n", "{}", "null"])
def test_a_file_with_nothing_in_it_is_called_so(text: str) -> None:
    """The empty file that `kubectl get -o jsonpath > file` leaves of a missing ConfigMap, and `replace` would write."""
    for file in ("device-config.yaml", "volcano-scheduler.conf"):
        (found,) = lint_files({file: text, "pod.yaml": POD.replace("p\n", "p\n", 1)})[:1]
        assert (found.file, found.line, found.error) == (file, 1, True)
        assert "there is nothing in it" in found.text


@pytest.mark.parametrize("text", ["", "# a comment", "{}"])
def test_a_config_map_whose_text_is_empty_is_called_so(text: str) -> None:
    of = {"device-config.yaml": "is empty: Volcano's scheduler then knows no resource", "volcano-scheduler.conf": ""}
    for key, reported in of.items():
        first, *_ = lint_files({"m.yaml": f"kind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  {key}: '{text}'\n"})
        assert first.error
        assert reported in first.text


def test_a_separator_before_or_behind_what_is_there_is_no_empty_file() -> None:
    assert lint_files({"a.yaml": "---\nkind: Service\n---\n"}) == []
