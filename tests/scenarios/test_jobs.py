"""Volcano's Jobs from submission to their end, as users see them (spec volcano-core 16 to 18)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kit.job_world import job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import volcano
from pumice.wire.batch import NETWORK_POLICIES, SECRETS, SERVICES

EVICTED = on("PodEvicted", "RestartJob")


def mindcluster() -> dict[str, Any]:
    """The Job of MindCluster's guide."""
    container = {"name": "resnet50infer", "image": "mindie", "command": ["/bin/bash", "-c", "tail -f /dev/null"],
                 "resources": {"limits": {"huawei.com/npu-core": "8"}, "requests": {"huawei.com/npu-core": "8"}}}  # fmt: skip
    template = {"metadata": {"labels": {"app": "infers", "vnpu-level": "low"}},
                "spec": {"schedulerName": "volcano", "containers": [container], "nodeSelector": {"host-arch": "huawei-arm"}}}
    return job("mindx-dls", task("default-test", 1, template=template), labels={"ring-controller.atlas": "ascend-310P"},
               minAvailable=1, schedulerName="volcano", policies=[EVICTED], maxRetry=3, queue="default",
               plugins={"ssh": [], "env": [], "svc": []})  # fmt: skip


def test_a_job_is_made_with_all_that_its_plugins_promise() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster())
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
            config = await world.found(volcano.CONFIGMAPS, "mindx-dls-svc")
            assert config is not None
            assert config["data"] == {
                "default_test.host": "mindx-dls-default-test-0.mindx-dls", "VC_DEFAULT_TEST_NUM": "1",
                "VC_DEFAULT_TEST_HOSTS": "mindx-dls-default-test-0.mindx-dls",
            }  # fmt: skip
            service = await world.found(SERVICES, "mindx-dls")
            assert service is not None
            assert service["spec"]["clusterIP"] == "None"
            assert await world.found(NETWORK_POLICIES, "mindx-dls") is not None
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


def test_an_evicted_pod_restarts_its_job_until_the_retries_are_used_up() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster())
            name, seen = "mindx-dls-default-test-0", []
            for _ in range(3):
                await world.start()
                assert await world.phase("mindx-dls") == "Running"
                seen.append((await world.pods())[name]["metadata"]["annotations"]["volcano.sh/job-version"])
                old = await world.group_uids()
                await world.remove(name)
                assert not old & await world.group_uids(), "the group is a new one"
            status = await world.status("mindx-dls")
            assert (status["state"]["phase"], status["retryCount"], seen) == ("Failed", 3, ["0", "1", "2"])
            assert [c["status"] for c in status["conditions"]] == [
                *["Pending", "Running", "Restarting"] * 3, "Failed",
            ]  # fmt: skip
            assert await world.pods() == {}
            assert await world.groups() == {}
            for kind, called in ((SERVICES, "mindx-dls"), (volcano.CONFIGMAPS, "mindx-dls-svc"), (SECRETS, "mindx-dls-ssh")):
                assert await world.found(kind, called) is None
            assert await world.events("ExecuteAction") == ["Start to execute action RestartJob "] * 3

    run_virtually(story())


def test_the_way_from_eviction_to_the_new_pod_is_written_before_it_is_gone() -> None:
    """While a Job restarts, its new pods wait for the old ones to be gone and for the new group to be let in."""

    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodFailed", "RestartJob")]))
            await world.start()
            await world.end("j-main-0", code=1)
            status = await world.status("j")
            assert (status["state"]["phase"], status["version"], status["retryCount"]) == ("Restarting", 1, 1)
            assert status["terminating"] == 1, "the one that runs goes when its kubelet lets it"
            marks = [pod["metadata"]["annotations"] for pod in (await world.pods()).values()]
            assert all("volcano.sh/controller-out-of-sync" in each for each in marks)
            await world.bury()
            assert (await world.phase("j"), await world.pods()) == ("Pending", {})
            await world.start()
            pods = await world.pods()
            assert {pod["metadata"]["annotations"]["volcano.sh/job-retry-count"] for pod in pods.values()} == {"1"}
            assert await world.phase("j") == "Running"

    run_virtually(story())


@pytest.mark.parametrize(("action", "way", "end"), [
    ("AbortJob", "Aborting", "Aborted"), ("TerminateJob", "Terminating", "Terminated"),
    ("CompleteJob", "Completing", "Completed"),
])  # fmt: skip
def test_a_policy_ends_the_job_and_keeps_the_pods_that_ended(action: str, way: str, end: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 3), policies=[on("PodFailed", action)]))
            await world.start()
            await world.end("j-main-1", code=1)
            assert await world.phase("j") == way
            await world.bury()
            assert (await world.phase("j"), list(await world.pods())) == (end, ["j-main-1"])
            assert await world.groups() == {}
            assert await world.events("ExecuteAction") == [f"Start to execute action {action} "]

    run_virtually(story())


