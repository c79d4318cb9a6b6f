"""The model file of a machine, and the errors of its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumice.model.errors import BadInput
from pumice.model.hardware import mig_table, mig_table_for, mig_tables, preset_names
from pumice_lab.machine import FaultModel, load_model, machine_of, preset

A_WHOLE_MACHINE = """\
machine: n1
driver: 535.104.05
cuda: "12.2"
time: virtual
cards:
- preset: A100-SXM4-40GB
  count: 2
  numa: 0
  mig: {mode: true}
- preset: GeForce-GTX-1080-Ti
  uuid: GPU-00000000-0000-0000-0000-000000000001
  pci: 0000:c1:00.0
  strangers: 1Gi
- name: NVIDIA Something New
  memory: 8Gi
  sms: 10
  compute: "9.0"
faults:
- {call: cuMemAlloc, error: CUDA_ERROR_OUT_OF_MEMORY, first: 3, count: 2}
- {call: nvmlDeviceGetMemoryInfo, delay-ms: 2.5}
"""

THE_SAME_IN_TOML = """\
machine = "n1"
driver = "535.104.05"
cuda = "12.2"
time = "virtual"

[[cards]]
preset = "A100-SXM4-40GB"
count = 2
numa = 0
mig = { mode = true }

[[cards]]
preset = "GeForce-GTX-1080-Ti"
uuid = "GPU-00000000-0000-0000-0000-000000000001"
pci = "0000:c1:00.0"
strangers = "1Gi"

[[cards]]
name = "NVIDIA Something New"
memory = "8Gi"
sms = 10
compute = "9.0"

[[faults]]
call = "cuMemAlloc"
error = "CUDA_ERROR_OUT_OF_MEMORY"
first = 3
count = 2

