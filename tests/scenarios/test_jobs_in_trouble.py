"""Jobs that are wrong, names that are taken, hands that interfere, and a controller that dies (Volcano pkg/controllers/job)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.job_world import JobWorld, job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.effects.vocabulary import Create
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice.wire.kinds import SERVICES
from pumice_jobs.apps.controller import jobs
from pumice_jobs.controllers.job import reconcile
from pumice_jobs.controllers.job.effects import Effect
from pumice_jobs.controllers.job.reconcile import View, decide


@pytest.mark.parametrize(("wrong", "words"), [
    (job("j", task("a"), plugins={"magic": []}), "unable to find job plugin: magic;"),
    (job("j", task("a"), task("a")), "duplicated task name a;"),
    (job("j", task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
     "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"),
    (job("j", task("a", 1, minAvailable=2), minAvailable=1), "'minAvailable' is greater than 'replicas' in task: a, job: j;"),
    (job("j", task("worker", 2), plugins={"mpi": []}), "The specified mpi master task was not found"),
    (job("j", task("a", 2), minAvailable=3), "job 'minAvailable' should not be greater than total replicas in tasks;"),
    (job("j", task("a", 2**31 - 1)), "the job has 2147483647 pods, 150000 at most are served"),
    (job("j", *(task(f"t{i}") for i in range(501))), "the job has 501 tasks, 500 at most are served"),
    (job("j", task("a", 90_000), plugins={"svc": []}),
     "plugin svc: the names of all pods take 2160000 bytes, and a ConfigMap 1048576"),
    (job("j", task("master"), task("worker", 9_000), plugins={"mpi": []}),
     "plugin mpi: the names of all pods take 144000 bytes, and a variable 131072"),
    (job("j", task("ps"), task("worker", 9_000), plugins={"tensorflow": []}),
     "plugin tensorflow: the names of all pods take 144009 bytes, and a variable 131072"),
    (job("a" * 64, task("a")), f"create job with name {'a' * 64} validate failed [name part must be no more than 63 characters]"),
])  # fmt: skip
def test_a_job_that_cannot_be_served_says_why_once_and_makes_nothing(wrong: Any, words: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(wrong)
            await world.submit(job("right", task("a")))
            await world.start()
            await world.rest(120)
            assert list(await world.pods()) == ["right-a-0"]
            assert await world.events("JobStatusError") == [words]
            assert await world.phase(wrong["metadata"]["name"]) == "Pending"

    run_virtually(story())


@pytest.mark.parametrize("template", [
    {"spec": {"containers": "none"}}, {"spec": []}, {"spec": {"containers": [None]}}, {"metadata": {"labels": ["a"]}, "spec": {}},
    {"metadata": 7}, {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}},
])  # fmt: skip
def test_a_template_that_is_none_keeps_nobody_else_waiting(template: Any) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("odd", task("a", template=template), plugins={"svc": [], "env": [], "ssh": []}))
            await world.submit(job("right", task("a")))
            await world.start()
            await world.rest(1200)
            assert list(await world.pods()) == ["right-a-0"]
            assert await world.phase("odd") in ("Pending", "Terminated")
            assert await world.events("JobStatusError") or await world.events("FailedCreate")

    run_virtually(story())


def test_the_pods_of_a_large_job_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()

    def counted(view: View) -> list[Effect]:
        found = decide(view)
        made.append(sum(isinstance(effect, Create) for effect in found))
        return found

    monkeypatch.setattr(jobs, "decide", counted)
    monkeypatch.setattr(jobs, "BURST", 3)
    monkeypatch.setattr(reconcile, "BURST", 3)

    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("large", task("a", 8), task("b", 2)))
            await world.start()
            await world.rest()
            assert len(await world.pods()) == 10
            assert max(made) == 3

    run_virtually(story())


def test_what_is_null_in_a_template_is_not_there_as_kubernetes_reads_it() -> None:
    """Charts write ``env:`` with nothing behind it."""

    async def story() -> None:
        async with job_world() as world:
            nothing = dict.fromkeys(("env", "ports", "volumeMounts", "resources", "command"))
            container = {"name": "c", "image": "x", **nothing}
            asking = {"name": "d", "image": "x", "resources": {"requests": {"cpu": 1}, "limits": None}}
            spec = {"containers": [container, asking], "subdomain": "s",
                    **dict.fromkeys(("initContainers", "volumes", "hostname", "tolerations", "nodeSelector"))}  # fmt: skip
            template = {"metadata": {"labels": None, "annotations": None}, "spec": spec}
            body = job("j", task("main", 1, template=template), plugins={"svc": [], "ssh": [], "pytorch": ["--master=main"]})
            await world.submit(body)
            await world.start()
            assert (await world.phase("j"), await world.events("JobStatusError")) == ("Running", [])
            config = await world.found(kinds.CONFIGMAPS, "j-svc")
            assert config is not None
            assert config["data"]["VC_MAIN_HOSTS"] == "j-main-0.s"

    run_virtually(story())


def test_a_job_that_was_wrong_is_served_once_it_is_mended() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("a"), task("b", dependsOn={"name": ["c"]})))
            await world.change("j", tasks=[task("a"), task("b", dependsOn={"name": ["a"]})])
            await world.start()
            await world.start()
            assert await world.phase("j") == "Running"

    run_virtually(story())


def test_a_job_whose_pods_would_have_too_long_a_name_with_its_plugin_ends_and_says_so() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("a" * 60, task("main"), plugins={"svc": []}))
            await world.admit()
            await world.rest(900)
            assert (await world.phase("a" * 60), await world.pods()) == ("Terminated", {})
            assert any("must be no more than 63 characters" in text for text in await world.events("FailedCreate"))

    run_virtually(story())


def test_a_command_that_cannot_be_written_on_its_job_waits_and_is_carried_out_once() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2)))
            await world.start()
            world.cluster.fault = lambda verb, path: WEBHOOK_DOWN if verb == "PATCH" and path.endswith("/jobs/j/status") else None
            await world.command("RestartJob", "j")
            await world.rest(600)
            assert len((await world.hands.list(volcano.COMMANDS))["items"]) == 1
            world.cluster.fault = lambda verb, path: None
            await world.rest(60)
            await world.bury()
            await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["retryCount"]) == ("Running", 1)
            assert (await world.hands.list(volcano.COMMANDS))["items"] == []

    run_virtually(story())


def test_a_pod_that_the_api_server_refuses_ends_its_job_after_fifteen_tries() -> None:
    async def story() -> None:
        async with job_world() as world:
            template = {"spec": {"containers": [{"name": "NO NAME", "image": "busybox"}]}}
            await world.submit(job("j", task("bad", template=template), task("good")))
            await world.start()
            assert list(await world.pods()) == ["j-good-0"], "the others are made"
            assert len(await world.events("FailedCreate")) == 1
            await world.rest(900)
            assert await world.phase("j") in ("Terminating", "Terminated")
            assert "Job failed on action SyncJob for retry limit reached" in await world.events()

    run_virtually(story())


WEBHOOK_DOWN = ApiError(500, "InternalError", 'failed calling webhook "v": Post "https://v": connect: connection refused')


@pytest.mark.parametrize("what", ["/pods", "/podgroups", "/jobs/j/status"])
def test_an_outage_of_the_api_server_or_of_a_webhook_ends_no_job(what: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            world.cluster.fault = lambda verb, path: WEBHOOK_DOWN if verb != "GET" and path.endswith(what) else None
            await world.submit(job("j", task("main", 2)))
            await world.admit()
            await world.rest(3600)
            assert len(await world.pods()) == (2 if what == "/jobs/j/status" else 0)
            world.cluster.fault = lambda verb, path: None
            await world.rest(60)
            await world.start()
            assert await world.phase("j") == "Running"

    run_virtually(story())


def test_a_pod_of_somebody_else_under_a_tasks_name_is_left_alone() -> None:
    async def story() -> None:
        async with job_world() as world:
            foreign = {"metadata": {"name": "j-main-0", "labels": {"volcano.sh/job-name": "j"}},
                       "spec": {"containers": [{"name": "c", "image": "busybox"}]}}  # fmt: skip
            await world.cluster.create(kinds.PODS, foreign, "default")
            await world.submit(job("j", task("main", 2)))
            await world.admit()
            await world.rest(600)
            there = (await world.pods())["j-main-0"]
            assert "ownerReferences" not in there["metadata"]
            assert await world.events("FailedCreate") == ["Error creating pods: [pod j-main-0 exists and is not of this job]"]
            await world.remove("j-main-0")
            await world.rest(60)
            await world.start()
            assert await world.phase("j") == "Running"

    run_virtually(story())


def test_a_service_of_somebody_else_is_not_taken_over() -> None:
    async def story() -> None:
        async with job_world() as world:
            body = {"metadata": {"name": "j"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
            await world.cluster.create(SERVICES, body, "default")
            await world.submit(job("j", task("main"), plugins={"svc": []}))
            await world.admit()
            await world.rest(60)
            assert await world.pods() == {}
            assert await world.events("PluginError") == [
                "Execute plugin when job add failed, err: services j exists and is not of this job"]  # fmt: skip
            await world.cluster.delete(SERVICES, "j", "default")
            await world.rest(60)
            await world.start()
            assert await world.phase("j") == "Running"

    run_virtually(story())


def test_what_others_write_into_the_status_meanwhile_stays() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodFailed", "RestartJob")]))
            await world.start()
            note = {"status": {"controlledResources": {"theirs": "kept"}}}
            await world.report("j-main-0", "Failed", state={"terminated": {"exitCode": 1}})
            await world.cluster.patch(volcano.JOBS, "j", note, "default", subresource="status")
            await world.rest()
            await world.bury()
            await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["retryCount"]) == ("Running", 1)
            assert status["controlledResources"] == {"theirs": "kept"}

    run_virtually(story())


def test_a_job_that_is_changed_while_it_restarts_starts_as_it_is_now() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 3), policies=[on("PodFailed", "RestartJob")]))
            await world.start()
            await world.end("j-main-0", code=1)
            await world.change("j", tasks=[task("main", 1)], minAvailable=1)
            await world.bury()
            await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["minAvailable"], list(await world.pods())) == ("Running", 1, ["j-main-0"])
            (group,) = (await world.groups()).values()
            assert group["spec"]["minMember"] == 1

    run_virtually(story())


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("verb", ["PATCH", "DELETE", "POST"])
def test_a_retry_is_counted_once_whatever_becomes_of_the_requests(verb: str, carried_out: bool) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodFailed", "RestartJob")], plugins={"svc": []}))
            await world.start()
            left = [6]

            def fault(requested: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
                if requested != verb or "events" in path or left[0] == 0:
                    return None
                left[0] -= 1
                error = ApiError(0, "Timeout", "no answer")
                return (error, True) if carried_out else error

            await world.report("j-main-0", "Failed", state={"terminated": {"exitCode": 1}})
            world.cluster.fault = fault
            await world.rest(60)
            world.cluster.fault = lambda verb, path: None
            for _ in range(3):
                await world.bury()
                await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["retryCount"], status["version"]) == ("Running", 1, 1)
            assert await world.found(SERVICES, "j") is not None

    run_virtually(story())


@pytest.mark.parametrize("request_", range(12))
def test_a_controller_that_dies_amid_a_restart_is_taken_up_where_it_was(request_: int) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 3), policies=[on("PodFailed", "RestartJob")], plugins={"svc": []}))
            await world.start()
            await world.report("j-main-1", "Failed", state={"terminated": {"exitCode": 1}})
            world.cut_off(request_)
            await world.rest(0.3)
            await world.replace()
            for _ in range(3):
                await world.bury()
                await world.start()
            status = await world.status("j")
            assert (status["state"]["phase"], status["retryCount"], status["version"]) == ("Running", 1, 1)
            versions = {pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in (await world.pods()).values()}
            assert (versions, len(await world.pods())) == ({"1"}, 3)

    run_virtually(story())


def test_pods_that_vanished_while_no_controller_ran_count_as_evicted() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodEvicted", "RestartJob")]))
            await world.start()
            await world.rest(2)
            await world.kill()
            await world.remove("j-main-1")
            await world.up()
            await world.rest()
            assert (await world.status("j"))["retryCount"] == 1

    run_virtually(story())


def test_a_job_of_a_closed_queue_waits_without_pods() -> None:
    async def story() -> None:
        async with job_world() as world:
            body = {"metadata": {"name": "night"}, "spec": {"weight": 1}}
            await world.cluster.create(volcano.QUEUES, body)
            await world.cluster.patch(volcano.QUEUES, "night", {"status": {"state": "Closed"}}, subresource="status")
            await world.submit(job("j", task("main"), queue="night"))
            (group,) = (await world.groups()).values()
            assert (group["spec"]["queue"], await world.phase("j"), await world.pods()) == ("night", "Pending", {})

    run_virtually(story())


@pytest.mark.parametrize("there", [True, False], ids=["closed", "deleted"])
def test_a_job_that_restarts_in_a_queue_that_takes_no_groups_waits_until_it_does(there: bool) -> None:
    async def story() -> None:
        async with job_world() as world:
            queue = {"metadata": {"name": "night"}, "spec": {"weight": 1}}
            await world.hands.create(volcano.QUEUES, queue)
            await world.submit(job("j", task("main"), queue="night", policies=[on("PodEvicted", "RestartJob")]))
            await world.start()
            if there:
                await world.hands.patch(volcano.QUEUES, "night", {"status": {"state": "Closed"}}, subresource="status")
            else:
                await world.hands.delete(volcano.QUEUES, "night")
            refusal = ApiError(403, "Forbidden", "can only submit PodGroup to queue with state `Open`")
            world.cluster.fault = lambda verb, path: refusal if verb == "POST" and path.endswith("podgroups") else None
            await world.remove("j-main-0")
            await world.rest(1800)
            assert await world.phase("j") == "Pending"
            assert len(await world.events("PodGroupError")) == 1
            world.cluster.fault = lambda verb, path: None
            if there:
                await world.hands.patch(volcano.QUEUES, "night", {"status": {"state": "Open"}}, subresource="status")
            else:
                await world.hands.create(volcano.QUEUES, queue)
            await world.rest(0.5)
            assert len(await world.groups()) == 1, "it waits for no pause"

    run_virtually(story())


def test_a_pod_that_fails_before_its_jobs_first_status_is_written_is_answered_after_a_kill_too() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.hands.create(volcano.JOBS, job("j", task("main"), policies=[on("PodFailed", "RestartJob")]), "default")
            await world.rest(0.1)
            await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
            await world.rest(0.1)
            await world.kill()
            assert await world.status("j") == {"state": {"phase": "Pending"}}, "as the definition says"
            await world.report("j-main-0", "Failed", state={"terminated": {"exitCode": 1}})
            await world.up()
            await world.rest()
            assert (await world.status("j"))["retryCount"] == 1

    run_virtually(story())


def test_an_answer_that_is_lost_after_the_watch_told_of_the_write_takes_nothing_back() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main"), policies=[on("TaskCompleted", "CompleteJob")]))
            await world.start()

            async def late(verb: str, path: str, *, send: Any = world.cluster.request, **more: Any) -> bytes:
                answer: bytes = await send(verb, path, **more)
                if verb == "PATCH" and path.endswith("/jobs/j/status"):
                    await world.clock.sleep(0.1)
                    del world.cluster.request
                    raise ApiError(0, "Timeout", "no answer")
                return answer

            world.cluster.request = late
            await world.report("j-main-0", "Succeeded", state={"terminated": {"exitCode": 0}})
            await world.rest()
            assert [each["status"] for each in (await world.status("j"))["conditions"]].count("Completing") == 1
            assert await world.phase("j") == "Completed"

    run_virtually(story())


def test_a_pod_that_bears_the_label_of_a_job_and_is_of_none_gets_a_group_of_its_own() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main")))
            copied = {"metadata": {"name": "copy", "labels": {"volcano.sh/job-name": "j"}},
                      "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
            await world.hands.create(kinds.PODS, copied, "default")
            await world.start()
            found = (await world.pods())["copy"]
            assert found["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == f"podgroup-{found['metadata']['uid']}"
            assert (await world.status("j"))["running"] == 1, "the Job counts its own pod alone"

    run_virtually(story())


def test_a_command_for_a_job_that_is_gone_says_so_and_goes() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main")))
            target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "that-of-another"}
            for name, about in (("gone", {**target, "name": "nobody"}), ("other", target)):
                body = {"metadata": {"name": name}, "action": "AbortJob", "target": about}
                await world.hands.create(volcano.COMMANDS, body, "default")
            await world.rest()
            assert sorted(await world.events("CommandRefused")) == [
                "job j is another one than the Command is for", "job nobody does not exist"]  # fmt: skip
            assert (await world.hands.list(volcano.COMMANDS))["items"] == []
            assert await world.phase("j") == "Pending"

    run_virtually(story())


def test_a_watch_that_lags_behind_takes_no_restart_back_that_is_being_written() -> None:
    """It tells of the counts that were written just before."""

    async def story() -> None:
        async with job_world() as world:
            cluster, late = world.cluster, world.clock.monotonic() + 3
            stream, request = cluster.stream, cluster.request

            async def lagging(path: str, params: Any, *, idle: float) -> Any:
                if path.endswith("/jobs") and world.clock.monotonic() < late:
                    raise ApiError(0, "Unreachable", "nobody answers")
                return await stream(path, params, idle=idle)

            async def slow(verb: str, path: str, **options: Any) -> bytes:
                if verb == "PATCH" and b"Restarting" in (options["body"] or b""):
                    await world.clock.sleep(6)
                return await request(verb, path, **options)

            body = job("j", task("main"), policies=[on("PodFailed", "RestartJob")])
            await world.hands.create(volcano.JOBS, body, "default")
            await world.rest(0.5)
            await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
            await world.rest(0.5)
            cluster.stream, cluster.request = lagging, slow
            cluster.hang_up(forget=False, seconds=0)
            await world.until(pending_is_counted(world))
            await world.report("j-main-0", "Failed", state={"terminated": {"exitCode": 1}})
            await world.rest(20)
            status = await world.status("j")
            assert [each["status"] for each in status["conditions"]] == ["Pending", "Restarting", "Pending"]
            assert status["retryCount"] == 1

    run_virtually(story())


def pending_is_counted(world: JobWorld) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await world.status("j")).get("pending") == 1

    return holds


@pytest.mark.parametrize("what", ["pod", "group"])
def test_what_was_made_and_went_while_no_watch_was_heard_is_made_again(what: str) -> None:
    """The versions in between are forgotten: the list that comes then says nothing of it."""

    async def story() -> None:
        async with job_world() as world:
            kind, plural = (kinds.PODS, "/pods") if what == "pod" else (volcano.POD_GROUPS, "/podgroups")

            def deafen(verb: str, path: str) -> None:
                if verb == "POST" and path.endswith(plural):
                    world.cluster.hang_up(forget=False, seconds=5)

            world.cluster.fault = deafen
            await world.submit(job("j", task("main")))
            if what == "pod":
                await world.admit()
            (made,) = (await world.hands.list(kind, "default"))["items"]
            await world.hands.delete(kind, made["metadata"]["name"], "default", **{"grace": 0} if what == "pod" else {})
            world.cluster.fault = lambda verb, path: None
            world.cluster.hang_up(forget=True, seconds=1)
            await world.rest(20)
            await world.start()
            assert await world.phase("j") == "Running"

    run_virtually(story())


def test_a_conflict_takes_the_first_phase_of_a_job_from_nobody() -> None:
    """Our definition of Jobs alone says it; something was written without it, and then somebody was faster."""

    async def story() -> None:
        async with job_world() as world:
            left = [1]

            def conflict(verb: str, path: str) -> ApiError | None:
                if verb != "PATCH" or not path.endswith("/status") or not left[0]:
                    return None
                left[0] -= 1
                return ApiError(409, "Conflict", "the object has been modified")

            await world.submit(job("j", task("main")))
            assert (await world.status("j"))["minAvailable"] == 1
            world.cluster.fault = conflict
            await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
            await world.rest(0.3)
            await world.run("j-main-0")
            await world.rest()
            assert left == [0]
            assert [each["status"] for each in (await world.status("j"))["conditions"]] == ["Pending", "Running"]

    run_virtually(story())
