"""Pods are held to the Pod Security Standards that the labels of their namespace name, in Kubernetes' words."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from kit.control_plane import Api, Json
from kit.seeds import chosen_seed

from pumice_lab.apiserver.pod_security.admission import LEVELS, Standard, reported

LABEL = "pod-security.kubernetes.io/"
_count = itertools.count(1)
GOOD = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
CONTEXTS: list[Json] = [
    {"privileged": True, "allowPrivilegeEscalation": True}, {"allowPrivilegeEscalation": True}, {"procMount": "Unmasked"},
    {"capabilities": {"add": ["SYS_ADMIN", "NET_RAW"]}}, {"capabilities": {"add": ["CHOWN"]}},
    {"capabilities": {"drop": ["MKNOD"]}},
    {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, {"runAsNonRoot": False}, {"runAsUser": 0},
    {"runAsUser": 1000}, {"seccompProfile": {"type": "Unconfined"}},
    {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}},
    {"appArmorProfile": {"type": "Unconfined"}}, {"appArmorProfile": {"type": "RuntimeDefault"}},
    {"seLinuxOptions": {"type": "spc_t"}},
    {"seLinuxOptions": {"user": "u", "role": "r"}}, {"seLinuxOptions": {"type": "container_engine_t"}},
    {"windowsOptions": {"hostProcess": True}},
]  # fmt: skip
PARTS: list[Json] = [
    {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 909}]},
    {"livenessProbe": {"httpGet": {"path": "/", "port": 80, "host": "10.0.0.1"}}},
    {"lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "example.com"}}}}, {},
]  # fmt: skip
SPECS: list[Json] = [
    {"hostPID": True, "hostIPC": True}, {"hostPID": True}, {"hostUsers": False}, {},
    {"volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}]},
    {"volumes": [{"name": "n", "nfs": {"server": "s", "path": "/"}}, {"name": "c", "configMap": {"name": "m"}}]},
]  # fmt: skip
POD_CONTEXTS: list[Json] = [
    {"sysctls": [{"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem", "value": "1"}]},
    {"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports", "value": "1"}]}, {"runAsNonRoot": True}, {"runAsNonRoot": False},
    {"runAsUser": 0}, {"seccompProfile": {"type": "RuntimeDefault"}}, {"seccompProfile": {"type": "Unconfined"}}, {},
]  # fmt: skip
NOTES: list[dict[str, str]] = [
    {}, {"container.apparmor.security.beta.kubernetes.io/c0": "unconfined"},
    {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"},
]  # fmt: skip


def drawn(rng: random.Random) -> Json:
    def container(i: int) -> Json:
        context = {**(GOOD if rng.random() < 0.5 else {}), **(rng.choice(CONTEXTS) if rng.random() < 0.6 else {})}
        if context.get("privileged") or "SYS_ADMIN" in str(context):
            context.pop("allowPrivilegeEscalation", None)
        return {"name": f"c{i}", "image": "i", "securityContext": context, **(rng.choice(PARTS) if rng.random() < 0.3 else {})}

    names = itertools.count()
    own = {**rng.choice(POD_CONTEXTS), **(rng.choice(CONTEXTS[-8:-1]) if rng.random() < 0.3 else {})}
    spec = {"containers": [container(next(names)) for _ in range(rng.choice([1, 1, 2]))], "securityContext": own,
            **(rng.choice(SPECS) if rng.random() < 0.5 else {})}  # fmt: skip
    if rng.random() < 0.2:
        spec["initContainers"] = [container(next(names))]
        spec["initContainers"][0].pop("livenessProbe", None)
        spec["initContainers"][0].pop("lifecycle", None)
    return {"metadata": {"name": "p", "annotations": rng.choice(NOTES)}, "spec": spec}


def held_to(api: Api, **labels: str) -> str:
    name = f"secure-{next(_count)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {
        LABEL + mode.replace("_", "-"): value for mode, value in labels.items()}}})  # fmt: skip
    return name


def warnings(api: Api, method: str, path: str, body: Any, **more: Any) -> list[str]:
    answer = api.call(method, path, body, **more)
    assert answer.code < 300, answer.body
    return [part.strip(' "') for part in answer.headers.get("warning", "").split("299 - ") if part.strip()]


def test_a_pod_is_refused_for_what_its_namespaces_standard_says_at_that_version(api: Api) -> None:
    """Whatever is drawn: the table says what this server says, be it Kubernetes' own."""
    seed = chosen_seed()
    print(f"PUMICE_SEED={seed}")
    rng = random.Random(seed)
    standards = [Standard(level, minor) for level in LEVELS for minor in (None, 0, 18, 23, 30, 34, 35, 99)]
    spaces = {standard: held_to(api, enforce=standard.level, enforce_version=str(standard).partition(":")[2])
              for standard in standards}  # fmt: skip
    verdicts = set()
    for _ in range(15):
        pod = drawn(rng)
        plain = api.call("POST", f"/api/v1/namespaces/{spaces[Standard()]}/pods", pod, dryRun="All")
        if plain.code == 422:  # two of its parts do not go together
            continue
        stored = plain.json
        for standard, space in spaces.items():
            answer = api.call("POST", f"/api/v1/namespaces/{space}/pods", pod, dryRun="All")
            refused = standard.refusals(stored["metadata"], stored["spec"])
            verdicts.add((standard.level, bool(refused)))
            if not refused:
                assert answer.code == 201, (pod, standard, answer.body)
                continue
            assert answer.json["message"] == f'pods "p" is forbidden: violates PodSecurity "{standard}": {reported(refused)}', pod
            assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert {("baseline", True), ("baseline", False), ("restricted", True), ("privileged", False)} <= verdicts


