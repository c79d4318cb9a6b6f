"""Pods of `pumice up` reach each other: by address, by name, as many as like on one port."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.local_cluster import LocalCluster, local_cluster, pumice

from pumice.ports.cluster import Json
from pumice.wire import volcano
from pumice.wire.kinds import PODS
from pumice_lab.network.pod_network import interface_of
from pumice_lab.runtime.spawner import probe

PORT, SSHD = 5000, "/usr/sbin/sshd"
LISTEN = f"{sys.executable} -m http.server {PORT}"


def _job(name: str, *tasks: tuple[str, int, str]) -> Json:
    def task(name: str, replicas: int, script: str) -> Json:
        container = {"name": "c", "image": "any", "command": ["bash", "-c", script]}
        spec = {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0, "containers": [container]}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": sum(n for _, n, _ in tasks), "plugins": {"svc": [], "env": []},
                     "tasks": [task(*each) for each in tasks]}}  # fmt: skip


def _pod(name: str, script: str, **spec: Any) -> Json:
    container = {"name": "c", "image": "any", "command": ["bash", "-c", script], **spec.pop("container", {})}
    return {"metadata": {"name": name, "namespace": "default"},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}}


def _log(cluster: LocalCluster, name: str) -> str:
    files = list(cluster.data.root.glob(f"nodes/*/logs/default_{name}_*/c/*.log"))
    return "".join(line.split(" ", 3)[3] for file in files for line in file.read_text().splitlines(keepends=True))


def _wait(cluster: LocalCluster, name: str, *, phase: str = "Succeeded") -> Json:
    async def there(kube: Any) -> Json | None:
        found: list[Json] = (await kube.list(PODS, "default"))["items"]
        pods = [p for p in found if p["metadata"]["name"] == name]
        assert not pods or pods[0]["status"].get("phase") != "Failed" or phase == "Failed", _log(cluster, name)
        return pods[0] if pods and pods[0]["status"].get("phase") == phase else None

    pod: Json = cluster.wait(there)
    return pod


def _has_interface(cluster: LocalCluster) -> bool:
    return interface_of(str(cluster.data.root)) in {name for _, name in socket.if_nameindex()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if os.geteuid() != 0:
        pytest.skip("a network for pods needs root")
    with local_cluster(tmp_path_factory.mktemp("network") / "d", "--nodes", "2", "--cards", "0") as built:
        reported = str((built.data.facts() or {})["pod_network"])
        if "share" in reported:
            pytest.skip(reported)
        yield built


def test_tasks_on_one_port_reach_each_other_by_every_name(cluster: LocalCluster) -> None:
    names = ["server-%s.{}", "server-%s.{}.default", "server-%s.{}.default.svc", "server-%s.{}.default.svc.cluster.local", "{}"]
    ask = "\n".join(f"until curl -sf --max-time 5 -o /dev/null http://{name.replace('server-%s', 'web-server-$i').format('web')}"
                    f":{PORT}/; do sleep 0.1; done" for name in names)
    reported = f"for h in $(cat /etc/volcano/server.host); do curl -sf http://$h:{PORT}/ >/dev/null && echo $h; done"
    client = f"for i in 0 1; do\n{ask}\ndone\n{reported}"
    cluster.ask(lambda kube: kube.create(volcano.JOBS, _job("web", ("server", 2, LISTEN), ("client", 1, client))))
    _wait(cluster, "web-client-0")
    assert _log(cluster, "web-client-0").split() == ["web-server-0.web", "web-server-1.web"]
    addresses = {_wait(cluster, f"web-server-{i}", phase="Running")["status"]["podIP"] for i in (0, 1)}
    assert len(addresses) == 2


def test_a_pod_has_its_own_loopback_and_shares_it_among_its_containers(cluster: LocalCluster) -> None:
    ask = f"until curl -sf -o /dev/null http://127.0.0.1:{PORT}/; do sleep 0.1; done; hostname -I 2>/dev/null; echo done"
    second = {"name": "server", "image": "any", "command": ["bash", "-c", f"{LISTEN} & sleep 1000"]}
    pod = _pod("shares", ask)
    pod["spec"]["containers"].append(second)
    cluster.ask(lambda kube: kube.create(PODS, pod))

    async def done(kube: Any) -> bool:
        statuses = (await kube.get(PODS, "shares", "default"))["status"].get("containerStatuses") or []
        return any("terminated" in s["state"] for s in statuses if s["name"] == "c")

    cluster.wait(done)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", PORT), 1)


def test_a_pod_reaches_the_api_server_where_kubernetes_has_it(cluster: LocalCluster) -> None:
    script = ("curl -sfk https://kubernetes.default.svc/readyz && curl -sfk "
              "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/readyz")
    cluster.ask(lambda kube: kube.create(PODS, _pod("asks", script)))
    _wait(cluster, "asks")
    assert _log(cluster, "asks").strip() == "okok"


def test_a_pod_reaches_what_the_machine_reaches(cluster: LocalCluster) -> None:
    """By TCP, whatever the machine's firewall says of forwarding: a server on the machine's own address stands for the world."""
    if "leads out" in str((cluster.data.facts() or {})["pod_network"]):
        pytest.skip("iptables is not installed")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        try:
            probe_socket.connect(("192.0.2.99", 9))
        except OSError:
            pytest.skip("this machine has no address besides the loopback ones")
        own = probe_socket.getsockname()[0]
    with socket.create_server((own, 0)) as world:
        script = f"exec 3<>/dev/tcp/{own}/{world.getsockname()[1]}; echo hello >&3; cat <&3"
        cluster.ask(lambda kube: kube.create(PODS, _pod("outward", script)))
        world.settimeout(60)
        connection, _ = world.accept()
        with connection:
            assert connection.recv(100) == b"hello\n"
            connection.sendall(b"world\n")
    _wait(cluster, "outward")
    assert _log(cluster, "outward") == "world\n"


def test_tasks_reach_each_other_by_ssh_with_the_keys_of_the_job(cluster: LocalCluster, tmp_path: Path) -> None:
    """All on port 22, as the plugin ssh says, each with a host key of its own."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None or "sshd:" not in Path("/etc/passwd").read_text():
        pytest.skip("sshd is not installed")
    serve = (f"key={tmp_path}/$HOSTNAME; [ -f $key ] || ssh-keygen -q -t ed25519 -N '' -f $key; mkdir -p /run/sshd\n"
             f"exec {SSHD} -D -e -f /dev/null -h $key -o UsePAM=no -o PidFile=none")
    ask = "for i in 0 1; do until ssh -o ConnectTimeout=5 keys-worker-$i hostname; do sleep 0.2; done; done"
    job = _job("keys", ("master", 1, ask), ("worker", 2, serve))
    job["spec"]["plugins"] = {"ssh": [], "svc": []}
    cluster.ask(lambda kube: kube.create(volcano.JOBS, job))
    _wait(cluster, "keys-master-0")
    said = [line for line in _log(cluster, "keys-master-0").splitlines() if line.startswith("keys-")]
    assert said == ["keys-worker-0", "keys-worker-1"]


