"""Whatever others write into annotations and ConfigMaps: nothing raises, and only the smallest thing is set aside."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
import yaml
from kit.device_world import A100, V100, card, device_settings, limits, pod_of, vgpu_node
from kit.seeds import chosen_seed

from pumice.cli.fits import documents_of, pods_of
from pumice.devices.lint import lint_files
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Inventory
from pumice.devices.registry import settings_from
from pumice.model.cards import Allocation
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.node_lock import parse_lock
from pumice.wire.nvidia_gpushare import parse_index, parse_unhealthy
from pumice.wire.nvidia_vgpu import (
    CardPlace,
    PodDevice,
    parse_pod_devices,
    parse_register,
    parse_topology,
    render_pod_devices,
    render_register,
    render_topology,
)
from pumice.wire.scheduler_conf import parse_scheduler_conf

WORDS = ("GPU-a", "GPU-b", "NVIDIA", "true", "false", "mig", "hami-core", "group1", "4096", "10", "-1", "abc", "", "[", "]",
         "[group1-0]", "[group9-3]", "[2g.10gb@4]", "[1g.5gb@7]", "places",
         "[group1-99]", "[-1]", "18446744073709551616", "1e9", "²", "\x00", " ", "🙂")  # fmt: skip
SEPARATORS = (",", ":", ";", "-", ",,", "::", "")


def words(rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) + rng.choice(SEPARATORS) for _ in range(rng.randint(0, 24)))


def noise(rng: random.Random) -> str:
    return rng.randbytes(rng.randint(0, 60)).decode("utf-8", "replace")


def mutated(text: str, rng: random.Random) -> str:
    parts = list(text)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(parts))
        match rng.randint(0, 2):
            case 0:
                parts[at:at] = rng.choice(string.printable)
            case 1:
                del parts[at : at + rng.randint(1, 6)]
            case _:
                parts[at:at] = parts[: rng.randint(0, len(parts))]
    return "".join(parts)[:4000]


def run_annotations(count: int, seed: int) -> dict[str, int]:
    """Both grammars: parse, register, replay. Good cards beside a bad one stay usable."""
    rng = random.Random(seed)
    device_type = NvidiaVgpu(None, device_settings(mig_off_group=seed % 2 == 0))
    good_register = card("GPU-a", 40960, 10, A100, mode="mig", places=True) + card("GPU-b", 16384, 10, V100)
    good_ids = "GPU-a[group2-0],NVIDIA,3000,10:GPU-a[3g.20gb@4],NVIDIA,15000,10:;GPU-b,NVIDIA,4096,25:"
    inventory = device_type.inventory(vgpu_node("n1", good_register))
    assert inventory is not None
    counts = {"cards": 0, "blocked": 0, "charged": 0, "doubts": 0}
    for number in range(count):
        base = good_ids if number % 2 else good_register
        text = (words(rng), noise(rng), mutated(base, rng))[number % 3]
        register = parse_register(text, short_entries=number % 5 == 0)
        assert [c.index for c in register.cards] == list(range(len(register.cards)))
        assert len({c.uuid for c in register.cards}) == len(register.cards)
        assert sum(1 for c in register.cards if c.blocked) <= len(register.problems)
        counts["cards"] += len(register.cards)
        counts["blocked"] += sum(1 for c in register.cards if c.blocked)
        seen = device_type.inventory(vgpu_node("n1", card("GPU-good") + text))
        if seen is not None and "GPU-good" not in text and seen.cards:
            assert seen.cards[0].blocked == ""
        counts_of(device_type, inventory, text, counts)
        parse_topology(text), parse_index(text), parse_unhealthy(text), parse_lock(text)
    return counts


def holds_together(device_type: NvidiaVgpu, inventory: Inventory, allocated: Allocation) -> None:
    """Whatever one pod claims, the card's state is either none at all or one that a later pod can be fitted into."""
    book = NodeDevices.empty("n1", inventory)
    book.charge("uid", allocated)
    assert device_type.ranking.card_state(0, book.usages[0], inventory) >= -2
    device_request = device_type.device_request(pod_of("q", limits(1, 3000)))
    assert isinstance(device_request, DeviceRequest)
    device_type.fit(device_request, book.view())
    book.discharge("uid")
    assert book == NodeDevices.empty("n1", inventory)


