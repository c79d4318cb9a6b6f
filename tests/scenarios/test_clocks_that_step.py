"""A clock that is set, by hours and either way, delays and hastens nothing: what waits, waits by a clock that is never set."""

from __future__ import annotations

import pytest
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import EPOCH, run_virtually

from pumice.ports.cluster import ApiError
from pumice.scheduler.engine import Engine
from pumice.wire.node_lock import HELD_FOR, LockView, may_take, render_lock
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.times import stamp
from pumice.wire.volcano import PodGroup, Queue

HOUR = 3600.0
STEPS = [-HOUR, HOUR]


@pytest.mark.parametrize("step", STEPS)
def test_a_refused_binding_is_repeated_in_a_moment_though_the_clock_is_set(step: float) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            tries: list[float] = []

            def fault(verb: str, path: str) -> ApiError | None:
                if not path.endswith("/binding"):
                    return None
                tries.append(running.clock.monotonic())
                return ApiError(500, "InternalError", "not now") if len(tries) < 6 else None

            running.cluster.fault = fault
            await create(running.cluster, pod("a", mib=8000))
            await running.clock.sleep(0.05)
            running.clock.offset = step
            await running.bind_all("a")
            assert tries[-1] - tries[0] == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6, rel=0.3)

    run_virtually(story())


@pytest.mark.parametrize("step", STEPS)
def test_an_owned_pod_waits_a_second_for_its_group_though_the_clock_is_set(step: float) -> None:
    async def story() -> None:
        async with daemon(node("n1")) as running:
            await create(running.cluster, pod("a", cpu="1", owner="job"))
            await running.clock.sleep(0.2)
            running.clock.offset = step
            await running.clock.sleep(0.2)
            assert not await running.bound("a")
            await running.clock.sleep(1)
            assert await running.bound("a")

    run_virtually(story())


@pytest.mark.parametrize("step", STEPS)
def test_who_waits_for_its_queue_is_looked_at_again_within_a_minute_though_the_clock_is_set(step: float) -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="8")) as running:
            engine = running.scheduler.engine
            await create(running.cluster, pod("a", cpu="1", queue="nobody's"))
            await running.clock.sleep(1)
            running.clock.offset = step
            wake = engine.next_wake()
            assert wake is None or wake - running.clock.monotonic() <= 60

    run_virtually(story())


@pytest.mark.parametrize("created", [EPOCH - HOUR, EPOCH, EPOCH + HOUR], ids=["an hour ago", "now", "in an hour"])
@pytest.mark.parametrize("step", STEPS)
def test_the_limit_of_sla_is_reckoned_from_the_date_of_the_job_once_and_no_setting_of_the_clock_moves_it(
    step: float, created: float
) -> None:
    engine = Engine(parse_scheduler_conf(conf("sla", "predicates")))
    state = engine.state
    state.groups.put_queue(convert(Queue, queue("default")))
    state.bookings.put_node(convert(Node, node("n1", cpu="1")))
    wanted = group("g", minimum=1)
    wanted["metadata"] |= {"annotations": {"sla-waiting-time": "2h"}, "creationTimestamp": stamp(created)}
    state.groups.put_group(convert(PodGroup, wanted))
    state.pods.put(convert(Pod, pod("a", cpu="4", group="g")), 0.0)
    engine.cycle(0.0, wall=EPOCH)
    job = state.jobs["default/g"]
    sla = next(plugin for plugin in engine.framework.plugins if plugin.name == "sla")
    due = sla.job_due(job)
    assert due == (HOUR if created < EPOCH else 2 * HOUR)  # a date in the future is a clock that differs from ours
    state.scheduling_queue.activate(job)
    engine.cycle(60.0, wall=EPOCH + 60.0 + step)
    assert sla.job_due(job) == due


def test_a_node_lock_that_nobody_touches_for_five_minutes_is_free_whatever_the_clocks_say() -> None:
    view = LockView(render_lock(EPOCH + HOUR), seen_since=100.0)  # its writer's clock is an hour ahead
    assert not may_take(view, EPOCH, 100.0 + HELD_FOR - 1)
    assert may_take(view, EPOCH, 100.0 + HELD_FOR + 1)
