"""A pod's life on a node, in virtual time: phases, restarts, init containers, sidecars, what it waits for."""

from __future__ import annotations

from typing import Any

from lab.tests.unit.kubelet.world import OnNode, World

from pumice.wire.kinds import CONFIGMAPS, PODS


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status["conditions"]}


def config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def test_a_bound_pod_runs_with_the_status_that_kubectl_shows(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", "sleep", "infinity")
        await here.settle()
        status = await here.status("p")
        assert status["phase"] == "Running"
        assert conditions(status) == dict.fromkeys(
            ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True")
        assert status["hostIP"] == "127.64.0.2"
        assert status["podIP"].startswith("127.")
        assert status["podIP"] != status["hostIP"]
        state = await here.state("p")
        assert (state["ready"], state["started"], state["restartCount"]) == (True, True, 0)
        assert state["state"]["running"]["startedAt"] == status["startTime"]
        assert await here.reasons("p") == ["Created", "Started"]

    on_node(work)


def test_a_container_without_a_command_sleeps_and_args_alone_are_the_command(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("idle")
        await here.pod("args", container={"args": ["echo", "$(HOSTNAME)", "$(NAME)"], "env": [{"name": "NAME", "value": "x"}]})
        await here.settle(0.5)
        argv = {spec.about["pod"]: spec.argv for spec in here.runtime.started}
        assert argv["idle"] == ("sleep", "infinity")
        assert argv["args"] == ("echo", "args", "x")

    on_node(work)


def test_a_pod_of_pumices_own_image_runs_the_installed_package(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("own", container={"image": "example.com/pumice:v0.1", "args": ["monitor"]})
        await here.settle(0.5)
        spec = here.runtime.started[0]
        assert spec.argv[-1] == "monitor"
        assert "pumice" in " ".join(spec.argv)
        assert spec.env["NODE_NAME"] == "n1"

    on_node(work)


def test_exit_codes_decide_the_phase_by_restart_policy(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        for policy in ("Never", "OnFailure"):
            for command in ("true", "false"):
                await here.pod(f"{policy}-{command}".lower(), command, restartPolicy=policy)
        await here.settle(5)
        assert {name: (await here.status(name))["phase"] for name in ("never-true", "never-false", "onfailure-true")} == {
            "never-true": "Succeeded", "never-false": "Failed", "onfailure-true": "Succeeded"}
        status = await here.status("onfailure-false")
        assert status["phase"] == "Running"
        assert (await here.state("onfailure-false"))["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        ended = (await here.state("never-false"))["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (1, "Error")
        assert conditions(await here.status("never-true"))["Ready"] == "False"

    on_node(work)


def test_a_crashing_container_backs_off_twice_as_long_each_time(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        began = here.clock.monotonic()
        starts = []
        original = here.runtime.start

        async def noted(spec: Any, on_exit: Any) -> int:
            starts.append(round(here.clock.monotonic() - began))
            return await original(spec, on_exit)

        here.runtime.start = noted  # type: ignore[method-assign]
        await here.pod("p", "false")
        await here.settle(1000)
        assert starts == [0, 0, 10, 30, 70, 150, 310, 610, 910]
        state = await here.state("p")
        assert state["restartCount"] == 8
        assert state["state"]["waiting"]["message"].startswith("back-off 5m0s restarting failed container=main pod=p_default(")
        assert state["lastState"]["terminated"]["exitCode"] == 1
        (back_off,) = [e for e in await here.events("p") if e[1] == "BackOff"]
        assert back_off[3] >= 6

    on_node(work)


def test_a_long_run_clears_the_back_off(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", "sleep", "700")
        await here.settle(700 * 3 + 5)
        assert len(here.runtime.started) == 4  # each restart at once

    on_node(work)


def test_a_command_that_is_not_there_is_a_start_error_with_an_event(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", "nosuch", restartPolicy="Never")
        await here.settle()
        ended = (await here.state("p"))["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert ended["startedAt"] == "1970-01-01T00:00:00Z"
        assert (await here.status("p"))["phase"] == "Failed"
        assert [(reason, text) for _, reason, text, _ in await here.events("p")] == [
            ("StartError", 'Error: exec: "nosuch": executable file not found in $PATH')]

    on_node(work)


def test_where_namespaces_are_refused_an_event_says_what_the_pod_gets_instead(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.runtime.isolation, here.runtime.isolation_note = "none", "unshare: Operation not permitted"
        await here.pod("p")
        await here.settle()
        assert (await here.status("p"))["phase"] == "Running"
        (event,) = [e for e in await here.events("p") if e[1] == "NoMountNamespace"]
        assert event[0] == "Warning"
        assert "(unshare: Operation not permitted): the container gets LD_PRELOAD and host paths instead" in event[2]

    on_node(work)


def test_init_containers_run_one_after_the_other_before_the_containers(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        inits = [{"name": name, "image": "i", "command": ["sleep", "10"]} for name in ("one", "two")]
        await here.pod("p", initContainers=inits)
        await here.settle(5)
        status = await here.status("p")
        assert status["phase"] == "Pending"
        assert conditions(status)["Initialized"] == "False"
        assert (await here.state("p"))["state"] == {"waiting": {"reason": "PodInitializing"}}
        await here.settle(10)
        assert (await here.state("p", "one"))["state"]["terminated"]["exitCode"] == 0
        assert "running" in (await here.state("p", "two"))["state"]
        await here.settle(10)
        assert (await here.status("p"))["phase"] == "Running"
        assert [spec.about["container"] for spec in here.runtime.started] == ["one", "two", "main"]

    on_node(work)


def test_a_failing_init_container_fails_a_pod_that_never_restarts(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", initContainers=[{"name": "i", "image": "i", "command": ["false"]}], restartPolicy="Never")
        await here.settle()
        assert (await here.status("p"))["phase"] == "Failed"
        assert [spec.about["container"] for spec in here.runtime.started] == ["i"]

    on_node(work)


def test_a_sidecar_runs_beside_the_containers_and_ends_after_them(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        side = {"name": "side", "image": "i", "command": ["sleep", "infinity"], "restartPolicy": "Always"}
        last = {"name": "last", "image": "i", "command": ["sleep", "5"]}
        await here.pod("p", "sleep", "20", initContainers=[side, last], restartPolicy="Never")
        await here.settle(10)
        assert "running" in (await here.state("p", "side"))["state"]
        assert (await here.status("p"))["phase"] == "Running"
        await here.settle(20)
        assert (await here.status("p"))["phase"] == "Succeeded"
        assert "terminated" in (await here.state("p", "side"))["state"]

    on_node(work)


def test_a_fault_in_the_twin_leaves_no_pod_alone(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        start, faults = here.runtime.start, [ZeroDivisionError("first"), ZeroDivisionError("second")]

        async def faulty(spec: Any, on_exit: Any) -> int:
            if faults:
                raise faults.pop()
            return await start(spec, on_exit)

        here.runtime.start = faulty  # type: ignore[method-assign]
        await here.pod("p")
        await here.settle(15)
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)


def test_a_post_start_hook_that_fails_ends_the_container(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        """In a hollow container every exec fails."""
        hook = {"postStart": {"exec": {"command": ["true"]}}}
        await here.pod("p", container={"lifecycle": hook}, restartPolicy="Never")
        await here.settle(5)
        assert (await here.status("p"))["phase"] == "Failed"
        assert "FailedPostStartHook" in await here.reasons("p")

    on_node(work)


def test_a_missing_config_map_keeps_the_pod_waiting_until_it_comes(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        volumes = [{"name": "conf", "configMap": {"name": "later"}}]
        await here.pod("p", volumes=volumes, container={"volumeMounts": [{"name": "conf", "mountPath": "/etc/conf"}]})
        await here.settle()
        assert (await here.state("p"))["state"] == {"waiting": {"reason": "ContainerCreating"}}
        (event, *_) = await here.events("p")
        assert event[:3] == ("Warning", "FailedMount",
                             'MountVolume.SetUp failed for volume "conf" : configmap "later" not found')
        await here.kube.create(CONFIGMAPS, config_map("later", {"a.conf": "x=1"}))
        await here.settle(5)
        assert (await here.status("p"))["phase"] == "Running"
        (mount,) = here.runtime.started[0].mounts
        with open(f"{mount.source}/a.conf", encoding="utf-8") as file:
            assert file.read() == "x=1"

    on_node(work)


def test_an_env_from_a_missing_key_is_a_config_error(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        ref = {"name": "V", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
        await here.pod("p", container={"env": [ref]})
        await here.settle()
        assert (await here.state("p"))["state"]["waiting"] == {
            "reason": "CreateContainerConfigError", "message": 'configmap "m" not found'}
        await here.kube.create(CONFIGMAPS, config_map("m", {"k": "value"}))
        await here.settle(30)
        assert here.runtime.started[0].env["V"] == "value"

    on_node(work)


def test_the_scheduled_condition_and_foreign_conditions_are_kept(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p")
        await here.settle()
        added = [*(await here.status("p"))["conditions"], {"type": "example.com/mine", "status": "True"}]
        await here.kube.patch(PODS, "p", {"status": {"conditions": added}}, "default", subresource="status")
        await here.settle()
        await here.runtime.signal(next(iter(here.runtime.running())), 15)
        await here.settle(5)
        assert conditions(await here.status("p"))["example.com/mine"] == "True"

    on_node(work)


def test_after_a_restart_running_containers_are_adopted_and_lost_ones_restarted(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("kept")
        await here.pod("lost")
        await here.pod("once", restartPolicy="Never")
        await here.settle()
        await here.shut()
        for spec in here.runtime.started:
            if spec.about["pod"] != "kept":
                here.runtime._listeners.pop(spec.id)
        await here.boot()
        await here.settle(2)
        assert {name: (await here.status(name))["phase"] for name in ("kept", "lost", "once")} == {
            "kept": "Running", "lost": "Running", "once": "Failed"}
        assert (await here.state("kept"))["restartCount"] == 0
        assert (await here.state("lost"))["restartCount"] == 1
        assert (await here.state("lost"))["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        await here.runtime.signal((await here.state("kept"))["containerID"].removeprefix("pumice://"), 15)
        await here.settle(2)
        assert (await here.state("kept"))["restartCount"] == 1

    on_node(work)
