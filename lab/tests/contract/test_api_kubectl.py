"""The server as kubectl uses it: what users type, and what they see."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from kit.control_plane import Api, Json, write_kubeconfig

from pumice.adapters.kube import KubeClient
from pumice.adapters.kube.config import Access
from pumice.wire.names import SCHEDULER_CONFIGMAP, SYSTEM_NAMESPACE
from pumice_lab import first_objects
from pumice_lab.spec import uniform

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: c, image: "web:1", env: [{name: A, value: "1"}, {name: B, value: "2"}]}
"""


class Kubectl:
    def __init__(self, program: str, config: Path, namespace: str) -> None:
        self._base = [program, f"--kubeconfig={config}", f"--namespace={namespace}", "--request-timeout=20s"]
        self._env = {**os.environ, "HOME": str(config.parent), "KUBECTL_COMMAND_HEADERS": "false"}

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._base, *words], input=given, env=self._env, text=True, capture_output=True, timeout=60, check=False
        )

    def __call__(self, *words: str, given: str = "") -> str:
        done = self.run(*words, given=given)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Json:
        return json.loads(self(*words, "-o", "json"))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._base, *words], env=self._env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )


@pytest.fixture
def kubectl(api: Api, namespace: str, tmp_path: Path) -> Kubectl:
    built = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")) / "kubectl"
    program = str(built) if built.exists() else shutil.which("kubectl")
    if not program:
        pytest.skip("kubectl is neither in KUBEBUILDER_ASSETS nor on the PATH")
    return Kubectl(program, write_kubeconfig(tmp_path / "kubeconfig", api), namespace)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def test_apply_merges_what_others_changed(kubectl: Kubectl) -> None:
    assert "web created" in kubectl("apply", "-f", "-", given=DEPLOYMENT)
    assert "web unchanged" in kubectl("apply", "-f", "-", given=DEPLOYMENT)
    kubectl("set", "env", "deployment/web", "C=3")
    kubectl("label", "deployment", "web", "mine=yes")
    changed = DEPLOYMENT.replace('{name: B, value: "2"}', '{name: B, value: "5"}').replace("web:1", "web:2")
    assert "web configured" in kubectl("apply", "-f", "-", given=changed)
    value = kubectl.json("get", "deployment", "web")
    container = value["spec"]["template"]["spec"]["containers"][0]
    assert {e["name"]: e["value"] for e in container["env"]} == {"A": "1", "B": "5", "C": "3"}
    assert container["image"] == "web:2"
    assert value["metadata"]["labels"] == {"tier": "front", "mine": "yes"}
    fewer = changed.replace('{name: A, value: "1"}, ', "").replace("{tier: front}", "{other: one}")
    kubectl("apply", "-f", "-", given=fewer)
    value = kubectl.json("get", "deployment", "web")
    assert [e["name"] for e in value["spec"]["template"]["spec"]["containers"][0]["env"]] == ["B", "C"]
    assert value["metadata"]["labels"] == {"mine": "yes", "other": "one"}