def test_host_network_stays_with_the_host(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{here.getsockname()[1]}"
        cluster.ask(lambda kube: kube.create(PODS, _pod("at-home", script, hostNetwork=True)))
        pod = _wait(cluster, "at-home")
    assert pod["status"]["podIP"] == pod["status"]["hostIP"]


def test_a_probe_reaches_the_pods_own_address(cluster: LocalCluster) -> None:
    probes = {"readinessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 1},
              "livenessProbe": {"tcpSocket": {"port": PORT}, "initialDelaySeconds": 2, "periodSeconds": 1},
              "ports": [{"name": "web", "containerPort": PORT}]}  # fmt: skip
    cluster.ask(lambda kube: kube.create(PODS, _pod("probed", f"sleep 1; {LISTEN}", container=probes)))

    async def ready(kube: Any) -> bool:
        status = (await kube.get(PODS, "probed", "default"))["status"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])

    cluster.wait(ready)
    pod = _wait(cluster, "probed", phase="Running")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_after_any_end_nothing_is_left_on_the_machine(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a network for pods needs root")
    with local_cluster(tmp_path / "d", "--cards", "0") as built:
        if not _has_interface(built):
            pytest.skip(str((built.data.facts() or {})["pod_network"]))
        built.ask(lambda kube: kube.create(PODS, _pod("p", "sleep 1000")))
        _wait(built, "p", phase="Running")
        built.kill()
        built.up("--cards", "0")
        assert _has_interface(built), "the next one takes the name over"
    assert not _has_interface(built)


def test_without_a_network_of_their_own_pods_have_names_all_the_same(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    if probe("auto", str(stage))[0] == "none":
        pytest.skip("mount namespaces are refused on this machine, so no pod has an /etc/hosts of its own")
    serve = f"{LISTEN} --bind $(hostname).pair"
    ask = f"until curl -sf -o /dev/null http://pair-server-1.pair.default.svc.cluster.local:{PORT}/; do sleep 0.1; done"
    with local_cluster(tmp_path / "d", "--nodes", "2", "--cards", "0", "--pod-network", "none") as built:
        assert "share this machine's network" in str((built.data.facts() or {})["pod_network"])
        built.ask(lambda kube: kube.create(volcano.JOBS, _job("pair", ("server", 2, serve), ("client", 1, ask))))
        _wait(built, "pair-client-0")
        assert _wait(built, "pair-server-0", phase="Running")["status"]["podIP"].startswith("127.")


@pytest.mark.parametrize("given", ["here", "10.0.0.0/30", "8.8.0.0/16", "127.0.0.0/16", "10.0.0.1/16"])
def test_a_range_that_is_none_is_refused_in_one_line(tmp_path: Path, given: str) -> None:
    done = pumice("up", "--data-dir", str(tmp_path / "d"), "--pod-network", given)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert given in done.stderr