@pytest.mark.parametrize(("code", "phase"), [(3, "Restarting"), (4, "Running"), (137, "Terminating")])
def test_an_exit_code_chooses_its_policy_and_a_task_speaks_before_its_job(code: int, phase: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            kind = task("main", 2, policies=[{"exitCode": 137, "action": "TerminateJob"}])
            await world.submit(job("j", kind, task("other", 1), minAvailable=2,
                                   policies=[{"exitCode": 3, "action": "RestartJob"}, {"exitCode": 137, "action": "RestartJob"}]))
            await world.start()
            await world.end("j-main-0", code=code)
            assert await world.phase("j") == phase

    run_virtually(story())


def test_an_exit_code_of_zero_in_a_policy_means_nothing() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), minAvailable=1, policies=[{"exitCode": 0, "action": "TerminateJob"}]))
            await world.start()
            await world.end("j-main-0", code=0)
            assert await world.phase("j") == "Running"
            await world.remove("j-main-1")
            assert (await world.phase("j"), len(await world.pods())) == ("Running", 2), "the pod is made again"

    run_virtually(story())


@pytest.mark.parametrize(("action", "gone"), [
    ("RestartPod", {"j-a-1"}), ("RestartTask", {"j-a-0", "j-a-1", "j-a-2", "j-a-3"}), ("RestartPartition", {"j-a-0", "j-a-1"}),
])  # fmt: skip
def test_a_restart_of_a_part_leaves_the_rest_its_group_and_its_version(action: str, gone: set[str]) -> None:
    async def story() -> None:
        async with job_world() as world:
            parts = {"totalPartitions": 2, "partitionSize": 2}
            await world.submit(job("j", task("a", 4, partitionPolicy=parts), task("b", 1), policies=[on("PodFailed", action)]))
            await world.start()
            before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
            groups = await world.group_uids()
            await world.end("j-a-1", code=1)
            assert await world.phase("j") in ("Restarting", "Pending")
            await world.bury()
            await world.start()
            after = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
            assert {name for name in before if after[name] != before[name]} == gone
            status = await world.status("j")
            assert (status["state"]["phase"], status.get("version", 0), status["retryCount"]) == ("Running", 0, 1)
            assert await world.group_uids() == groups

    run_virtually(story())


def test_containers_that_restart_too_often_fail_their_task() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2, maxRetry=4), policies=[on("TaskFailed", "TerminateJob")]))
            await world.start()
            await world.restart_container("j-main-0", 3)
            assert await world.phase("j") == "Running"
            await world.restart_container("j-main-1", 1)
            assert await world.phase("j") == "Terminating"

    run_virtually(story())


def test_a_task_that_is_through_completes_its_job() -> None:
    async def story() -> None:
        async with job_world() as world:
            lead = task("lead", 2, policies=[on("TaskCompleted", "CompleteJob")])
            await world.submit(job("j", lead, task("worker", 2)))
            await world.start()
            await world.end("j-lead-0")
            assert await world.phase("j") == "Running"
            await world.end("j-lead-1")
            await world.bury()
            assert (await world.phase("j"), sorted(await world.pods())) == ("Completed", ["j-lead-0", "j-lead-1"])

    run_virtually(story())