[[faults]]
call = "nvmlDeviceGetMemoryInfo"
delay-ms = 2.5
"""


def test_a_model_file_describes_cards_driver_time_and_faults() -> None:
    model = load_model(A_WHOLE_MACHINE)
    assert (model.name, model.driver, model.cuda, model.virtual_time) == ("n1", "535.104.05", 12020, True)
    first, second, geforce, new = model.cards
    assert (first.name, first.memory, first.sms, first.numa) == ("NVIDIA A100-SXM4-40GB", 40960, 108, 0)
    assert first.mig == "a100-40"
    assert first.mig_mode
    assert first.uuid != second.uuid
    assert (geforce.memory, geforce.strangers, geforce.pci) == (11178, 1024, "00000000:C1:00.0")
    assert (new.memory, new.sms, new.mig) == (8192, 10, "")
    assert model.faults == (
        FaultModel("cuMemAlloc", 2, 3, 2),
        FaultModel("nvmlDeviceGetMemoryInfo", delay_ns=2_500_000),
    )


def test_toml_says_the_same_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text(THE_SAME_IN_TOML)
    assert load_model(file) == load_model(str(file)) == load_model(THE_SAME_IN_TOML) == load_model(A_WHOLE_MACHINE)


def test_uuids_depend_on_machine_name_and_index_alone() -> None:
    assert machine_of("2xTesla-T4", name="n1") == machine_of(["Tesla-T4", "Tesla-T4"], name="n1")
    assert machine_of("Tesla-T4", name="n1").cards[0].uuid == "GPU-fbb78198-6b3b-5836-86dd-fffc70860480"
    assert machine_of("Tesla-T4", name="n2").cards[0].uuid != machine_of("Tesla-T4", name="n1").cards[0].uuid


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "cards:\n- preset: Tesla-T4\n  memroy: 5\n",
            '<model>:3: cards[0].memroy: unknown key; did you mean "memory"?',
        ),
        ("crads: []\n", '<model>:1: crads: unknown key; did you mean "cards"?'),
        ("cards:\n- Tesla-T5\n", "<model>:2: cards[0]: 'Tesla-T5' is not known; did you mean \"Tesla-T4\"?"),
        (
            "cards:\n- preset: a100_sxm4_40gb\n",
            "<model>:2: cards[0].preset: 'a100_sxm4_40gb' is not known; did you mean \"A100-SXM4-40GB\"?",
        ),
        (
            "cards:\n- preset: Tesla-T4\n  memory: -1\n",
            "<model>:3: cards[0].memory: a size must be at least 1 MiB, not -1",
        ),
        (
            "cards:\n- {preset: Tesla-T4, memory: 5GB}\n",
            "<model>:2: cards[0].memory: must be MiB or a size such as 512Mi or 40Gi, not '5GB'",
        ),
        (
            '[[cards]]\npreset = "Tesla-T4"\nstrangers = -3\n',
            "<model>:3: cards[0].strangers: a size must be at least 0 MiB, not -3",
        ),
        ("cards:\n- preset: L4\n  mig: true\n", "<model>:3: cards[0].mig: NVIDIA L4 has no MIG"),
        ("time: virtal\ncards: [L4]\n", "<model>:1: time: 'virtal' is not known; did you mean \"virtual\"?"),
        ("time: real\n", "<model>:1: has no cards"),
        ("cards: []\n", "<model>:1: cards: a machine has 1 to 16 cards, not 0"),
        (
            "cards:\n- {preset: L4, count: 17}\n",
            "<model>:2: cards[0].count: must be at most 16, not 17",
        ),
        (
            "cards: [L4]\nfaults:\n- {call: cuMemAlloc, error: CUDA_ERROR_OUT_OF_MEMROY}\n",
            "<model>:3: faults[0].error: 'CUDA_ERROR_OUT_OF_MEMROY' is not an error of CUDA or NVML; "
            'did you mean "CUDA_ERROR_OUT_OF_MEMORY"?',
        ),
        (
            "cards: [L4]\nfaults:\n- {call: cuMemAlloc}\n",
            '<model>:3: faults[0]: does nothing; give it "error", "delay-ms" or "crash"',
        ),
        (
            "cards:\n- {preset: L4, nvlink: [1]}\n- {preset: L4}\n",
            "<model>:2: cards[0]: nvlink has 1 to card 1, which has 0 back",
        ),
        ("cards:\n- {preset: L4\n", "<model>:3: not YAML: expected ',' or '}', but got '<stream end>'"),
        ("cards = [\n1,,\n]\n", "<model>:2: not TOML: Invalid value (at line 2, column 3)"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_the_nearest_right_word(text: str, mistake: str) -> None:
    with pytest.raises(BadInput) as raised:
        load_model(text)
    assert str(raised.value) == mistake


def test_two_cards_with_one_uuid_are_refused_at_the_second() -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000001"
    text = f"cards:\n- preset: L4\n  uuid: {uuid}\n- preset: L4\n  uuid: {uuid}\n"
    with pytest.raises(BadInput) as raised:
        load_model(text)
    assert (
        str(raised.value) == f"<model>:5: cards[1].uuid: cards 0 and 1 have one uuid ({uuid}); every card has its own"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(match=r"none\.yaml: cannot be read: No such file"):
        load_model(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(match="not UTF-8"):
        load_model(binary)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_card_whose_mig_table_is_the_one_its_name_finds(name: str) -> None:
    card = preset(name)
    found = mig_table_for(card.name)
    assert card.mig == (found.name if found else "")
    assert 0 <= card.reserved < card.memory


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(match='did you mean "H200"'):
        preset("H-200")


@pytest.mark.parametrize("name", list(mig_tables()))
def test_every_geometry_is_made_of_profiles_of_its_table_and_fits_the_card(name: str) -> None:
    table = mig_table(name)
    for group in table.geometries:
        assert sum(table.profile(profile).size * count for profile, count in group) <= table.memory_slices
        assert sum(table.profile(profile).slices * count for profile, count in group) <= table.compute_slices


@pytest.mark.parametrize(
    ("product", "table"),
    [
        ("NVIDIA-NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA GB200", None),
        ("NVIDIA RTX A3000", None),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H100 on GH200", "h100-96"),
    ],
)
def test_a_product_finds_its_table_as_a_whole_word(product: str, table: str | None) -> None:
    found = mig_table_for(product)
    assert (found.name if found else None) == table


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[4] / "examples/machines").iterdir()), ids=lambda f: f.name
)
def test_every_example_is_a_machine_of_its_own_name(file: Path) -> None:
    assert load_model(file).name == file.stem
