"""Logs and exec with real containers, through the embedded API server's tunnel, as kubectl asks."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import aiohttp
import pytest
from kit.real_node import V5, Cases, Cluster, outcome

from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.simulator import KubeletSimulator


def test_logs_are_the_containers_output(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2", restartPolicy="Never")
        await cluster.until("p", "Succeeded")
        assert sorted((await cluster.log("p")).splitlines()) == [*(f"line {i}" for i in range(1, 6)), "oops"]
        assert len((await cluster.log("p", tailLines=2)).splitlines()) == 2
        assert len(await cluster.log("p", limitBytes=7)) == 7
        stamped = await cluster.log("p", timestamps="true", tailLines=1)
        assert stamped.split(" ", 1)[0].endswith("Z")
        assert await cluster.log("p", sinceTime="2099-01-01T00:00:00Z") == ""

    on_cluster(work)


def test_followed_logs_arrive_as_they_are_written_and_end_with_the_container(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "echo first; read line < /tmp/never-there || sleep 0.4; echo last", restartPolicy="Never")
        await cluster.until("p", "Running", "Succeeded")
        async with asyncio.timeout(60):
            assert (await cluster.log("p", follow="true")).splitlines()[-1] == "last"

    on_cluster(work)


def test_the_previous_runs_log_is_kept(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        script = "test -e /data/again && { echo second; sleep 60; }; echo first; touch /data/again; exit 1"
        container = {"name": "c", "image": "i", "command": ["sh", "-c", script],
                     "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
        await cluster.pod("p", "", containers=[container], volumes=[{"name": "v", "emptyDir": {}}])
        async with asyncio.timeout(60):
            while "second" not in await _log_or_nothing(cluster, "p"):
                await asyncio.sleep(0.05)
        assert await cluster.log("p", previous="true") == "first\n"

    on_cluster(work)


async def _log_or_nothing(cluster: Cluster, name: str) -> str:
    try:
        return await cluster.log(name)
    except ApiError:
        return ""


def test_logs_of_a_container_that_has_not_started_are_refused(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "true", volumes=[{"name": "v", "configMap": {"name": "missing"}}])
        async with asyncio.timeout(60):
            while not (await cluster.until("p", "Pending"))["status"].get("startTime"):  # the kubelet has taken it in
                await asyncio.sleep(0.05)
        with pytest.raises(ApiError, match='container "c" in pod "p" is waiting to start') as refused:
            await cluster.log("p")
        assert refused.value.code == 400
        with pytest.raises(ApiError, match="previous terminated container"):
            await cluster.log("p", previous="true")

    on_cluster(work)


@pytest.mark.parametrize("protocol", [V5, "v4.channel.k8s.io"])
def test_exec_tells_output_and_exit_code(on_cluster: Cases, protocol: str) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60")
        await cluster.until("p", "Running")
        out, err, status = await cluster.run("p", "sh", "-c", "echo out; echo err >&2; exit 3", protocol=protocol)
        assert (out, err) == (b"out\n", b"err\n")
        assert status["reason"] == "NonZeroExitCode"
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
        assert (await cluster.run("p", "true", protocol=protocol))[2] == {"metadata": {}, "status": "Success"}

    on_cluster(work)


def test_exec_closes_stdin_when_the_client_says_so(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60")
        await cluster.until("p", "Running")
        async with cluster.exec("p", "sort", stdin="true") as socket:
            await socket.send_bytes(b"\x00b\n")
            await socket.send_bytes(b"\x00a\n")
            await socket.send_bytes(b"\xff\x00")
            assert (await outcome(socket))[0] == b"a\nb\n"

    on_cluster(work)


def test_exec_with_a_terminal_follows_the_windows_size(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60")
        await cluster.until("p", "Running")
        async with cluster.exec("p", "sh", "-c", "read go; stty size", stdin="true", tty="true", stderr="false") as socket:
            await socket.send_bytes(b"\x04" + json.dumps({"Width": 99, "Height": 33}).encode())
            await socket.send_bytes(b"\x00go\n")
            assert b"33 99" in (await outcome(socket))[0]

    on_cluster(work)


def test_an_exec_whose_client_goes_away_is_killed(on_cluster: Cases, tmp_path: Path) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60", volumes=[{"name": "v", "emptyDir": {}}])
        pod = await cluster.until("p", "Running")
        async with cluster.exec("p", "sh", "-c", "echo $$; exec sleep 61") as socket:
            pid = int((await socket.receive(timeout=60)).data[1:])
        assert pod
        async with asyncio.timeout(60):
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.02)

    on_cluster(work)


def test_attach_reaches_stdin_and_terminal_of_the_container_itself(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        def container(script: str, **more: bool) -> Json:
            return {"name": "c", "image": "i", "command": ["sh", "-c", script], **more}

        await cluster.pod("plain", "", containers=[container("cat; echo done", stdin=True)], restartPolicy="Never")
        await cluster.until("plain", "Running")
        async with cluster.exec("plain", subresource="attach", stdin="true") as socket:
            await socket.send_bytes(b"\x00hello\n")
            await socket.send_bytes(b"\xff\x00")
            out, _, status = await outcome(socket)
        assert (out, status["status"]) == (b"hello\ndone\n", "Success")
        await cluster.until("plain", "Succeeded")
        script = "read line; stty size; echo got $line"
        await cluster.pod("term", "", containers=[container(script, stdin=True, tty=True)], restartPolicy="Never")
        await cluster.until("term", "Running")
        async with cluster.exec("term", subresource="attach", stdin="true", tty="true", stderr="false") as socket:
            await socket.send_bytes(b"\x04" + json.dumps({"Width": 77, "Height": 22}).encode())
            await socket.send_bytes(b"\x00typed\n")
            out = (await outcome(socket))[0]
        assert b"22 77" in out
        assert b"got typed" in out
        await cluster.until("term", "Succeeded")
        assert "got typed" in await cluster.log("term")

    on_cluster(work)


def test_a_command_that_is_not_there_fails_the_exec(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60")
        await cluster.until("p", "Running")
        status = (await cluster.run("p", "no-such-program"))[2]
        assert status["status"] == "Failure"
        assert "executable file not found in $PATH" in status["message"]

    on_cluster(work)


def test_a_pod_is_running_within_a_quarter_of_a_second_of_its_creation(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        loop, times = asyncio.get_running_loop(), []
        for number in range(5):
            began = loop.time()
            await cluster.pod(f"p{number}", "sleep 60")
            await cluster.until(f"p{number}", "Running")
            times.append(loop.time() - began)
        assert sorted(times)[2] < 0.25  # 10 to 16 ms on two quiet cores

    on_cluster(work)


def test_the_server_lets_only_its_token_in(tmp_path: Path) -> None:
    from kit.direct_cluster import memory_cluster

    from pumice_lab.kubelet.run import HollowRuntime
    from pumice_lab.kubelet.server import NodeServer

    async def main() -> None:
        clock = SystemClock()
        settings = KubeletSettings("n1", tmp_path / "n1", tmp_path, server_token="secret")
        cluster = await memory_cluster(clock)
        server = NodeServer(KubeletSimulator(settings, cluster, clock, random.Random(0), HollowRuntime(clock)))
        port = await server.start()
        async with aiohttp.ClientSession() as session:
            for token, expected in (("", 401), ("wrong", 401), ("secret", 200)):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(f"http://127.0.0.1:{port}/pods", headers=headers) as answer:
                    assert answer.status == expected
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
        await server.stop()

    asyncio.run(main())
