"""CronJobs and JobFlows: Jobs that are made by schedules, and one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kit.job_world import JobWorld, job, job_world, task
from kit.virtual_time import EPOCH, run_virtually

from pumice.wire import kinds, volcano
from pumice.wire.batch import CRON_JOBS, JOB_TEMPLATES
from pumice.wire.cron import parse_schedule

ONE = {"tasks": [task("main", 1)]}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("schedule", "after", "found"), [
    ("*/15 * * * *", "2026-01-01 10:07", "2026-01-01 10:15"), ("0 3 * * mon-fri", "2026-01-02 03:00", "2026-01-05 03:00"),
    ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"), ("@hourly", "2026-01-01 23:59", "2026-01-02 00:00"),
    ("30 4 1,15 * 5", "2026-01-02 05:00", "2026-01-09 04:30"), ("0 12 * jan,jul *", "2026-02-01 00:00", "2026-07-01 12:00"),
    ("5-10/5 1 * * 7", "2026-01-01 00:00", "2026-01-04 01:05"),
])  # fmt: skip
def test_a_schedule_comes_next_when_cron_says(schedule: str, after: str, found: str) -> None:
    assert parse_schedule(schedule).after(at(after)) == at(found)


def test_a_cron_job_of_every_so_many_seconds_makes_one_job_each_time() -> None:
    async def story() -> None:
        async with job_world() as world:
            await cron(world, "often", schedule="@every 20s")
            await world.rest(62)
            assert len(await jobs(world)) == 3

    run_virtually(story())


def test_a_schedule_goes_by_its_time_zone() -> None:
    assert parse_schedule("0 3 * * *", "Asia/Shanghai").after(at("2026-01-01 00:00")) == at("2026-01-01 19:00")


@pytest.mark.parametrize("wrong", ["", "* * * *", "61 * * * *", "* * * * noday", "*/0 * * * *", "5-1 * * * *", "a b c d e"])
def test_a_schedule_that_is_none_says_so(wrong: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        parse_schedule(wrong)


async def cron(world: JobWorld, name: str, **spec: Any) -> None:
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": ONE}, **spec}}
    await world.hands.create(CRON_JOBS, body, "default")


async def jobs(world: JobWorld) -> list[str]:
    return sorted(each["metadata"]["name"] for each in (await world.hands.list(volcano.JOBS, "default"))["items"])


async def finish(world: JobWorld, name: str, code: int = 0) -> None:
    await world.start()
    await world.end(f"{name}-main-0", code=code)


def test_a_cron_job_makes_a_job_at_each_of_its_times_and_keeps_the_last_ones() -> None:
    async def story() -> None:
        async with job_world() as world:
            await cron(world, "tick", successfulJobsHistoryLimit=2)
            made = []
            for turn in range(1, 5):
                await world.rest(EPOCH + turn * 300 + 1 - world.clock.now())
                made.append(f"tick-{int(EPOCH + turn * 300) // 60}")
                assert made[-1] in await jobs(world)
                await finish(world, made[-1])
            assert await jobs(world) == made[-2:]
            status = (await world.hands.get(CRON_JOBS, "tick", "default"))["status"]
            assert (status["active"], status["lastScheduleTime"]) == ([], "2027-01-15T08:20:00Z")
            assert (await world.job(made[-1]))["metadata"]["labels"] == {"a": "b"}
            assert "Created job " + made[0] in await world.events("SuccessfulCreate")

    run_virtually(story())


@pytest.mark.parametrize(("policy", "count", "first_stays"), [("Allow", 2, True), ("Forbid", 1, True), ("Replace", 1, False)])
def test_a_run_that_lasts_is_joined_waited_for_or_replaced(policy: str, count: int, first_stays: bool) -> None:
    async def story() -> None:
        async with job_world() as world:
            await cron(world, "tick", concurrencyPolicy=policy)
            await world.rest(302)
            (first,) = await jobs(world)
            await world.rest(300)
            assert (len(await jobs(world)), first in await jobs(world)) == (count, first_stays)

    run_virtually(story())


def test_the_status_that_says_a_time_names_its_job_as_active() -> None:
    """Whoever sees the Job and asks how many are active is told one, also while the one before is being replaced."""
    seen: list[tuple[str, int]] = []

    async def story() -> None:
        async with job_world() as world:
            await cron(world, "tick", concurrencyPolicy="Replace")

            async def look() -> None:
                async for event in world.hands.watch(CRON_JOBS, "default"):
                    status = json.loads(event.raw or "{}").get("status") or {}
                    seen.append((status.get("lastScheduleTime", ""), len(status.get("active", ()))))

            looking = asyncio.create_task(look())
            await world.rest(302)
            await world.rest(300)
            looking.cancel()

    run_virtually(story())
    assert {time for time, _ in seen if time} == {"2027-01-15T08:05:00Z", "2027-01-15T08:10:00Z"}
    assert {count for time, count in seen if time} == {1}


@pytest.mark.parametrize(("zone", "said"), [
    ({}, "2027-01-15T08:05:00Z"), ({"timeZone": "Asia/Tokyo"}, "2027-01-15T17:05:00+09:00")])  # fmt: skip
def test_a_job_of_a_schedule_says_its_time_in_the_schedules_zone(zone: dict[str, str], said: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await cron(world, "tick", **zone)
            await world.rest(302)
            (made,) = await jobs(world)
            assert (await world.job(made))["metadata"]["annotations"]["volcano.sh/cronjob-scheduled-timestamp"] == said

    run_virtually(story())


def test_what_was_missed_is_made_up_for_once_and_not_after_its_deadline() -> None:
    async def story() -> None:
        async with job_world() as world:
            await cron(world, "late", startingDeadlineSeconds=60)
            await cron(world, "patient")
            await cron(world, "asleep", suspend=True)
            await cron(world, "wrong", schedule="every night")
            await world.rest()
            await world.kill()
            await world.rest(3 * 3600 + 100)
            await world.up()
            await world.rest()
            assert [name.partition("-")[0] for name in await jobs(world)] == ["patient"]
            assert len(await world.events("MissSchedule")) == 1
            assert await world.events("UnParseableCronJobSchedule") == [
                "schedule 'every night' has 2 fields; write five, for example 0 3 * * *"]  # fmt: skip

    run_virtually(story())


async def flow(world: JobWorld, *steps: Any, **spec: Any) -> None:
    for step in {each["name"] for each in steps} - {"later"}:
        await world.hands.create(JOB_TEMPLATES, {"metadata": {"name": step}, "spec": ONE}, "default")
    await world.hands.create(volcano.JOB_FLOWS, {"metadata": {"name": "f"}, "spec": {"flows": list(steps), **spec}}, "default")
    await world.rest()


async def flow_phase(world: JobWorld) -> str:
    return str((await world.hands.get(volcano.JOB_FLOWS, "f", "default"))["status"]["state"]["phase"])


def test_a_flow_makes_its_jobs_in_their_order() -> None:
    async def story() -> None:
        async with job_world() as world:
            await flow(world, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}},
                       {"name": "c", "dependsOn": {"targetsWithStatus": [{"name": "a", "phase": "Running"}]}})  # fmt: skip
            assert (await jobs(world), await flow_phase(world)) == (["f-a"], "Pending")
            await world.start()
            assert (await jobs(world), await flow_phase(world)) == (["f-a", "f-c"], "Running")
            await finish(world, "f-a")
            assert await jobs(world) == ["f-a", "f-b", "f-c"]
            await finish(world, "f-b")
            await finish(world, "f-c")
            assert await flow_phase(world) == "Succeed"
            assert (await world.job("f-a"))["metadata"]["labels"] == {
                "volcano.sh/createdByJobTemplate": "default.a", "volcano.sh/createdByJobFlow": "default.f"}  # fmt: skip

    run_virtually(story())


def test_steps_of_one_name_are_one_job_and_its_end_ends_the_flow() -> None:
    async def story() -> None:
        async with job_world() as world:
            await flow(world, {"name": "a"}, {"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "b"})
            assert await jobs(world) == ["f-a", "f-b"]
            await finish(world, "f-a")
            await finish(world, "f-b")
            assert await flow_phase(world) == "Succeed"

    run_virtually(story())


def test_a_flow_is_left_alone_until_its_first_job_is_there() -> None:
    """Whoever makes one and changes it at once meets no conflict (Volcano's syncJobFlow writes no status before)."""

    async def story() -> None:
        async with job_world() as world:
            await flow(world, {"name": "later"})
            assert "status" not in await world.hands.get(volcano.JOB_FLOWS, "f", "default")

    run_virtually(story())


@pytest.mark.parametrize("field", ["jobSpec", "spec"])
def test_a_step_changes_what_it_makes_of_its_template(field: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            patch = {field: {"queue": "default", "tasks": [{"replicas": 2}]}}
            await flow(world, {"name": "a", "patch": patch}, {"name": "b"})
            made = {name: (await world.job(name))["spec"]["tasks"] for name in await jobs(world)}
            assert {name: [(each["name"], each["replicas"]) for each in tasks] for name, tasks in made.items()} == {
                "f-a": [("main", 2)], "f-b": [("main", 1)]}  # fmt: skip

    run_virtually(story())


def test_a_step_may_wait_for_one_of_its_targets() -> None:
    async def story() -> None:
        async with job_world() as world:
            both = ["a", "b"]
            await flow(world, {"name": "a"}, {"name": "b"}, {"name": "one", "dependsOn": {"targets": both, "strategy": "any"}},
                       {"name": "two", "dependsOn": {"targets": both, "strategy": "all"}})  # fmt: skip
            await world.start()
            assert await jobs(world) == ["f-a", "f-b"]
            await finish(world, "f-a")
            assert await jobs(world) == ["f-a", "f-b", "f-one"]
            await finish(world, "f-b")
            assert await jobs(world) == ["f-a", "f-b", "f-one", "f-two"]

    run_virtually(story())


def test_a_flow_deletes_its_jobs_where_it_should_and_fails_with_one_of_them() -> None:
    async def story(code: int) -> None:
        async with job_world() as world:
            await flow(world, {"name": "a"}, jobRetainPolicy="delete")
            await finish(world, "f-a", code)
            assert (await flow_phase(world), await jobs(world)) == (("Failed", ["f-a"]) if code else ("Succeed", []))

    for code in (0, 1):
        run_virtually(story(code))


@pytest.mark.parametrize(("steps", "reason"), [
    ([{"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "b", "dependsOn": {"targets": ["a"]}}], "InvalidJobFlow"),
    ([{"name": "a", "dependsOn": {"targets": ["nobody"]}}], "InvalidJobFlow"), ([{"name": "later"}], "JobTemplateNotFound"),
    ([{"name": "a", "dependsOn": {"probe": {"tcpSocketList": [{"port": 80}]}}}], "InvalidJobFlow"),
    ([{"name": "a", "patch": {"jobSpec": {"tasks": ["none"]}}}], "InvalidJobFlow"),
    ([{"name": "b"}, {"name": "later", "dependsOn": {"targets": ["b"], "strategy": "some"}}], "InvalidJobFlow"),
])  # fmt: skip
def test_a_flow_that_cannot_go_on_says_why_and_makes_nothing(steps: Any, reason: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await flow(world, *steps)
            assert (await jobs(world), len(await world.events(reason))) == ([], 1)

    run_virtually(story())


@contextlib.asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(port, what was asked there)."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()


async def address(world: JobWorld, pod: str) -> None:
    await world.hands.patch(kinds.PODS, pod, {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}, "default",
                            subresource="status")  # fmt: skip


def test_a_step_starts_when_a_pod_of_its_target_answers() -> None:
    async def story() -> None:
        async with job_world() as world, listening(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, heard):
            place = {"taskName": "main", "port": port}
            checks = {"httpGetList": [{**place, "path": "/ready", "httpHeader": {"name": "X-A", "value": "b"}}],
                      "tcpSocketList": [place]}  # fmt: skip
            await flow(world, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": checks}})
            assert await world.events("ProbeUnanswered") == [
                "b waits for its probes: no pod of task main runs; no pod of task main runs"]  # fmt: skip
            await world.start()
            assert await jobs(world) == ["f-a"], "its pod has no address yet"
            await address(world, "f-a-main-0")
            await world.until(lambda: has(world, "f-b"))
            requested = next(each for each in heard if each)
            assert requested.startswith(b"GET /ready HTTP/1.1\r\n")
            assert b"X-A: b" in requested

    run_virtually(story())


async def has(world: JobWorld, name: str) -> bool:
    return name in await jobs(world)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", b"no HTTP at all\r\n\r\n"])
def test_a_step_waits_while_the_answer_is_none(answer: bytes) -> None:
    async def story() -> None:
        async with job_world() as world, listening(answer) as (port, heard):
            probe = {"httpGetList": [{"taskName": "main", "port": port, "path": "ready"}]}
            await flow(world, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}})
            await world.start()
            await address(world, "f-a-main-0")
            await world.rest(20)
            assert len(heard) >= 3, "it is asked again"
            assert await jobs(world) == ["f-a"]

    run_virtually(story())


def test_a_task_in_its_phase_lets_a_step_start_before_its_target_is_through() -> None:
    async def story() -> None:
        async with job_world() as world:
            probe = {"taskStatusList": [{"taskName": "main", "phase": "Running"}]}
            await flow(world, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}})
            assert await jobs(world) == ["f-a"]
            await world.start()
            assert await jobs(world) == ["f-a", "f-b"]

    run_virtually(story())


def test_pods_that_never_answer_hold_no_job_up() -> None:
    async def story() -> None:
        async with job_world() as world, silent() as port:
            await flow(world, {"name": "a"}, *(
                {"name": f"b{number}", "dependsOn": {"targets": ["a"], "probe": {
                    "httpGetList": [{"taskName": "main", "port": port, "path": "/"}]}}} for number in range(20)))  # fmt: skip
            await world.start()
            await address(world, "f-a-main-0")
            await world.rest(20)
            await world.hands.create(volcano.JOBS, job("j", task("main")), "default")
            await world.rest(0.4)
            assert [name for name in await world.groups() if name.startswith("j-")], "it was looked after at once"

    run_virtually(story())


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_a_template_names_the_jobs_that_were_made_of_it() -> None:
    async def made_of(world: JobWorld, name: str) -> list[str]:
        found = await world.hands.get(JOB_TEMPLATES, name, "default")
        return list((found.get("status") or {}).get("jobDependsOnList") or [])

    async def story() -> None:
        async with job_world() as world:
            await flow(world, {"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}})
            assert (await made_of(world, "a"), await made_of(world, "b")) == (["f-a"], [])
            await world.kill()
            await world.hands.delete(volcano.JOB_FLOWS, "f", "default")
            await world.hands.delete(volcano.JOBS, "f-a", "default")
            await world.up()
            await world.rest()
            assert (await made_of(world, "a"), await made_of(world, "b")) == ([], [])
            sent = {**world.cluster.requests, "GET": 0}
            await world.rest(300)
            assert {**world.cluster.requests, "GET": 0} == sent, "it comes to rest"

    run_virtually(story())
