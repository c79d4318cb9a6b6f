"""Volcano's Jobs from submission to their end, as users see them (volcano.sh/apis batch/v1alpha1)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kit.job_world import job, job_world, mindcluster_job, on, task
from kit.virtual_time import run_virtually

from pumice.wire import kinds, volcano
from pumice.wire.kinds import NETWORK_POLICIES, SECRETS, SERVICES


def test_a_job_is_made_with_all_that_its_plugins_promise() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster_job())
            assert await world.phase("mindx-dls") == "Pending"
            assert await world.pods() == {}, "no pod before the group is let in"
            (group,) = (await world.groups()).values()
            uid = (await world.job("mindx-dls"))["metadata"]["uid"]
            assert group["metadata"]["name"] == f"mindx-dls-{uid}"
            assert group["spec"]["minTaskMember"] == {"default-test": 1}
            assert group["spec"]["minResources"]["huawei.com/npu-core"] == "8"
            await world.start()
            pod = (await world.pods())["mindx-dls-default-test-0"]
            assert {k: v for k, v in pod["metadata"]["annotations"].items() if k.startswith(("volcano", "scheduling"))} == {
                "volcano.sh/task-index": "0", "volcano.sh/task-spec": "default-test", "volcano.sh/job-name": "mindx-dls",
                "volcano.sh/queue-name": "default", "volcano.sh/job-version": "0", "volcano.sh/job-retry-count": "0",
                "volcano.sh/template-uid": "mindx-dls-default-test", "scheduling.k8s.io/group-name": f"mindx-dls-{uid}",
            }  # fmt: skip
            assert pod["metadata"]["labels"] == {
                "app": "infers", "vnpu-level": "low", "volcano.sh/task-index": "0", "volcano.sh/job-name": "mindx-dls",
                "volcano.sh/task-spec": "default-test", "volcano.sh/job-namespace": "default", "volcano.sh/queue-name": "default",
            }  # fmt: skip
            assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("mindx-dls-default-test-0", "mindx-dls")
            env = pod["spec"]["containers"][0]["env"]
            assert [each["name"] for each in env] == [
                "VK_TASK_INDEX", "VC_TASK_INDEX", "VC_DEFAULT_TEST_HOSTS", "VC_DEFAULT_TEST_NUM"]  # fmt: skip
            config = await world.found(kinds.CONFIGMAPS, "mindx-dls-svc")
            assert config is not None
            assert config["data"] == {
                "default_test.host": "mindx-dls-default-test-0.mindx-dls", "VC_DEFAULT_TEST_NUM": "1",
                "VC_DEFAULT_TEST_HOSTS": "mindx-dls-default-test-0.mindx-dls",
            }  # fmt: skip
            service = await world.found(SERVICES, "mindx-dls")
            assert service is not None
            assert service["spec"]["clusterIP"] == "None"
            assert await world.found(NETWORK_POLICIES, "mindx-dls") is not None
            secret = await world.found(SECRETS, "mindx-dls-ssh")
            assert secret is not None
            assert sorted(secret["data"]) == ["authorized_keys", "config", "id_rsa", "id_rsa.pub"]
            assert base64.b64decode(secret["data"]["config"]).decode() == (
                "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost mindx-dls-default-test-0\n"
                "  HostName mindx-dls-default-test-0.mindx-dls\n  Port 22\n"
            )
            status = await world.status("mindx-dls")
            assert status["state"]["phase"] == "Running"
            assert status["controlledResources"] == {"plugin-env": "env", "plugin-svc": "svc", "plugin-ssh": "ssh"}
            assert status["taskStatusCount"] == {"default-test": {"phase": {"Running": 1}}}

    run_virtually(story())


def test_min_success_completes_a_job_early() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 3), minSuccess=1))
            await world.start()
            await world.end("j-main-2")
            await world.bury()
            assert (await world.phase("j"), list(await world.pods())) == ("Completed", ["j-main-2"])

    run_virtually(story())


@pytest.mark.parametrize(("fields", "codes", "phase"), [
    ({}, (0, 0), "Completed"), ({}, (0, 1), "Failed"), ({"minAvailable": 1}, (0, 1), "Completed"),
    ({"minSuccess": 2}, (0, 1), "Failed"), ({"minAvailable": 2}, (1, 1), "Failed"),
])  # fmt: skip
def test_a_job_whose_pods_have_all_ended_is_judged_by_how_many_succeeded(fields: Any, codes: Any, phase: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), **fields))
            await world.start()
            for index, code in enumerate(codes):
                await world.end(f"j-main-{index}", code=code)
            assert await world.phase("j") == phase
            assert f'volcano_job_{phase.lower()}_phase_count{{job_name="default/j",queue_name="default"}} 1' in (
                world.controller.metrics_text())  # fmt: skip

    run_virtually(story())


def test_tasks_start_when_what_they_depend_on_is_up() -> None:
    async def story() -> None:
        async with job_world() as world:
            worker = task("worker", 2, dependsOn={"name": ["master"]})
            either = task("either", 1, dependsOn={"name": ["master", "worker"], "iteration": "any"})
            await world.submit(job("j", task("master", 1), worker, either, minAvailable=1))
            await world.admit()
            assert list(await world.pods()) == ["j-master-0"]
            await world.start()
            assert sorted(await world.pods()) == ["j-either-0", "j-master-0", "j-worker-0", "j-worker-1"]

    run_virtually(story())


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 1), ttlSecondsAfterFinished=30))
            await world.start()
            await world.end("j-main-0")
            await world.rest(25)
            assert await world.phase("j") == "Completed"
            await world.rest(10)
            left = await world.found(volcano.JOBS, "j")
            assert left is None or left["metadata"]["deletionTimestamp"], "its pods go first"

    run_virtually(story())


def test_a_job_is_scaled_up_and_down_and_its_pods_learn_of_each_other() -> None:
    async def story() -> None:
        async with job_world() as world:
            evicted = on("PodEvicted", "RestartJob")
            await world.submit(job("j", task("main", 2), minAvailable=2, plugins={"svc": []}, policies=[evicted]))
            await world.start()
            await world.change("j", tasks=[task("main", 4)], minAvailable=3)
            await world.start()
            assert sorted(await world.pods()) == [f"j-main-{i}" for i in range(4)]
            (group,) = (await world.groups()).values()
            assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (3, {"main": 4})
            config = await world.found(kinds.CONFIGMAPS, "j-svc")
            assert config is not None
            assert config["data"]["VC_MAIN_NUM"] == "4"
            await world.change("j", tasks=[task("main", 1)], minAvailable=1)
            await world.bury()
            assert list(await world.pods()) == ["j-main-0"]
            status = await world.status("j")
            assert (status["state"]["phase"], status.get("retryCount", 0)) == ("Running", 0), "its own hand is no eviction"

    run_virtually(story())


def test_the_names_of_the_pods_that_somebody_deleted_are_there_again_once_the_job_is_scaled() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 1), plugins={"svc": []}))
            await world.start()
            await world.hands.delete(kinds.CONFIGMAPS, "j-svc", "default")
            await world.change("j", tasks=[task("main", 2)])
            config = await world.found(kinds.CONFIGMAPS, "j-svc")
            assert config is not None
            assert config["data"]["VC_MAIN_NUM"] == "2"

    run_virtually(story())


def test_a_job_that_was_scaled_restarts_without_making_anything_twice() -> None:
    async def story() -> None:
        async with job_world() as world:
            made: list[str] = []
            await world.submit(job("j", task("main", 1), plugins={"svc": [], "ssh": []}))
            await world.start()
            await world.change("j", tasks=[task("main", 2)], minAvailable=2)
            await world.start()
            world.cluster.fault = lambda verb, path: made.append(path.rpartition("/")[2]) if verb == "POST" else None
            await world.command("RestartJob", "j")
            await world.bury()
            await world.start()
            assert sorted(name for name in made if name != "events") == [
                "configmaps", "networkpolicies", "podgroups", "pods", "pods", "secrets", "services"]  # fmt: skip
            config = await world.found(kinds.CONFIGMAPS, "j-svc")
            assert config is not None
            assert config["data"]["VC_MAIN_NUM"] == "2"

    run_virtually(story())


def test_commands_suspend_and_resume_a_job_and_are_gone_at_once() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2)))
            await world.start()
            await world.command("AbortJob", "j")
            await world.bury()
            assert (await world.phase("j"), await world.pods()) == ("Aborted", {})
            await world.command("ResumeJob", "j")
            await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["retryCount"], len(await world.pods())) == ("Running", 1, 2)
            assert (await world.cluster.list(volcano.COMMANDS))["items"] == []
            said = "Start to execute command {}, and clean it up to make sure executed not more than once."
            assert sorted(await world.events("CommandIssued")) == [said.format("AbortJob"), said.format("ResumeJob")]

    run_virtually(story())


def test_a_lost_group_is_an_event_of_its_job_and_so_is_one_without_room() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 1), policies=[on("Unknown", "RestartJob")]))
            (name,) = await world.groups()
            why = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "no room"}
            await world.mark_group(name, conditions=[why])
            await world.rest()
            assert await world.events("PodGroupPending") == ["PodGroup default:j unschedulable, reason: no room"]
            await world.start()
            await world.mark_group(name, phase="Unknown")
            await world.rest()
            assert (await world.status("j"))["retryCount"] == 1

    run_virtually(story())


def test_claims_are_made_or_waited_for_and_mounted_everywhere() -> None:
    async def story() -> None:
        async with job_world() as world:
            requested = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            await world.submit(job("j", task("main", 1), volumes=[
                {"mountPath": "/out", "volumeClaim": requested}, {"mountPath": "/in", "volumeClaimName": "data"}]))  # fmt: skip
            await world.start()
            assert await world.pods() == {}
            assert await world.events("PVCError") == [
                "pvc data is not found, the job will be in the Pending state until the PVC is created"]  # fmt: skip
            await world.cluster.create(
                kinds.PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": requested}, "default"
            )
            await world.rest(40)
            await world.start()
            spec = (await world.pods())["j-main-0"]["spec"]
            claims = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
            made = next(claim for claim in claims if claim != "data")
            assert len(made.removeprefix("j-pvc-")) == 12
            assert await world.found(kinds.PERSISTENT_VOLUME_CLAIMS, made) is not None
            assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]][:2] == ["/out", "/in"]
            assert (await world.status("j"))["controlledResources"] == {
                f"volume-pvc-{made}": made, "volume-pvc-data": "data"}  # fmt: skip

    run_virtually(story())


def test_a_job_that_waits_to_be_let_in_is_said_to_be_pending() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.hands.create(volcano.JOBS, job("j", task("main")), "default")
            await world.rest(1.0)
            assert await world.phase("j") == "Pending"

    run_virtually(story())