def test_a_timeout_delays_an_action_and_what_passes_meanwhile_cancels_it() -> None:
    async def story() -> None:
        async with job_world() as world:
            delayed = on("PodPending", "TerminateJob", timeout="30s")
            await world.submit(job("quick", task("main", 1), policies=[delayed]))
            await world.submit(job("stuck", task("main", 1), policies=[delayed]))
            await world.admit()
            await world.rest(20)
            await world.start("quick-main-0")
            await world.rest(20)
            assert (await world.phase("quick"), await world.phase("stuck")) == ("Running", "Terminated")
            assert "Execute action TerminateJob after 30s" in await world.events("ExecuteAction")

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
            await world.submit(job("j", task("main", 2), minAvailable=2, plugins={"svc": []}, policies=[EVICTED]))
            await world.start()
            await world.change("j", tasks=[task("main", 4)], minAvailable=3)
            await world.start()
            assert sorted(await world.pods()) == [f"j-main-{i}" for i in range(4)]
            (group,) = (await world.groups()).values()
            assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (3, {"main": 4})
            config = await world.found(volcano.CONFIGMAPS, "j-svc")
            assert config is not None
            assert config["data"]["VC_MAIN_NUM"] == "4"
            await world.change("j", tasks=[task("main", 1)], minAvailable=1)
            await world.bury()
            assert list(await world.pods()) == ["j-main-0"]
            status = await world.status("j")
            assert (status["state"]["phase"], status.get("retryCount", 0)) == ("Running", 0), "its own hand is no eviction"

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
            asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            await world.submit(job("j", task("main", 1), volumes=[
                {"mountPath": "/out", "volumeClaim": asked}, {"mountPath": "/in", "volumeClaimName": "data"}]))  # fmt: skip
            await world.start()
            assert await world.pods() == {}
            assert await world.events("PVCError") == [
                "pvc data is not found, the job will be in the Pending state until the PVC is created"]  # fmt: skip
            await world.cluster.create(volcano.PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": asked}, "default")
            await world.rest(40)
            await world.start()
            spec = (await world.pods())["j-main-0"]["spec"]
            claims = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
            made = next(claim for claim in claims if claim != "data")
            assert len(made.removeprefix("j-pvc-")) == 12
            assert await world.found(volcano.PERSISTENT_VOLUME_CLAIMS, made) is not None
            assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]][:2] == ["/out", "/in"]
            assert (await world.status("j"))["controlledResources"] == {
                f"volume-pvc-{made}": made, "volume-pvc-data": "data"}  # fmt: skip

    run_virtually(story())


def test_a_job_of_one_pod_costs_three_writes_until_it_runs_and_two_until_it_is_over() -> None:
    async def story() -> None:
        async with job_world() as world:
            written: list[str] = []

            def watch(verb: str, path: str) -> None:
                if verb != "GET" and "/events" not in path:
                    written.append(f"{verb} {path.partition('/default/')[2].partition('/')[0]}")

            await world.rest()
            world.cluster.fault = watch
            await world.hands.create(volcano.JOBS, job("j", task("main")), "default")
            await world.rest(0.3)
            await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
            await world.rest(0.3)
            await world.run("j-main-0")
            await world.rest()
            assert written == ["POST podgroups", "POST pods", "PATCH jobs"]
            assert [each["status"] for each in (await world.status("j"))["conditions"]] == ["Pending", "Running"]
            await world.end("j-main-0")
            assert written[3:] == ["PATCH jobs", "DELETE podgroups"]
            assert await world.phase("j") == "Completed"

    run_virtually(story())


@pytest.mark.parametrize("allowed", [True, False], ids=["together", "no right to delete many"])
def test_the_groups_of_jobs_that_end_together_go_by_one_request_where_that_is_allowed(allowed: bool) -> None:
    async def story() -> None:
        async with job_world() as world:
            written: list[str] = []

            def watch(verb: str, path: str) -> ApiError | None:
                if verb != "DELETE":
                    return None
                written.append(path.rpartition("/")[2])
                return ApiError(403, "Forbidden", "may not") if path.endswith("/podgroups") and not allowed else None

            for number in range(5):
                await world.hands.create(volcano.JOBS, job(f"j{number}", task("main")), "default")
            await world.rest()
            await world.start()
            world.cluster.fault = watch
            ending = [f"j{number}-main-0" for number in range(4)]
            for name in ending:
                await world.tell(name, "Succeeded")
            await world.rest()
            (left,) = await world.groups()
            assert left.startswith("j4-"), "of the Job that goes on"
            assert written[0] == "podgroups"
            assert len(written) == (1 if allowed else 5)
            assert {await world.phase(f"j{number}") for number in range(4)} == {"Completed"}

    run_virtually(story())


def test_a_job_is_not_looked_at_for_echoes_and_for_what_it_does_not_read() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", maxRetry=3)))
            await world.start()
            await world.rest(20)
            looks, work = list[str](), world.controller.work
            reconcile = work.reconcile

            async def look(kind: str, key: str) -> None:
                looks.append(kind)
                await reconcile(kind, key)

            work.reconcile = look
            (name,) = await world.groups()
            await world.mark_group(name, phase="Running", running=1)
            await world.hands.patch(volcano.PODS, "j-main-0", {"metadata": {"annotations": {"what": "ever"}}}, "default")
            await world.rest(20)
            assert looks == []
            await world.end("j-main-0")
            assert looks.count("job") == 2, "its pod has ended, its group is gone; what it wrote itself is no news"
            assert await world.phase("j") == "Completed"

    run_virtually(story())


def test_a_job_that_waits_to_be_let_in_is_said_to_be_pending() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.hands.create(volcano.JOBS, job("j", task("main")), "default")
            await world.rest(1.0)
            assert await world.phase("j") == "Pending"

    run_virtually(story())
