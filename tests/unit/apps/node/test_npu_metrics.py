"""The page of a node's NPUs: cards, slices with whose they are, and soft shares (HAMi ascend-device-plugin, MindCluster
npu-exporter)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kit.virtual_time import run_virtually

from pumice.adapters.region.reader import SIZE, read_npu_share
from pumice.apps.node.npu_metrics import npu_page
from pumice.metrics.text import render
from pumice.node.pods import NodePod
from pumice.ports.cards import CardReading
from pumice.ports.slices import Vnpu
from pumice.wire.ascend_hami import RuntimeNpu, render_runtime, runtime_key
from pumice.wire.objects import convert

CONTAINER = "abcdef012345" + "0" * 52


class Driver:
    def readings(self) -> tuple[CardReading, ...]:
        return (CardReading(0, "U1", 1 << 30, 24 << 30, 40, name="310P3"),)

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        return (Vnpu(100, "vir02", 0, True, 0xABCDEF012345, 6144, 2, 1024, 100), Vnpu(101, "vir01", memory=3072, cores=1))


class Own:
    def __init__(self, *pods: NodePod) -> None:
        self.pods = list(pods)


def page(hook: Path) -> str:
    pod = convert(NodePod, {
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid", "annotations": {
            runtime_key("Ascend310P"): render_runtime([RuntimeNpu("U1", memory=4096, cores=90)])}},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "containerID": f"containerd://{CONTAINER}"}]},
    })  # fmt: skip

    async def requested() -> str:
        return render(await npu_page(Driver(), Driver(), hook, "Ascend310P", Own(pod)))  # type: ignore[arg-type]

    return run_virtually(requested())


def soft_file(path: Path) -> None:
    content = bytearray(SIZE)
    struct.pack_into("<Q", content, 0, 4096 << 20)
    for slot, (pid, active, used) in enumerate([(7, 1, 100), (8, 0, 1000), (9, 1, 11)]):
        struct.pack_into("<i", content, 1080 + 80 * slot, pid)
        struct.pack_into("<Q", content, 1080 + 80 * slot + 8, used)
        struct.pack_into("<I", content, 1080 + 80 * slot + 72, active)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_cards_and_slices_are_told_under_the_names_that_people_scrape(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert 'hami_host_gpu_memory_used_bytes{device_index="0",device_type="Ascend-310P3",device_uuid="U1"} 1073741824' in text
    assert 'hami_host_gpu_utilization_ratio{device_index="0",device_type="Ascend-310P3",device_uuid="U1"} 40' in text
    whose = 'aicore_count="2",container_name="c",id="0",is_virtual="true",model_name="Ascend-310P3",namespace="ns",pod_name="p"'
    assert f'vnpu_pod_total_memory{{{whose},v_dev_id="100"}} 6291456' in text
    assert f'vnpu_pod_used_memory{{{whose},v_dev_id="100"}} 1048576' in text
    assert f'vnpu_pod_aicore_utilization{{{whose},v_dev_id="100"}} 100' in text
    assert 'pumice_vnpu_info{container="",device_uuid="U1",namespace="",pod="",template="vir01",v_dev_id="101"} 1' in text
    assert "hami_vgpu_memory_used_bytes{" not in text, "a container without an open file is left out"


def test_a_soft_share_tells_its_limit_and_what_its_active_processes_use(tmp_path: Path) -> None:
    soft_file(tmp_path / "containers" / "uid_c" / "vnpu_local_shmem")
    text = page(tmp_path)
    labels = '{container="c",device_uuid="U1",namespace="ns",pod="p",vdevice_index="0"}'
    assert f"hami_vgpu_memory_used_bytes{labels} 111" in text
    assert f"hami_vgpu_memory_limit_bytes{labels} 4294967296" in text
    assert f"hami_container_device_utilization_ratio{labels} 40" in text
    assert f"hami_vgpu_memory_context_bytes{labels} 0" in text
    assert 'device_uuid="U1"} 111' in text.split("hami_host_gpu_utilization_ratio")[0], "the card tells what its shares use"


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_file_that_is_none_is_left_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert read_npu_share(tmp_path / "f") is None
    assert read_npu_share(tmp_path / "none") is None