def test_templates_are_warned_of_and_pods_where_only_that_is_asked(api: Api) -> None:
    space = held_to(api, enforce="baseline")
    pods = f"/api/v1/namespaces/{space}/pods"
    bad = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": bad}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    (told_,) = warnings(api, "POST", f"/apis/apps/v1/namespaces/{space}/deployments", deployment)
    assert told_.startswith('would violate PodSecurity \\"baseline:latest\\": privileged (container \\"c\\"')
    assert api.call("POST", pods, {"metadata": {"name": "p"}, "spec": bad}).code == 403
    only = held_to(api, warn="restricted", warn_version="v1.22")
    (told_,) = warnings(api, "POST", f"/api/v1/namespaces/{only}/pods", {"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}]}})
    assert told_.startswith('would violate PodSecurity \\"restricted:v1.22\\": allowPrivilegeEscalation != false')


def test_a_namespace_that_becomes_stricter_names_the_pods_that_stay(api: Api) -> None:
    space = held_to(api)
    for name, spec in (("a", {"hostPID": True}), ("b", {"hostPID": True}), ("c", {})):
        api.create(f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "i"}], **spec}})
    merge = "application/merge-patch+json"
    stricter = {"metadata": {"labels": {LABEL + "enforce": "baseline"}}}
    found = warnings(api, "PATCH", f"/api/v1/namespaces/{space}", stricter, media=merge)
    assert found == ["a (and 1 other pod): host namespaces"]  # the last one; the client keeps no other
    # what they are is not looked at again where only other things change
    assert api.call("PATCH", f"/api/v1/namespaces/{space}/pods/a", {"metadata": {"labels": {"x": "y"}}}, media=merge).code == 200
    image = {"spec": {"containers": [{"name": "c", "image": "j"}]}}
    answer = api.call("PATCH", f"/api/v1/namespaces/{space}/pods/a", image, media="application/strategic-merge-patch+json")
    assert (answer.code, "violates PodSecurity" in answer.json["message"]) == (403, True)


@pytest.mark.parametrize(("label", "value"), [("enforce", "strict"), ("warn-version", "1.20"), ("audit", "none")])
def test_a_level_that_there_is_not_is_refused(api: Api, label: str, value: str) -> None:
    body = {"metadata": {"name": f"secure-{next(_count)}", "labels": {LABEL + label: value}}}
    answer = api.call("POST", "/api/v1/namespaces", body)
    assert answer.code == 422
    assert f"metadata.labels[{LABEL}{label}]: Invalid value: \"{value}\": must be " in answer.json["message"]