def counts_of(device_type: NvidiaVgpu, inventory: Inventory, text: str, counts: dict[str, int]) -> None:
    devices = parse_pod_devices(text)
    again = parse_pod_devices(render_pod_devices(devices.containers))
    if any(devices.containers) and all("," not in d.uuid + d.group for part in devices.containers for d in part):
        assert again.containers == devices.containers
    pod = pod_of("p", annotations={names.VGPU_IDS: text}, node="n1")
    allocated = device_type.replay(pod, "n1", inventory)
    doubts = allocated.doubts if isinstance(allocated, Allocation) else (allocated,) if isinstance(allocated, Refusal) else ()
    assert {doubt.field for doubt in doubts} <= {c.uuid for c in inventory.cards}
    counts["doubts"] += len(doubts)
    if isinstance(allocated, Allocation):
        holds_together(device_type, inventory, allocated)
        for container_device in allocated.container_devices:
            assert container_device.uuid in text
            assert container_device.memory >= 0
            assert container_device.cores >= 0
            counts["charged"] += 1


def test_annotations_of_any_shape_never_raise() -> None:
    seed = chosen_seed()
    print("seed", seed)
    counts = run_annotations(10_000, seed)
    print(counts)
    assert min(counts.values()) > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_annotations_never_raise() -> None:
    print(run_annotations(500_000, 1), run_annotations(500_000, 2))


DOCUMENT = """
nvidia:
  resourceCountName: volcano.sh/vgpu-number
  gpuMemoryFactor: 1
  knownMigGeometries:
  - models: [A30, "A100-PCIE-40GB"]
    allowedGeometries:
    - group: group1
      geometries:
      - {name: 1g.6gb, memory: 6144, count: 4}
"""


def test_documents_of_any_shape_are_read_or_refused_with_a_line() -> None:
    rng = random.Random(3)
    read = refused = 0
    for _ in range(500):
        text = mutated(DOCUMENT, rng)
        try:
            parse_device_config(text)
            read += 1
        except BadInput as error:
            refused += str(error).startswith("line ")
        lint_files({"f": text})
    assert read + refused == 500
    assert min(read, refused) > 30


MISTAKES = yaml.safe_load((Path(__file__).parents[1] / "golden" / "lint_mistakes.yaml").read_text("utf-8"))
YAML_WORDS = ("- ", ": ", "\n", "  ", "null", "[]", "{", "[", "&a ", "*a", "!!int x", "!!map ", "1e999", ".nan", "2026-01-01",
              "|", "---\n", "tiers:", "kind: Pod", "data:", "nvidia:", "? ", "\x00", "\ufeff", "<<: *a", "spec:",
              "limits:")  # fmt: skip


def test_files_that_people_broke_are_read_or_refused_by_every_reader_of_them() -> None:
    seed = chosen_seed()
    print("seed", seed)
    rng = random.Random(seed)
    refused = 0
    for _ in range(200):
        text: str = mutated(rng.choice(MISTAKES)["text"], rng)
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(YAML_WORDS) + text[at:]
        lint_files({"f": text})
        for reader in (parse_scheduler_conf, parse_device_config, lambda text: pods_of(Path("f"), documents_of(Path("f"), text))):
            try:
                reader(text)
            except BadInput:
                refused += 1
    assert refused > 30


def test_arguments_of_any_type_are_read_or_warned_about() -> None:
    rng = random.Random(4)
    values = (True, False, 0, -3, 2**70, 1.5, "", "x", "10", None, [], [{}], [{"a": 1}], {"a": []}, [[1]], "true")
    for _ in range(500):
        keys = rng.sample(("deviceshare.VGPUEnable", "deviceshare.ScheduleWeight", "deviceshare.SchedulePolicy",
                            "deviceshare.GPUExclusiveRules", "pumice.MigPolicy", "nonsense",
                            "deviceshare.KnowGeometriesCMName", "predicate.GPUNumberEnable"), 4)  # fmt: skip
        settings_from({key: rng.choice(values) for key in keys})


def test_what_is_written_is_read_back_the_same() -> None:
    rng = random.Random(5)
    for _ in range(200):
        containers = tuple(
            tuple(
                PodDevice(f"GPU-{rng.randint(0, 9)}", rng.randint(0, 99999), rng.randint(0, 100),
                          *rng.choice(((), ("group-x", rng.randint(0, 7)), ("", rng.randint(0, 7), "1g.5gb"))))
                for _ in range(rng.randint(0, 3))
            )
            for _ in range(rng.randint(1, 4))
        )  # fmt: skip
        if any(containers):
            assert parse_pod_devices(render_pod_devices(containers)).containers == containers
    both = card("GPU-a", 40960, 10, A100, mode="mig", places=True) + card("GPU-b", 16384, 4, V100, healthy=False)
    register = parse_register(both)
    assert parse_register(render_register(register.cards)) == register
    places = (CardPlace("GPU-a", 0, (("GPU-b", 4),)), CardPlace("GPU-b", -1))
    assert parse_topology(render_topology(places)) == places
