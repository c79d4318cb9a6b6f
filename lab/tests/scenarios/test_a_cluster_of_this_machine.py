"""`pumice up` from outside: what survives, what is refused, and what a person is told."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kit.local_cluster import PUMICE, LocalCluster, local_cluster, log_with, phase, pumice, vgpu_pod

from pumice.adapters.kube import KubeClient
from pumice.audit.auditor import audit
from pumice.wire.kinds import CONFIGMAPS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES

ROOT = Path(__file__).parents[3]


def test_after_a_kill_nothing_is_lost_and_nothing_is_booked_twice(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d") as cluster:

        async def create(kube):
            for index in range(6):
                await kube.create(PODS, vgpu_pod(f"p{index}", 3000, 30))

        cluster.ask(create)
        cluster.kill()  # somewhere between the first Binding and the last container
        cluster.up()

        async def settled(kube):
            pods = (await kube.list(PODS))["items"]
            assert len(pods) == 6, "an acknowledged create was lost"
            return all(p["status"].get("phase") == "Running" for p in pods) and pods

        pods = cluster.wait(settled)
        nodes = cluster.ask(lambda kube: kube.list(NODES))["items"]
        assert audit(nodes, pods) == []


def test_started_again_every_object_is_there_and_the_address_is_the_same(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d") as cluster:
        cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("stays", 1000)))
        cluster.wait(lambda kube: _running(kube, "stays"))
        kubeconfig = cluster.data.kubeconfig.read_text()
        cluster.down()
        cluster.up()
        assert cluster.data.kubeconfig.read_text() == kubeconfig
        cluster.wait(lambda kube: _running(kube, "stays"))


@pytest.mark.parametrize("card", [1, 0], ids=["emulated cards", "no cards"])
def test_pods_find_pumice_however_the_cluster_was_called(card: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README runs `pumice burn` in pods, and `.venv/bin/pumice up` leaves PATH as it was."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    nodes = tmp_path / "cluster.yaml"
    nodes.write_text(f"nodes:\n- {{name: a, cards: {card}}}\n")
    reported = "command -v pumice && pumice --version && echo over || echo over"
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "c", "image": "any", "command": ["sh", "-c", f"({reported}) 2>&1; sleep 1000"]}]}}  # fmt: skip
    with local_cluster(tmp_path / "d", "--config", str(nodes)) as cluster:
        cluster.ask(lambda kube: kube.create(PODS, pod))
        said = cluster.wait(lambda kube: log_with(kube, "p", "over")).split("\n")
    assert said[0] == str(Path(sys.executable).parent / "pumice")
    assert said[1].startswith("pumice ")


def test_a_cluster_comes_up_again_with_the_cards_that_it_has_and_with_no_others(tmp_path: Path) -> None:
    """Check that allocations lie on those cards; a wrong summary would be believed."""
    with local_cluster(tmp_path / "d", "--cards", "3") as cluster:
        cluster.down()
        assert "1 node, 3 emulated cards" in cluster.up()
        cluster.down()
        for asked in (["--cards", "4"], ["--cards", "3", "--model", "Tesla-T4"]):
            reported = one_line(pumice("up", "-d", "--emulated", *asked, "--data-dir", str(tmp_path / "d")))
            assert "node-1 of data dir" in reported
            assert "has 3 x NVIDIA GeForce GTX 1080 Ti, not " in reported
        assert "1 node, 3 emulated cards" in cluster.up("--cards", "3")


def test_what_the_node_config_map_says_of_a_node_has_effect(tmp_path: Path) -> None:
    entry = {"nodeconfig": [{"name": "node-1", "devicesplitcount": 3}]}
    about = {"name": "volcano-vgpu-node-config", "namespace": "kube-system"}
    made = {"metadata": about, "data": {"config.json": json.dumps(entry)}}

    async def shares(kube: KubeClient) -> int:
        return int((await kube.get(NODES, "node-1"))["status"]["allocatable"]["volcano.sh/vgpu-number"])

    async def three(kube: KubeClient) -> bool:
        return await shares(kube) == 2 * 3

    with local_cluster(tmp_path / "d") as cluster:
        assert cluster.ask(shares) == 2 * 10
        cluster.ask(lambda kube: kube.create(CONFIGMAPS, made))
        cluster.wait(three)


def test_a_card_that_is_full_stays_full_over_a_restart(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d", "--cards", "1") as cluster:
        cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("first", 9000)))
        cluster.wait(lambda kube: _running(kube, "first"))
        cluster.kill()
        cluster.up("--cards", "1")
        cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("second", 9000)))
        message = cluster.wait(lambda kube: _refusal(kube, "second"))
        assert "memory" in message


def test_beside_a_node_in_mig_mode_ordinary_pods_run_on_the_other(tmp_path: Path) -> None:
    mixed = tmp_path / "cluster.yaml"
    mixed.write_text("nodes:\n- {name: a-mig, cards: 1, model: A100-SXM4-40GB, mig: true}\n- {name: b, cards: 1}\n")
    with local_cluster(tmp_path / "d", "--config", str(mixed)) as cluster:
        cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("ordinary", 3000)))
        cluster.wait(lambda kube: _running(kube, "ordinary"))
        placed = cluster.ask(lambda kube: kube.get(PODS, "ordinary", "default"))
        assert placed["spec"]["nodeName"] == "b"


def test_a_pod_in_mode_mig_gets_the_slice_that_fits_best_and_runs_inside_it(tmp_path: Path) -> None:
    """The guides' example: of the slices that an A100 can be cut into, the one of 5 GB for a request of 3,000 MiB."""
    nodes = tmp_path / "cluster.yaml"
    nodes.write_text("nodes:\n- {name: a, cards: 1, model: A100-SXM4-40GB, mig: true}\n")
    burn = f"{sys.executable} -m pumice.cli.burn --seconds 0.1 --memory"
    script = f"nvidia-smi -L; {burn} 4000; {burn} 5000; echo over; sleep 1000"
    said = []
    with local_cluster(tmp_path / "d", "--config", str(nodes)) as cluster:
        for name in ("first", "second"):
            pod = yaml.safe_load((ROOT / "examples/vgpu-user-guide/mig-pod.yaml").read_text())
            pod["metadata"] |= {"name": name, "namespace": "default"}
            pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"({script}) 2>&1"]
            cluster.ask(lambda kube, pod=pod: kube.create(PODS, pod))
            cluster.wait(lambda kube, name=name: _running(kube, name))
            said.append(cluster.wait(lambda kube, name=name: log_with(kube, name, "over")))
    shown = [[line for line in text.splitlines() if line.startswith("  MIG ")] for text in said]
    assert [[line.split()[1] for line in lines] for lines in shown] == [["1g.5gb"], ["1g.5gb"]]
    assert shown[0] != shown[1], "each has its own"
    for text in said:
        assert "memory: 4000 of 4000 MiB granted" in text
        assert text.count("CUDA_ERROR_OUT_OF_MEMORY") == 1