def test_a_service_whose_port_has_no_name_is_described_with_its_endpoints(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given="""
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
""")
    kubectl("create", "-f", "-", given="""
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.2.3], conditions: {ready: true}}]
""")
    assert kubectl.json("get", "endpointslice", "web-1")["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert "10.1.2.3:8080" in kubectl("describe", "service", "web")


def test_a_configuration_is_applied_over_the_one_of_a_new_cluster_without_a_warning(kubectl: Kubectl, api: Api) -> None:
    async def bring_up() -> None:
        access = Access(api.url, ssl.create_default_context(cafile=str(api.ca)), lambda: api.token)
        async with KubeClient(access) as kube:
            await first_objects.ensure(kube, uniform(1, 1, "Tesla-V100-SXM2-16GB"))

    kubectl("delete", "configmap", SCHEDULER_CONFIGMAP, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
    asyncio.run(bring_up())
    example = Path(__file__).parents[3] / "examples/gpu-sharing/scheduler-config.yaml"
    done = kubectl.run("apply", "-n", SYSTEM_NAMESPACE, "-f", str(example))
    assert (done.stdout.strip(), done.stderr) == (f"configmap/{SCHEDULER_CONFIGMAP} configured", "")
    assert "GPUSharingEnable: true" in kubectl("get", "configmap", SCHEDULER_CONFIGMAP, "-n", SYSTEM_NAMESPACE, "-o", "yaml")


def test_server_side_apply_tells_whose_field_it_is(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", given=DEPLOYMENT)
    kubectl("scale", "deployment/web", "--replicas=5")
    done = kubectl.run("apply", "--server-side", "-f", "-", given=DEPLOYMENT)
    assert done.returncode != 0
    assert "conflict with" in done.stderr
    assert ".spec.replicas" in done.stderr
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=DEPLOYMENT)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 2


def test_client_side_apply_can_turn_into_server_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=DEPLOYMENT)
    kubectl("apply", "--server-side", "-f", "-", given=DEPLOYMENT.replace("web:1", "web:2"))
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={..image}") == "web:2"


def test_a_typing_error_is_told_before_anything_is_made(kubectl: Kubectl) -> None:
    done = kubectl.run("apply", "-f", "-", given=DEPLOYMENT.replace("replicas", "replica"))
    assert done.returncode != 0
    assert 'unknown field "spec.replica"' in done.stderr
    assert "No resources found" in kubectl.run("get", "deployments").stderr


def test_generators_send_what_the_server_understands(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "cm", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    kubectl("create", "deployment", "d", "--image=web:1", "--replicas=0")
    kubectl("create", "job", "j", "--image=web:1", "--", "sleep", "1")
    kubectl("create", "cronjob", "cj", "--image=web:1", "--schedule=*/5 * * * *")
    kubectl("create", "serviceaccount", "sa")
    kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:sa")
    kubectl("create", "quota", "q", "--hard=pods=3")
    kubectl("create", "poddisruptionbudget", "pdb", "--min-available=1", "--selector=app=d")
    kubectl("expose", "deployment", "d", "--port=80")
    kubectl("run", "pod", "--image=web:1", "--restart=Never", "--env=A=B", "--", "sleep", "1")
    assert kubectl.json("get", "cm", "cm")["data"] == {"a": "b"}
    assert kubectl.json("get", "deployment", "d")["spec"]["replicas"] == 0
    assert kubectl.json("get", "job", "j")["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "1"]
    assert kubectl.json("get", "service", "d")["spec"]["ports"][0]["port"] == 80
    assert kubectl.json("get", "pod", "pod")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "B"}]
    assert kubectl.json("get", "role", "r")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    assert len(kubectl("create", "token", "sa").split(".")) == 3


def test_get_shows_tables_in_every_width(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=web:1", "--labels=app=x", "--overrides", '{"spec": {"schedulerName": "nobody"}}')
    assert rows(kubectl("get", "pods"))[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert rows(kubectl("get", "pods"))[1][:4] == ["p", "0/1", "Pending", "0"]
    wide = kubectl("get", "pods", "-o", "wide").splitlines()[0]
    assert "NOMINATED NODE" in wide
    assert "READINESS GATES" in wide
    assert rows(kubectl("get", "pods", "--show-labels"))[1][-1] == "app=x"
    assert rows(kubectl("get", "pods", "-L", "app"))[1][-1] == "x"
    assert kubectl("get", "pods", "-o", "name") == "pod/p\n"
    assert kubectl("get", "pods", "--no-headers", "-o", "custom-columns=N:.metadata.name,S:.status.phase").split() == [
        "p",
        "Pending",
    ]
    assert "pod/p" in kubectl("get", "all")
    assert rows(kubectl("get", "pods", "-l", "app!=x", "--ignore-not-found")) == []


def test_describe_reads_events_and_requests(kubectl: Kubectl, api: Api, namespace: str) -> None:
    overrides = {"spec": {"schedulerName": "nobody", "containers": [
        {"name": "p", "image": "web:1", "resources": {"limits": {"volcano.sh/vgpu-memory": 3000}}}]}}  # fmt: skip
    kubectl("run", "p", "--image=web:1", "--overrides", json.dumps(overrides))
    uid = kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    involved = {"kind": "Pod", "name": "p", "namespace": namespace, "uid": uid, "apiVersion": "v1"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "metadata": {"name": "p.1"}, "involvedObject": involved, "reason": "FailedScheduling", "message": "card too small",
        "type": "Warning", "firstTimestamp": now, "lastTimestamp": now, "count": 1, "source": {"component": "volcano"},
    }  # fmt: skip
    api.create(f"/api/v1/namespaces/{namespace}/events", event)
    text = kubectl("describe", "pod", "p")
    assert "card too small" in text
    assert "volcano.sh/vgpu-memory:  3k" in text
    assert "FailedScheduling" in kubectl("events", "--for", "pod/p")
    assert "pod/p" in kubectl("get", "events")


def test_edits_of_every_kind(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "cm", "--from-literal=a=1")
    kubectl("annotate", "cm", "cm", "note=hi")
    kubectl("label", "cm", "cm", "x=1")
    assert kubectl.run("label", "cm", "cm", "x=2").returncode != 0  # no --overwrite
    kubectl("label", "cm", "cm", "x=2", "--overwrite")
    kubectl("label", "cm", "cm", "x-")
    kubectl("patch", "cm", "cm", "-p", '{"data": {"b": "2"}}')
    kubectl("patch", "cm", "cm", "--type=json", "-p", '[{"op": "remove", "path": "/data/a"}]')
    value = kubectl.json("get", "cm", "cm")
    assert (value["data"], value["metadata"]["annotations"]) == ({"b": "2"}, {"note": "hi"})
    assert "labels" not in value["metadata"]
    kubectl("replace", "-f", "-", given=json.dumps({**value, "data": {"c": "3"}}))
    assert kubectl.json("get", "cm", "cm")["data"] == {"c": "3"}
    done = kubectl.run("replace", "-f", "-", given=json.dumps(value))
    assert "the object has been modified" in done.stderr


def test_cordon_taint_and_drain_of_a_node(kubectl: Kubectl, api: Api, namespace: str) -> None:
    name = f"node-{namespace}"
    api.create("/api/v1/nodes", {"metadata": {"name": name}})
    kubectl("cordon", name)
    assert "SchedulingDisabled" in kubectl("get", "node", name)
    kubectl("taint", "node", name, "gpu=yes:NoSchedule")
    assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in kubectl.json("get", "node", name)["spec"]["taints"]
    kubectl("uncordon", name)
    assert "SchedulingDisabled" not in kubectl("get", "node", name)
    assert "Taints:" in kubectl("describe", "node", name)
    kubectl("delete", "node", name)


def test_a_watch_prints_rows_as_they_change(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    watching = kubectl.start("get", "configmaps", "-w")
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split() == ["NAME", "DATA", "AGE"]
        seen = [watching.stdout.readline().split()[:2]]
        kubectl("patch", "cm", "a", "-p", '{"data": {"b": "2"}}')
        while seen[-1] != ["a", "1"]:
            seen.append(watching.stdout.readline().split()[:2])
        assert ["a", "0"] in seen
    finally:
        watching.kill()
        watching.communicate()


def test_wait_hears_of_a_condition_and_of_a_deletion(kubectl: Kubectl, api: Api, namespace: str) -> None:
    kubectl("run", "p", "--image=web:1", "--overrides", '{"spec": {"schedulerName": "nobody"}}')
    waiting = kubectl.start("wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
    pod = f"/api/v1/namespaces/{namespace}/pods/p"
    api.strategic(f"{pod}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert "condition met" in waiting.communicate(timeout=30)[0]
    gone = kubectl.start("wait", "--for=delete", "pod/p", "--timeout=20s")
    api.delete(pod)
    assert gone.wait(30) == 0
    gone.communicate()


def test_a_pod_is_deleted_with_and_without_grace(kubectl: Kubectl, api: Api, namespace: str) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "web:1"}]}
    for name in ("a", "b"):
        api.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
    kubectl("delete", "pod", "a", "--wait=false")
    assert rows(kubectl("get", "pod", "a"))[1][2] == "Terminating"
    kubectl("delete", "pod", "a", "b", "--force", "--grace-period=0")
    assert kubectl.run("get", "pod", "a").returncode != 0


def test_explain_and_api_resources_know_the_kinds(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec.containers.resources.limits")
    assert "map[string]" in text
    names = kubectl("api-resources", "--no-headers", "-o", "name").split()
    assert {"pods", "deployments.apps", "events.events.k8s.io", "leases.coordination.k8s.io"} <= set(names)
    assert "yes" in kubectl("auth", "can-i", "create", "pods")
    assert "apps/v1" in kubectl("api-versions").split()


def test_diff_and_dry_runs_change_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=DEPLOYMENT)
    done = kubectl.run("diff", "-f", "-", given=DEPLOYMENT.replace("web:1", "web:9"))
    assert done.returncode == 1
    assert "web:9" in done.stdout
    kubectl("apply", "--dry-run=server", "-f", "-", given=DEPLOYMENT.replace("web:1", "web:9"))
    kubectl("delete", "deployment", "web", "--dry-run=server")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={..image}") == "web:1"
