"""Services in `pumice up`: a cluster address and a name, behind which pods answer that come and go."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kit.local_cluster import LocalCluster, local_cluster

from pumice.ports.cluster import Json
from pumice.wire.kinds import DEPLOYMENTS, ENDPOINT_SLICES, EVENTS, NAMESPACES, PODS, SERVICES

PORT = 5000
NAMES_ITSELF = f"""{sys.executable} -c 'import http.server as h, os
class Who(h.BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_response(200)
    self.end_headers()
    self.wfile.write(os.environ["HOSTNAME"].encode() + b"\\n")
h.ThreadingHTTPServer(("", {PORT}), Who).serve_forever()'"""

ECHO = f"""{sys.executable} - <<'END'
import socket
here = socket.socket(type=socket.SOCK_DGRAM)
here.bind(("", 5353))
while True:
    text, sender = here.recvfrom(99)
    here.sendto(text.upper(), sender)
END"""
SHOUT = f"""{sys.executable} - <<'END'
import socket
here = socket.socket(type=socket.SOCK_DGRAM)
here.settimeout(1)
for _ in range(60):
    here.sendto(b"hello", ("echo", 53))
    try:
        print(here.recv(99).decode())
        break
    except OSError:
        continue
END"""


def _deployment(name: str, replicas: int, script: str = NAMES_ITSELF) -> Json:
    container = {
        "name": "c",
        "image": "any",
        "command": ["bash", "-c", script],
        "ports": [{"name": "web", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}},
                                  "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}}}  # fmt: skip


def _service(name: str, app: str = "", **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": app or name}, "ports": [{"port": 80, "targetPort": "web"}], **spec},
    }


def _pod(name: str, script: str, namespace: str = "default") -> Json:
    container = {"name": "c", "image": "any", "command": ["bash", "-c", script]}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if os.geteuid() != 0:
        pytest.skip("a network for pods needs root")
    with local_cluster(tmp_path_factory.mktemp("services") / "d", "--nodes", "2", "--cards", "0") as built:
        reported = str((built.data.facts() or {})["pod_network"])
        if "share" in reported or "leads out" in reported:
            pytest.skip(reported)
        built.ask(lambda kube: kube.create(DEPLOYMENTS, _deployment("web", 3)))
        built.ask(lambda kube: kube.create(SERVICES, _service("web")))
        _answering(built, "web", 3)
        yield built


def _answering(cluster: LocalCluster, service: str, count: int) -> None:
    async def there(kube: Any) -> bool:
        slices = (await kube.list(ENDPOINT_SLICES, "default", label_selector=f"kubernetes.io/service-name={service}"))[
            "items"
        ]
        return sum(each["conditions"]["ready"] for part in slices for each in part.get("endpoints") or ()) == count

    cluster.wait(there)


def _said(cluster: LocalCluster, name: str, script: str, namespace: str = "default") -> list[str]:
    """Return the output of a pod that runs a script."""
    cluster.ask(lambda kube: kube.create(PODS, _pod(name, script, namespace)))

    async def over(kube: Any) -> bool:
        return (await kube.get(PODS, name, namespace))["status"].get("phase") in ("Succeeded", "Failed")

    cluster.wait(over)
    files = list(cluster.data.root.glob(f"nodes/*/logs/{namespace}_{name}_*/c/*.log"))
    return [line.split(" ", 3)[3].rstrip("\n") for file in files for line in file.read_text().splitlines(keepends=True)]


def _many(where: str, count: int = 40) -> str:
    return f"for i in $(seq {count}); do curl -sf --max-time 5 http://{where}/ || echo failed; done"


def test_a_service_leads_to_each_of_its_pods_by_name_and_by_address(cluster: LocalCluster) -> None:
    by_name = _said(cluster, "by-name", _many("web"))
    by_address = _said(cluster, "by-address", _many("$WEB_SERVICE_HOST:$WEB_SERVICE_PORT"))
    for said in (by_name, by_address):
        assert len(said) == 40
        assert len(set(said)) == 3, "by chance: one of three is missed once in three million times"
        assert all(pod.startswith("web-") for pod in said)


def test_another_namespace_knows_it_by_its_longer_names_only(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(NAMESPACES, {"metadata": {"name": "far"}}))
    ask = "; ".join(f"curl -s -o /dev/null --max-time 5 http://{name}/; echo $?"
                    for name in ("web", "web.default", "web.default.svc", "web.default.svc.cluster.local"))  # fmt: skip
    assert _said(cluster, "asks", ask, "far") == ["6", "0", "0", "0"], "6: curl could not resolve the host"


def test_a_service_without_pods_refuses_at_once_and_answers_when_one_comes(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(SERVICES, _service("later")))
    assert _said(
        cluster, "too-early", "until grep -q later /etc/hosts; do sleep 0.1; done; curl -s http://later/; echo $?"
    ) == ["7"]
    cluster.ask(lambda kube: kube.create(DEPLOYMENTS, _deployment("later", 1)))
    assert _said(cluster, "waits", "until curl -sf http://later/; do sleep 0.1; done")[-1].startswith("later-")


def test_a_pod_reaches_itself_through_its_service(cluster: LocalCluster) -> None:
    script = (
        f"{NAMES_ITSELF} & until found=$(curl -sf --max-time 2 http://alone/); do sleep 0.1; done; echo $found; wait"
    )
    cluster.ask(lambda kube: kube.create(DEPLOYMENTS, _deployment("alone", 1, script)))
    cluster.ask(lambda kube: kube.create(SERVICES, _service("alone")))

    async def said(_: Any) -> bool:
        files = cluster.data.root.glob("nodes/*/logs/default_alone-*/c/*.log")
        return any(" alone-" in line for file in files for line in file.read_text().splitlines())

    cluster.wait(said)


def test_a_client_with_affinity_comes_to_the_same_pod(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(SERVICES, _service("same", "web", sessionAffinity="ClientIP")))
    _answering(cluster, "same", 3)
    said = _said(cluster, "comes-back", "until grep -q same /etc/hosts; do sleep 0.1; done; sleep 0.5;" + _many("same"))
    assert len(set(said)) == 1
    assert said[0].startswith("web-")


def test_a_headless_service_is_all_its_pods(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(SERVICES, _service("all", "web", clusterIP="None")))
    _answering(cluster, "all", 3)
    said = _said(
        cluster,
        "counts",
        "until [ $(grep -cw all.default /etc/hosts) = 3 ]; do sleep 0.1; done; getent ahostsv4 all | cut -d' ' -f1 "
        "| sort -u | wc -l",
    )
    assert said == ["3"]


def test_a_service_says_what_of_it_leads_nowhere(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(SERVICES, _service("outside", "web", type="NodePort")))

    async def reported(kube: Any) -> bool:
        events = (await kube.list(EVENTS, "default"))["items"]
        return any(event["reason"] == "WithoutEffect" and "port-forward -n default service/outside" in event["message"]
                   for event in events)  # fmt: skip

    cluster.wait(reported)


def test_datagrams_are_led_too(cluster: LocalCluster) -> None:
    pod = _pod("echo", ECHO)
    pod["metadata"]["labels"] = {"app": "echo"}
    cluster.ask(lambda kube: kube.create(PODS, pod))
    service = _service("echo", ports=[{"port": 53, "targetPort": 5353, "protocol": "UDP"}])
    cluster.ask(lambda kube: kube.create(SERVICES, service))
    assert _said(cluster, "shouts", f"until grep -q echo.default /etc/hosts; do sleep 0.1; done\n{SHOUT}") == ["HELLO"]
