"""Pods: what the API server fills in, refuses and forbids, and how they are bound, evicted and deleted."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kit.control_plane import Answer, Api, Json

GPU = "volcano.sh/vgpu-number"


def pod(name: str = "p", **spec: Any) -> Json:
    container = {"name": "c", "image": "local.test/busybox:1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [container], **spec}}  # fmt: skip


def asking(limits: Json | None = None, requests: Json | None = None) -> Json:
    resources = {key: value for key, value in (("limits", limits), ("requests", requests)) if value is not None}
    return pod(containers=[{"name": "c", "image": "i:1", "resources": resources}])


def container(**changes: Any) -> Json:
    return {"name": "c", "image": "i:1", **changes}


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def bound(api: Api, pods: str) -> Json:
    """A pod on node n1."""
    api.create(pods, pod())
    api.create(f"{pods}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    return api.get(f"{pods}/p")


def test_a_new_pod_is_pending_with_the_defaults_of_kubernetes(api: Api, pods: str) -> None:
    made = api.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
    spec, status = made["spec"], made["status"]
    assert (status["phase"], status["qosClass"]) == ("Pending", "BestEffort")
    wanted = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
              "terminationGracePeriodSeconds": 30, "enableServiceLinks": True, "priority": 0,
              "preemptionPolicy": "PreemptLowerPriority", "securityContext": {}}  # fmt: skip
    assert {key: spec[key] for key in wanted} == wanted
    assert made["metadata"]["generation"] == 1
    assert spec["containers"] == [{"name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}]  # fmt: skip
    assert {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}  # fmt: skip


def using(*used: Json, claims: tuple[str, ...] = ("a",)) -> Json:
    return pod(containers=[container(resources={"claims": list(used)})],
               resourceClaims=[{"name": name, "resourceClaimName": "c"} for name in claims])  # fmt: skip


AT = "spec.containers[0].resources.claims"
NAMES = "must be one of the names in pod.spec.resourceClaims"


@pytest.mark.parametrize(("value", "said"), [
    (using({"name": "b"}), f'{AT}[0]: Not found: "b": {NAMES}: a'),
    (using({"name": "c"}, claims=("b", "a")), f'{AT}[0]: Not found: "c": {NAMES}: a, b'),
    (using({"name": "a"}, claims=()), f'{AT}[0]: Not found: "a": {NAMES} which is empty'),
    (using({"name": "a"}, {"name": "a"}), f'{AT}[1]: Duplicate value: "a"'),
    (using({"name": "a"}, {"name": "a", "request": "r"}), f'{AT}[1]: Duplicate value: "a"'),
    (using({"name": "a", "request": "r"}, {"name": "a"}), f'{AT}[1]: Duplicate value: "a"'),
    (using({"name": "a", "request": "r"}, {"name": "a", "request": "r"}), f'{AT}[1]: Duplicate value: "a/r"'),
    (using({"name": ""}), f"{AT}[0]: Required value"),
    (using({"name": "a", "request": "R"}), f'{AT}[0].request: Invalid value: "R": a lowercase RFC 1123 label'),
    (pod(initContainers=[container(name="i", resources={"claims": [{"name": "b"}]})]),
     f'spec.initContainers[0].resources.claims[0]: Not found: "b": {NAMES} which is empty'),
    (using(claims=("a", "a")), 'spec.resourceClaims[1].name: Duplicate value: "a"'),
    (pod(resourceClaims=[{"name": "", "resourceClaimName": "c"}]), "spec.resourceClaims[0].name: Required value"),
    (pod(resourceClaims=[{"name": "a", "resourceClaimName": "C"}]),
     'spec.resourceClaims[0].resourceClaimName: Invalid value: "C"'),
    (pod(resourceClaims=[{"name": "a"}]),
     'spec.resourceClaims[0]: Invalid value: {"Name":"a","ResourceClaimName":null,"ResourceClaimTemplateName":null}: '
     "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
    (pod(resourceClaims=[{"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}]),
     "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
])  # fmt: skip
def test_a_container_uses_what_the_pod_claims_once(api: Api, pods: str, value: Json, said: str) -> None:
    answer = api.call("POST", pods, value)
    assert answer.code == 422, answer.body
    assert said in answer.json["message"]


def test_requests_of_one_claim_are_used_by_one_container_or_by_several(api: Api, pods: str) -> None:
    one, other = {"name": "a", "request": "r"}, {"name": "a", "request": "s"}
    api.create(pods, using(one, other))
    both = [container(name=name, resources={"claims": [{"name": "a"}]}) for name in ("c", "d")]
    api.create(pods, pod("q", containers=both, resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]))


def test_limits_become_requests_and_quantities_are_canonical(api: Api, pods: str) -> None:
    made = api.create(pods, asking({"cpu": "0.5", "memory": "1024Mi", GPU: 1, "volcano.sh/vgpu-memory": 3000}))
    wanted = {"cpu": "500m", "memory": "1Gi", GPU: "1", "volcano.sh/vgpu-memory": "3k"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": wanted, "requests": wanted}
    assert made["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (pod(containers=[]), "spec.containers"),
        (pod(containers=[container(name="")]), "spec.containers[0].name"),
        (pod(containers=[container(name="Not_OK")]), "spec.containers[0].name"),
        (pod(containers=[container(), container()]), "spec.containers[1].name"),
        (pod(containers=[container(image="")]), "spec.containers[0].image"),
        (pod(restartPolicy="Sometimes"), "spec.restartPolicy"),
        (pod(dnsPolicy="Other"), "spec.dnsPolicy"),
        (pod(volumes=[{"name": "v"}, {"name": "v"}]), "spec.volumes[1].name"),
        (
            pod(containers=[container(volumeMounts=[{"name": "x", "mountPath": "/x"}])]),
            "spec.containers[0].volumeMounts[0].name",
        ),
        (pod(containers=[container(env=[{"name": ""}])]), "spec.containers[0].env[0].name"),
        (pod(containers=[container(ports=[{"containerPort": 70000}])]), "spec.containers[0].ports[0].containerPort"),
        (pod(tolerations=[{"key": "a", "operator": "Like"}]), "spec.tolerations[0].operator"),
        (pod(nodeSelector={"a": "not ok!"}), "spec.nodeSelector"),
        (asking({"cpu": "-1"}), "spec.containers[0].resources.limits[cpu]"),
        (asking({GPU: "-1"}), f"spec.containers[0].resources.limits[{GPU}]"),
        (asking({GPU: "1500m"}), f"spec.containers[0].resources.limits[{GPU}]"),
        (asking({GPU: "2"}, {GPU: "1"}), "spec.containers[0].resources.requests"),
        (asking(None, {GPU: "1"}), "spec.containers[0].resources.limits"),
        (asking({"cpu": "1"}, {"cpu": "2"}), "spec.containers[0].resources.requests"),
        (asking({"apples": "1"}), "spec.containers[0].resources.limits[apples]"),
    ],
)
def test_a_bad_pod_is_refused_at_the_field(api: Api, pods: str, value: Json, field: str) -> None:
    answer = api.call("POST", pods, value)
    assert (answer.code, answer.json["reason"]) == (422, "Invalid"), answer.body
    assert answer.json["message"].startswith('Pod "p" is invalid: ')
    assert field in {cause["field"] for cause in answer.json["details"]["causes"]}


def test_a_quantity_that_is_none_is_a_bad_request(api: Api, pods: str) -> None:
    answer = api.call("POST", pods, asking({"cpu": "many"}))
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")


def test_a_priority_class_gives_the_priority(api: Api, pods: str) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = pods.split("/")[4]
    api.create(classes, {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"})
    spec = api.create(pods, pod(priorityClassName=name))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    answer = api.call("POST", pods, pod("q", priorityClassName="unheard-of"))
    assert (answer.code, answer.json["message"]) == (
        403, 'pods "q" is forbidden: no PriorityClass with name unheard-of was found')  # fmt: skip
    api.delete(f"{classes}/{name}")


def test_a_pods_spec_is_fixed_but_for_its_image_and_more_tolerations(api: Api, pods: str) -> None:
    api.create(pods, pod())
    fixed = api.call("PATCH", f"{pods}/p", {"spec": {"schedulerName": "other"}}, media="application/merge-patch+json")
    assert fixed.code == 422
    assert "pod updates may not change fields other than" in fixed.json["message"]
    changed = api.strategic(f"{pods}/p", {"spec": {"containers": [{"name": "c", "image": "i:2"}]}})
    assert changed["spec"]["containers"][0]["image"] == "i:2"
    assert changed["metadata"]["generation"] == 2
    tolerations = [*changed["spec"]["tolerations"], {"key": "gpu", "operator": "Exists"}]
    assert len(api.merge(f"{pods}/p", {"spec": {"tolerations": tolerations}})["spec"]["tolerations"]) == 3
    fewer = api.call("PATCH", f"{pods}/p", {"spec": {"tolerations": []}}, media="application/merge-patch+json")
    assert fewer.code == 422


def test_status_has_a_door_of_its_own(api: Api, pods: str) -> None:
    made = api.create(pods, {**pod(), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert api.merge(f"{pods}/p", {"status": {"phase": "Running"}})["status"]["phase"] == "Pending"
    ready = {"type": "Ready", "status": "True"}
    seen = api.strategic(f"{pods}/p/status", {"status": {"phase": "Running", "conditions": [ready]}})
    assert seen["status"]["phase"] == "Running"
    assert seen["spec"] == made["spec"]
    more = api.strategic(f"{pods}/p/status", {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}})
    assert {c["type"] for c in more["status"]["conditions"]} == {"Ready", "Initialized"}
    assert more["metadata"]["generation"] == 1


def test_a_binding_sets_node_annotations_and_condition_at_once(api: Api, pods: str) -> None:
    made = api.create(pods, {**pod(), "metadata": {"name": "p", "annotations": {"mine": "1"}}})
    revision = made["metadata"]["resourceVersion"]
    with api.watch(pods, resourceVersion=revision) as events:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "annotations": {"volcano.sh/card": "GPU-1"}},
                   "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}  # fmt: skip
        assert api.call("POST", f"{pods}/p/binding", binding).json["status"] == "Success"
        event = next(events)
    seen = event["object"]
    assert event["type"] == "MODIFIED"
    assert seen["spec"]["nodeName"] == "n1"
    assert seen["metadata"]["annotations"] == {"mine": "1", "volcano.sh/card": "GPU-1"}
    scheduled = next(c for c in seen["status"]["conditions"] if c["type"] == "PodScheduled")
    assert scheduled["status"] == "True"


def test_a_pod_is_bound_once(api: Api, pods: str, bound: Json) -> None:
    binding = {"metadata": {"name": "p", "annotations": {"late": "yes"}}, "target": {"kind": "Node", "name": "n2"}}
    answer = api.call("POST", f"{pods}/p/binding", binding)
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert 'pod p is already assigned to node "n1"' in answer.json["message"]
    assert api.get(f"{pods}/p") == bound


def test_a_binding_for_another_uid_conflicts(api: Api, pods: str) -> None:
    api.create(pods, pod())
    binding = {"metadata": {"name": "p", "uid": "00000000-0000-0000-0000-000000000000"}, "target": {"name": "n1"}}
    assert api.call("POST", f"{pods}/p/binding", binding).code == 409
    assert "nodeName" not in api.get(f"{pods}/p")["spec"]


def test_racing_binders_have_one_winner(api: Api, pods: str) -> None:
    api.create(pods, pod())
    codes: list[int] = []

    def bind(node: str) -> None:
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}
        codes.append(api.call("POST", f"{pods}/p/binding", binding).code)

    threads = [threading.Thread(target=bind, args=(f"n{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201] + [409] * 5


def test_an_unscheduled_pod_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod())
    assert api.delete(f"{pods}/p")["metadata"]["name"] == "p"
    assert api.call("GET", f"{pods}/p").code == 404


def test_a_bound_pod_goes_when_its_kubelet_says_so(api: Api, pods: str, bound: Json) -> None:
    dying = api.delete(f"{pods}/p")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 30
    assert dying["metadata"]["deletionTimestamp"] > bound["metadata"]["creationTimestamp"]
    shorter = api.delete(f"{pods}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert api.get(f"{pods}/p")["metadata"]["deletionTimestamp"] == shorter["metadata"]["deletionTimestamp"]
    other = {"gracePeriodSeconds": 0, "preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert api.call("DELETE", f"{pods}/p", other).code == 409
    api.delete(f"{pods}/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": bound["metadata"]["uid"]}})
    assert api.call("GET", f"{pods}/p").code == 404


def test_a_finished_pod_needs_no_grace(api: Api, pods: str, bound: Json) -> None:
    api.strategic(f"{pods}/p/status", {"status": {"phase": "Succeeded"}})
    api.delete(f"{pods}/p")
    assert api.call("GET", f"{pods}/p").code == 404


def test_gates_keep_a_pod_from_being_bound(api: Api, pods: str) -> None:
    made = api.create(pods, pod(schedulingGates=[{"name": "example.com/wait"}]))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert api.call("POST", f"{pods}/p/binding", binding).code == 409
    api.merge(f"{pods}/p", {"spec": {"schedulingGates": None, "nodeSelector": {"a": "b"}}})
    assert api.call("POST", f"{pods}/p/binding", binding).code == 201


def test_pods_are_selected_by_node_and_phase(api: Api, pods: str, bound: Json) -> None:
    api.create(pods, pod("q"))

    def names(selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get(pods, fieldSelector=selector)["items"]]

    assert names("spec.nodeName=n1") == ["p"]
    assert names("spec.nodeName=") == ["q"]
    assert names("status.phase!=Running,spec.nodeName!=n1") == ["q"]
    assert names("metadata.name=q") == ["q"]
    answer = api.call("GET", pods, fieldSelector="spec.hostname=x")
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")


def test_a_deployment_has_defaults_a_scale_and_a_fixed_selector(api: Api, namespace: str) -> None:
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()]}}
    made = api.create(
        deployments,
        {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}},
    )
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    scale = api.get(f"{deployments}/d/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "app=web")
    assert api.merge(f"{deployments}/d/scale", {"spec": {"replicas": 4}})["spec"] == {"replicas": 4}
    seen = api.get(f"{deployments}/d")
    assert (seen["spec"]["replicas"], seen["metadata"]["generation"]) == (4, 2)
    wrong = api.call("PATCH", f"{deployments}/d", {"spec": {"selector": {"matchLabels": {"app": "other"}}}},
                     media="application/merge-patch+json")  # fmt: skip
    assert wrong.code == 422
    odd = {"metadata": {"name": "e"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}}
    answer = api.call("POST", deployments, odd)
    assert "`selector` does not match template `labels`" in answer.json["message"]


def test_a_jobs_pods_are_found_by_its_uid(api: Api, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = api.create(
        jobs,
        {
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}},
        },
    )
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)


def test_nodes_are_cluster_wide_and_patched_by_their_status(api: Api) -> None:
    name = "n-" + api.kind
    status = {"capacity": {"cpu": "2", GPU: "60000"}, "allocatable": {"cpu": "2"}}
    api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    patch = {
        "status": {"capacity": {"volcano.sh/vgpu-memory": 22356}, "conditions": [{"type": "Ready", "status": "True"}]}
    }
    seen = api.strategic(f"/api/v1/nodes/{name}/status", patch)
    assert seen["status"]["capacity"][GPU] == "60k"
    assert seen["status"]["capacity"]["volcano.sh/vgpu-memory"] == "22356"
    twice = api.strategic(
        f"/api/v1/nodes/{name}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    )
    assert [c["status"] for c in twice["status"]["conditions"]] == ["False"]
    assert api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})["spec"]["unschedulable"] is True
    api.delete(f"/api/v1/nodes/{name}")


def test_ephemeral_containers_come_by_their_own_door_and_stay(api: Api, pods: str) -> None:
    guest = {"name": "g", "image": "i", "command": ["sh"]}
    refused = api.call("POST", pods, pod("early", ephemeralContainers=[guest]))
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "spec.ephemeralContainers")
    api.create(pods, pod("p"))

    def ask(*guests: Json) -> Answer:
        return api.call("PATCH", f"{pods}/p/ephemeralcontainers", {"spec": {"ephemeralContainers": list(guests)}},
                        media="application/merge-patch+json")  # fmt: skip

    assert api.call("PATCH", f"{pods}/p", {"spec": {"ephemeralContainers": [guest]}},
                    media="application/merge-patch+json").code == 422  # fmt: skip
    made = ask(guest)
    assert (made.code, [c["name"] for c in made.json["spec"]["ephemeralContainers"]]) == (200, ["g"])
    kept = made.json["spec"]["ephemeralContainers"][0]
    for wrong in ([], [{**kept, "image": "other"}], [kept, {**guest, "name": "h", "ports": [{"containerPort": 80}]}],
                  [kept, {**guest, "name": "h", "targetContainerName": "nobody"}], [kept, {**guest, "name": "c"}]):  # fmt: skip
        assert ask(*wrong).code == 422, wrong
    assert ask(kept, {**guest, "name": "h", "targetContainerName": "c"}).code == 200
