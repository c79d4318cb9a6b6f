"""The twin gives containers CDI devices as containerd 2 does, and refuses those that no file names, in its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.tests.unit.kubelet.world import NUMBER, FakePlugin, OnNode, World, devices

from pumice_lab.kubelet.devices.cdi import resolve
from pumice_lab.kubelet.devices.plugin import Allocation, AnsweredMount
from pumice_lab.runtime.spec import StartFailed

KIND = "vendor.example/card"


def write(folder: Path, name: str, *names: str, common: Any = None, **edits: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = [{"name": device, "containerEdits": edits or {"env": [f"SEEN_{device}=1"]}} for device in names]
    document = {"cdiVersion": "0.5.0", "kind": KIND, "devices": found, "containerEdits": common or {}}
    (folder / name).write_text(json.dumps(document))


def test_a_device_that_no_file_names_keeps_the_pod_waiting_in_containerds_words_until_one_does(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(answer=lambda ids: Allocation(cdi_devices=(f"{KIND}=a", f"{KIND}=b"))), devices("x"))
        write(here.settings.cdi_folders[-1], "v.json", "a")
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        assert (await here.status("p"))["phase"] == "Pending"
        assert (await here.state("p"))["state"]["waiting"] == {
            "reason": "CreateContainerError",
            "message": f"failed to create containerd container: CDI device injection failed: unresolvable CDI devices {KIND}=b",
        }
        write(here.settings.cdi_folders[-1], "v.json", "a", "b")
        await here.settle(60)
        assert (await here.status("p"))["phase"] == "Running"
        assert {"SEEN_a", "SEEN_b"} <= set(here.runtime.started[-1].env)

    on_node(work)


def test_what_a_device_brings_counts_before_the_pods_own_and_an_annotation_names_it_as_well(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        notes = (("cdi.k8s.io/nvidia-device-plugin_1", f"{KIND}=a,{KIND}=b"), ("other.io/x", f"{KIND}=z"))
        answer = Allocation(envs=(("A", "plugin"),), mounts=(AnsweredMount("/lib/x", "/srv/plugin"),), annotations=notes)
        here.plug(FakePlugin(answer=lambda ids: answer), devices("x"))
        write(here.settings.cdi_folders[-1], "v.json", "a", "b", common={"env": ["A=common", "B=common"], "mounts": [
            {"hostPath": "/srv/device", "containerPath": "/lib/x", "options": ["ro"]}]}, env=["A=device"])
        await here.pod("p", limits={NUMBER: 1}, container={"env": [{"name": "A", "value": "pod"}]})
        await here.settle()
        started = here.runtime.started[-1]
        assert (started.env["A"], started.env["B"]) == ("device", "common")
        assert [(m.source, m.read_only) for m in started.mounts if m.target == "/lib/x"] == [("/srv/device", True)]
        assert started.cdi_devices == (f"{KIND}=a", f"{KIND}=b")

    on_node(work)


def test_a_device_file_that_is_missing_keeps_the_pod_waiting(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        node = here.directory / "nvidia9"
        here.plug(FakePlugin(answer=lambda ids: Allocation(cdi_devices=(f"{KIND}=a",))), devices("x"))
        write(here.settings.cdi_folders[-1], "v.json", "a", deviceNodes=[{"path": "/dev/nvidia9", "hostPath": str(node)}])
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        message = (await here.state("p"))["state"]["waiting"]["message"]
        assert message.endswith(f'failed to stat CDI host device "{node}": no such file or directory')
        node.touch()
        await here.settle(60)
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)


def test_a_later_folder_counts_first_and_a_device_that_a_folder_has_twice_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "etc", "v.json", "a", env=["FROM=etc"])
    write(tmp_path / "run", "v.json", "a", env=["FROM=run"])
    assert resolve([f"{KIND}=a"], [tmp_path / "etc", tmp_path / "run"]).env == {"FROM": "run"}
    write(tmp_path / "run", "w.json", "a", env=["FROM=twice"])
    with pytest.raises(StartFailed, match="unresolvable"):
        resolve([f"{KIND}=a"], [tmp_path / "etc", tmp_path / "run"])


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 5000, "kind: 2026-99-99", '{"kind": "k"}',
                                  '{"kind": "k", "devices": [{"name": 1}]}',
                                  '{"kind": "k", "devices": [{"name": "a", "containerEdits": {"env": ["x"]}}]}'])
def test_a_file_that_cannot_be_read_spoils_no_other(tmp_path: Path, text: str) -> None:
    write(tmp_path, "v.json", "a")
    (tmp_path / "broken.yaml").write_text(text)
    assert resolve([f"{KIND}=a"], [tmp_path, tmp_path / "none"]).env == {"SEEN_a": "1"}