def test_pods_that_are_given_cdi_devices_see_their_own_card_alone_and_its_limits_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVICE_LIST_STRATEGY", "cdi-cri")
    burn = f"{sys.executable} -m pumice.cli.burn --seconds 0.1 --memory"
    with local_cluster(tmp_path / "d", "--cards", "2") as cluster:
        pod = vgpu_pod("p", 3000)
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"(nvidia-smi -L; {burn} 2000; {burn} 4000; echo over) 2>&1"]
        cluster.ask(lambda kube: kube.create(PODS, pod))
        text = cluster.wait(lambda kube: log_with(kube, "p", "over"))
        placed = cluster.ask(lambda kube: kube.get(PODS, "p", "default"))
        named = [spec.read_text() for spec in tmp_path.glob("d/nodes/*/cdi/*.json")]
    card = placed["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].partition(",")[0]
    assert text.count("(UUID: GPU-") == 1
    assert card in text
    assert "memory: 2000 of 2000 MiB granted" in text
    assert text.count("CUDA_ERROR_OUT_OF_MEMORY") == 1
    assert card in named[0]


@pytest.mark.parametrize(
    ("pod", "reported"),
    [
        (vgpu_pod("above-any-card", 20000), "memory"),
        (vgpu_pod("too-many-cores", 1000, cores=150), "cores"),
        (vgpu_pod("more-cards-than-any-node", 1000, number=3), "cards"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["metadata"]["name"],
)
def test_a_pod_that_can_never_fit_is_pending_with_the_reason(shared: LocalCluster, pod: dict, reported: str) -> None:
    shared.ask(lambda kube: kube.create(PODS, pod))
    shared.wait(lambda kube: _reported(kube, pod["metadata"]["name"], reported))


WHO_AM_I = """
import os, ssl, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount"
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}/apis/authentication.k8s.io/v1/selfsubjectreviews"
body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
headers = {"Authorization": "Bearer " + open(place + "/token").read(), "Content-Type": "application/json"}
asked = urllib.request.Request(url.format(**os.environ), body, headers)
answer = urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=place + "/ca.crt"))
print(answer.read().decode(), open(place + "/namespace").read(), "over", flush=True)
"""


def test_a_pod_is_its_service_account_by_what_every_container_finds(shared: LocalCluster) -> None:
    containers = [{"name": "c", "image": "any", "command": [sys.executable, "-c", WHO_AM_I]}]
    pod = {"metadata": {"name": "me", "namespace": "default"}, "spec": {"restartPolicy": "Never", "containers": containers}}
    shared.ask(lambda kube: kube.create(PODS, pod))
    said, _, namespace = shared.wait(lambda kube: log_with(kube, "me", "over")).rpartition("}")
    user = json.loads(said + "}")["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["me"]
    assert namespace.split() == ["default", "over"]


def test_a_local_volume_waits_for_its_pod_and_keeps_what_that_wrote(shared: LocalCluster, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    objects = f"""
kind: StorageClass
apiVersion: storage.k8s.io/v1
metadata: {{name: local}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolume
apiVersion: v1
metadata: {{name: disk}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {{path: {disk}}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [
    {{key: kubernetes.io/hostname, operator: In, values: [node-1]}}]}}]}}}}
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {{name: data, namespace: default}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: local, resources: {{requests: {{storage: 500Mi}}}}}}
---
kind: Pod
apiVersion: v1
metadata: {{name: writer, namespace: default}}
spec:
  restartPolicy: Never
  containers:
  - {{name: c, image: any, command: [sh, -c, "echo kept > /data/file; echo over"], volumeMounts: [{{name: d, mountPath: /data}}]}}
  volumes: [{{name: d, persistentVolumeClaim: {{claimName: data}}}}]
"""
    for body in yaml.safe_load_all(objects):
        resource = {"StorageClass": STORAGE_CLASSES, "PersistentVolume": PERSISTENT_VOLUMES, "Pod": PODS,
                    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS}[body["kind"]]  # fmt: skip
        shared.ask(lambda kube, body=body, resource=resource: kube.create(resource, body))
    shared.wait(lambda kube: log_with(kube, "writer", "over"))
    assert (disk / "file").read_text() == "kept\n"
    assert shared.ask(lambda kube: kube.get(PERSISTENT_VOLUME_CLAIMS, "data", "default"))["status"]["phase"] == "Bound"
    shared.ask(lambda kube: kube.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default"))
    shared.delete_pod("writer")

    async def released(kube: KubeClient) -> bool:
        return bool((await kube.get(PERSISTENT_VOLUMES, "disk"))["status"]["phase"] == "Released")

    shared.wait(released)
    assert (disk / "file").exists()


def test_gibibytes_where_mebibytes_are_meant_are_explained(shared: LocalCluster) -> None:
    shared.ask(lambda kube: kube.create(PODS, vgpu_pod("gibibytes", 0) | _limits("gibibytes", "3Gi")))
    shared.wait(lambda kube: _reported(kube, "gibibytes", "for 3Gi of memory write 3072"))


def test_an_unknown_mode_is_pending_with_the_modes_that_are_there(shared: LocalCluster) -> None:
    pod = vgpu_pod("odd-mode", 1000)
    pod["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "time-slice"}
    shared.ask(lambda kube: kube.create(PODS, pod))
    shared.wait(lambda kube: _reported(kube, "odd-mode", "mode time-slice is not the same as the node mode hami-core"))


def test_a_negative_request_is_rejected_by_the_api_server(shared: LocalCluster) -> None:
    from pumice.ports.cluster import ApiError

    with pytest.raises(ApiError) as refused:
        shared.ask(lambda kube: kube.create(PODS, vgpu_pod("negative", -1)))
    assert refused.value.code == 422


def test_the_host_stays_as_it_is(shared: LocalCluster) -> None:
    def look() -> list[str]:
        found = []
        for place in ("/etc/ld.so.preload", "/usr/local/vgpu", "/tmp/vgpulock", "/tmp/vgpu"):
            found.append(f"{place} {Path(place).exists()}")
        return [*found, *sorted(map(str, Path("/usr/local").rglob("*vgpu*")))]

    before = look()
    shared.ask(lambda kube: kube.create(PODS, vgpu_pod("clean", 1000)))
    shared.wait(lambda kube: _running(kube, "clean"))
    assert look() == before


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with local_cluster(tmp_path_factory.mktemp("shared") / "d") as cluster:
        yield cluster


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_line(pumice("up", "--emulated", "--data-dir", str(tmp_path / "d"), "--port", str(port)))
    assert f"port {port} on 127.0.0.1 is in use" in said


def test_the_background_hands_on_the_line_of_the_foreground(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_line(pumice("up", "-d", "--emulated", "--data-dir", str(tmp_path / "d"), "--port", str(port)))
    assert f"port {port} on 127.0.0.1 is in use" in said


def test_an_unwritable_data_dir_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = one_line(pumice("up", "--emulated", "--data-dir", str(tmp_path / "file" / "d")))
    assert "Not a directory" in said


def test_the_data_dir_of_a_running_cluster_is_one_line(shared: LocalCluster) -> None:
    said = one_line(pumice("up", "--emulated", "--data-dir", str(shared.data.root)))
    assert f"belongs to a running cluster (pid {shared.pid})" in said


def test_of_two_that_start_at_once_in_one_folder_one_comes_up_and_the_other_says_so(tmp_path: Path) -> None:
    command = [*PUMICE, "up", "-d", "--emulated", "--data-dir", str(tmp_path / "d")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        said = {process.returncode: text for process in both if (text := "".join(process.communicate(timeout=100)))}
        assert "The cluster is ready" in said[0]
        assert "belongs to a running cluster" in said[2]
    finally:
        assert pumice("down", "--data-dir", str(tmp_path / "d")).returncode == 0


def test_a_broken_cluster_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [")
    assert "not YAML" in one_line(pumice("up", "--config", str(file), "--data-dir", str(tmp_path / "d")))


def test_an_unknown_model_names_the_nearest(tmp_path: Path) -> None:
    said = one_line(pumice("up", "--model", "A100-SXM-80GB", "--data-dir", str(tmp_path / "d")))
    assert "A100-SXM4-80GB" in said


async def _running(kube, name: str) -> bool:
    return await phase(kube, name) == "Running"


async def _refusal(kube, name: str) -> str:
    pod = await kube.get(PODS, name, "default")
    return next((c["message"] for c in pod["status"].get("conditions", ())
                 if c["type"] == "PodScheduled" and c["status"] == "False"), "")  # fmt: skip


async def _reported(kube, name: str, words: str) -> bool:
    return words in await _refusal(kube, name)


def _limits(name: str, memory: str) -> dict:
    pod = vgpu_pod(name, 0)
    pod["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] = memory
    return pod


def test_ctrl_c_stops_the_foreground_cleanly_and_says_what_is_emulated(tmp_path: Path) -> None:
    process = subprocess.Popen([*PUMICE, "up", "--data-dir", str(tmp_path / "d")], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None
    said = ""
    while "Stop it with Ctrl-C" not in said:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said += line
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "so the cards are emulated" in said or "real cards" in said
    assert not LocalCluster(tmp_path / "d").data.running()
