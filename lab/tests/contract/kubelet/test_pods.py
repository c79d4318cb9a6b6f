"""One contract for the kubelet twin and the real kubelet 1.36: how a pod lives, ends and shows itself."""

from __future__ import annotations

import asyncio

from kit.kubelet_nodes import Node, On, box

from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import PODS


def conditions(status: Json) -> dict[str, str]:
    """Status by type, of the conditions that both releases' users look at."""
    wanted = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {c["type"]: c["status"] for c in status["conditions"] if c["type"] in wanted}


def state(status: Json, index: int = 0, kind: str = "containerStatuses") -> Json:
    shown: Json = status[kind][index]
    return shown


def test_a_running_pod_is_ready_and_has_addresses(on: On) -> None:
    async def work(node: Node) -> None:
        status = await node.until_phase(await node.pod(box()), "Running")
        assert conditions(status) == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
        shown = state(status)
        assert (shown["ready"], shown["started"], shown["restartCount"], list(shown["state"])) == (True, True, 0, ["running"])
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["hostIPs"] == [{"ip": status["hostIP"]}]

    on(work)


def test_exit_codes_decide_the_phase(on: On) -> None:
    async def work(node: Node) -> None:
        good = await node.until_phase(await node.pod(box(script="exit 0"), restartPolicy="Never"), "Succeeded")
        ended = state(good)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert conditions(good) == {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "False", "Ready": "False"}
        assert {c.get("reason") for c in good["conditions"] if c["type"] == "Ready"} == {"PodCompleted"}
        bad = await node.until_phase(await node.pod(box(script="exit 7"), restartPolicy="Never"), "Failed")
        ended = state(bad)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (7, "Error")

    on(work)


def test_a_command_that_is_not_there_ends_with_a_start_error(on: On) -> None:
    async def work(node: Node) -> None:
        container = {**box(), "command": ["no-such-program"]}
        status = await node.until_phase(await node.pod(container, restartPolicy="Never"), "Failed")
        ended = state(status)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["startedAt"]) == (128, "StartError", "1970-01-01T00:00:00Z")
        assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]

    on(work)


