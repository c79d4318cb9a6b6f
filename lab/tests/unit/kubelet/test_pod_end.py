"""How a pod ends on a node, in virtual time: deadline, deletion, the kill."""

from __future__ import annotations

from lab.tests.unit.kubelet.world import OnNode, World

from pumice.wire.kinds import PODS


def heeds_only_the_kill(here: World) -> list[tuple[int, float]]:
    """From now on containers end by SIGKILL only; the signals that come, and when."""
    signals: list[tuple[int, float]] = []

    async def signal(ident: str, number: int) -> None:
        signals.append((int(number), here.clock.monotonic()))
        if number == 9:
            here.runtime.end(ident, 137, 9)

    here.runtime.signal = signal  # type: ignore[method-assign]
    return signals


def test_a_pod_past_its_active_deadline_fails(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", activeDeadlineSeconds=30)
        await here.settle(29)
        assert (await here.status("p"))["phase"] == "Running"
        await here.settle(2)
        status = await here.status("p")
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
        assert not here.runtime.running()

    on_node(work)


def test_a_deleted_pod_gets_its_grace_period_and_then_the_kill(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        signals = heeds_only_the_kill(here)
        await here.pod("p", terminationGracePeriodSeconds=20)
        await here.settle()
        await here.kube.delete(PODS, "p", "default")
        await here.settle(10)
        assert await here.exists("p")
        await here.settle(11)
        assert not await here.exists("p")
        assert [number for number, _ in signals] == [15, 9]
        assert 19.5 < signals[1][1] - signals[0][1] < 20.5
        assert "Killing" in await here.reasons("p")

    on_node(work)


def test_a_second_deletion_with_a_shorter_grace_period_is_heard(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        heeds_only_the_kill(here)
        await here.pod("p", terminationGracePeriodSeconds=600)
        await here.settle()
        await here.kube.delete(PODS, "p", "default")
        await here.settle(5)
        await here.kube.delete(PODS, "p", "default", grace=3)
        await here.settle(5)
        assert not await here.exists("p")

    on_node(work)


def test_a_forced_deletion_kills_at_once(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p")
        await here.settle()
        await here.kube.delete(PODS, "p", "default", grace=0)
        await here.settle(0.2)
        assert not here.runtime.running()
        assert not here.simulator.workers

    on_node(work)


def test_a_pod_of_the_same_name_starts_anew(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p")
        await here.settle()
        await here.kube.delete(PODS, "p", "default", grace=0)
        await here.pod("p")
        await here.settle()
        assert (await here.status("p"))["phase"] == "Running"
        assert len(here.runtime.running()) == 1

    on_node(work)
