"""Section vnpus of the device ConfigMap: both forms, and what is wrong with an entry costs that entry alone."""

from __future__ import annotations

import pytest

from pumice.wire.device_config_text import parse_device_config
from pumice.wire.npu_config import shipped

ENTRY = """\
  - chipName: 310P3
    commonWord: Ascend310P
    resourceName: huawei.com/Ascend310P
    resourceMemoryName: huawei.com/Ascend310P-memory
    memoryAllocatable: 21527
    memoryCapacity: 24576
    aiCore: 8
    aiCPU: 7
    templates:
    - {name: vir04, memory: 12288, aiCore: 4, aiCPU: 4}
    - {name: vir01, memory: 3072, aiCore: 1, aiCPU: 1}
    - {name: vir02, memory: 6144, aiCore: 2, aiCPU: 2}
"""


def test_the_list_and_the_mapping_mean_the_same():
    listed = parse_device_config(f"vnpus:\n{ENTRY}")
    mapped = parse_device_config(f"vnpus:\n  hamiVnpuCore: true\n  configs:\n{ENTRY}")
    assert listed.vnpus.chips == mapped.vnpus.chips
    assert (listed.vnpus.soft, mapped.vnpus.soft) == (False, True)
    assert listed.warnings == mapped.warnings == ()


def test_the_templates_are_sorted_and_the_entry_is_what_is_shipped():
    (chip,) = parse_device_config(f"vnpus:\n{ENTRY}").vnpus.chips
    assert chip == next(chip for chip in shipped().chips if chip.name == "310P3")


def test_a_document_that_says_nothing_of_npus_has_none():
    assert parse_device_config("nvidia: {}\n").vnpus is None


BROKEN = [
    ("memoryAllocatable: 21527", "memoryAllocatable: 30000", "memoryAllocatable 30000 is above memoryCapacity 24576"),
    ("memoryAllocatable: 21527", "memoryAllocatable: lots", "memoryAllocatable: 'lots' is no whole number"),
    ("    commonWord: Ascend310P\n", "", "commonWord is missing"),
    ("commonWord: Ascend310P", "commonWord: 'a/b'", "holds '/'"),
    ("name: vir02", "name: vir01", "template vir01 is there twice"),
    ("memory: 12288", "memory: 31000", "more than memoryAllocatable"),
    ("memory: 3072", "memory: 0", "needs a memory above 0"),
]


@pytest.mark.parametrize(("old", "new", "words"), BROKEN)
def test_an_entry_that_cannot_be_meant_is_left_out_and_the_others_stay(old, new, words):
    other = ENTRY.replace("310P3", "other").replace("Ascend310P", "Other")
    found = parse_device_config(f"vnpus:\n{ENTRY.replace(old, new, 1)}{other}")
    assert [chip.word for chip in found.vnpus.chips] == ["Other"]
    (warning,) = found.warnings
    assert words in warning
    assert warning.startswith("line 2: vnpus.0:")


def test_two_entries_of_one_name_are_one():
    found = parse_device_config(f"vnpus:\n{ENTRY}{ENTRY}")
    assert len(found.vnpus.chips) == 1
    assert "commonWord 'Ascend310P' is there twice" in found.warnings[0]


def test_a_misspelt_key_is_told_with_the_right_one():
    found = parse_device_config(f"vnpus:\n{ENTRY.replace('aiCPU: 7', 'aiCpu: 7')}")
    assert found.warnings == ("line 9: vnpus.0.aiCpu: unknown key; did you mean 'aiCPU'?",)