def test_a_crashing_container_restarts_once_and_then_backs_off(on: On) -> None:
    async def work(node: Node) -> None:
        name = await node.pod(box(script="exit 3"))

        async def backs_off() -> bool:
            shown = (await node.status(name)).get("containerStatuses") or [{}]
            return bool((shown[0].get("state") or {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

        await node.until(backs_off, "the back-off")
        status = await node.status(name)
        assert status["phase"] == "Running"
        shown = state(status)
        # Ten seconds, then twice as long each time; on a busy machine the first ones may be over before anybody looks.
        pauses = ("10s", "10s", "20s", "40s")[: shown["restartCount"] + 1]
        assert shown["lastState"]["terminated"]["exitCode"] == 3
        assert shown["state"]["waiting"]["message"].startswith(
            tuple(f"back-off {pause} restarting failed container=main pod=" for pause in pauses[-2:]))
        assert conditions(status)["Ready"] == "False"

    on(work)


def test_init_containers_come_first_and_a_failing_one_ends_the_pod(on: On) -> None:
    async def work(node: Node) -> None:
        name = await node.pod(box(), initContainers=[box(script="sleep 2", name="one"), box(script="true", name="two")])

        async def in_first() -> bool:
            shown = (await node.status(name)).get("initContainerStatuses") or [{}]
            return "running" in (shown[0].get("state") or {})

        await node.until(in_first, "the first init container")
        status = await node.status(name)
        assert status["phase"] == "Pending"
        assert conditions(status)["Initialized"] == "False"
        assert state(status)["state"] == {"waiting": {"reason": "PodInitializing"}}
        status = await node.until_phase(name, "Running")
        assert [s["state"]["terminated"]["exitCode"] for s in status["initContainerStatuses"]] == [0, 0]
        failed = await node.pod(box(), initContainers=[box(script="exit 5", name="one")], restartPolicy="Never")
        status = await node.until_phase(failed, "Failed")
        assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
        assert "waiting" in state(status)["state"]

    on(work)


def test_a_sidecar_runs_beside_the_containers_and_does_not_keep_the_pod(on: On) -> None:
    async def work(node: Node) -> None:
        side = box(script="sleep 1000", name="side", restartPolicy="Always")
        name = await node.pod(box(script="sleep 1"), initContainers=[side], restartPolicy="Never")
        await node.until_phase(name, "Running")
        assert "running" in state(await node.status(name), kind="initContainerStatuses")["state"]
        status = await node.until_phase(name, "Succeeded")
        assert "terminated" in state(status, kind="initContainerStatuses")["state"]

    on(work)


def test_a_pod_past_its_deadline_fails(on: On) -> None:
    async def work(node: Node) -> None:
        status = await node.until_phase(await node.pod(box(), activeDeadlineSeconds=2), "Failed")
        assert status["reason"] == "DeadlineExceeded"

    on(work)


def test_env_command_and_downward_api_are_expanded_alike(on: On) -> None:
    async def work(node: Node) -> None:
        def field(path: str) -> Json:
            return {"fieldRef": {"fieldPath": path}}

        env = [{"name": "NAME", "valueFrom": field("metadata.name")}, {"name": "NODE", "valueFrom": field("spec.nodeName")},
               {"name": "IP", "valueFrom": field("status.podIP")}, {"name": "BOTH", "value": "$(NAME)@$(NODE) $(NONE) $$(NAME)"},
               {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}]
        container = {"name": "main", "image": box()["image"], "imagePullPolicy": "Never", "env": env, "workingDir": "/tmp",
                     "resources": {"limits": {"cpu": "250m"}}, "command": ["sh", "-c"],
                     "args": ['echo "$BOTH $CPU"; pwd; echo $HOSTNAME; echo $(IP)']}
        name = await node.pod(container, restartPolicy="Never")
        status = await node.until_phase(name, "Succeeded")
        assert (await node.log(name)).splitlines() == [f"{name}@{node.name} $(NONE) $(NAME) 250", "/tmp", name, status["podIP"]]

    on(work)


def test_volumes_hold_what_the_objects_say(on: On) -> None:
    async def work(node: Node) -> None:
        maps = type(PODS)("", "v1", "configmaps")
        name = node.resource().rpartition("/")[2]
        await node.kube.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"one": "1", "two": "2"},
                                      "metadata": {"name": name, "namespace": "default"}})
        volumes = [{"name": "conf", "configMap": {"name": name, "items": [{"key": "two", "path": "deep/er"}]}},
                   {"name": "self", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                   {"name": "empty", "emptyDir": {}}]
        mounts = [{"name": "conf", "mountPath": "/conf", "readOnly": True}, {"name": "self", "mountPath": "/self"},
                  {"name": "empty", "mountPath": "/empty", "subPath": "sub"}]
        script = "cat /conf/deep/er; echo; ls /conf; cat /self/labels; echo; echo kept > /empty/file; cat /empty/file"
        pod = await node.pod(box(script=script, volumeMounts=mounts), volumes=volumes, restartPolicy="Never")
        await node.until_phase(pod, "Succeeded")
        assert (await node.log(pod)).splitlines() == ["2", "deep", pod, "kept"]

    on(work)


def test_a_deleted_pod_is_given_its_grace_period(on: On) -> None:
    async def work(node: Node) -> None:
        script = "trap 'echo asked; sleep 1; exit 0' TERM; echo ready; while true; do sleep 0.1; done"
        name = await node.pod(box(script=script), terminationGracePeriodSeconds=50)
        await node.until_phase(name, "Running")

        async def ready() -> bool:
            return "ready" in await node.log(name)

        await node.until(ready, "the trap")
        began = asyncio.get_running_loop().time()
        await node.kube.delete(PODS, name, "default")

        async def gone() -> bool:
            try:
                await node.status(name)
            except ApiError as error:
                if error.code != 404:
                    raise
                return True
            return False

        await node.until(gone, "the end")
        assert 0.9 < asyncio.get_running_loop().time() - began < 45

    on(work)
