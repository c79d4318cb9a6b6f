"""A daemon listens where it was told to, or ends with the reason; told no address, a pod keeps to its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

import pytest
from kit.faulty_cluster import faulty_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler import daemon as scheduler
from pumice.apps.service.http import host_and_port, served
from pumice.cli.daemon import bind_address
from pumice.model.errors import BadInput
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab.kubelet.command import base_environment
from pumice_lab.kubelet.settings import KubeletSettings


@contextlib.contextmanager
def taken_port() -> object:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield int(holder.getsockname()[1])


def test_a_port_that_is_taken_is_not_replaced_by_another_in_silence() -> None:
    async def story(port: int) -> None:
        with pytest.raises(BadInput, match=f"scheduler: cannot listen on 127.0.0.1:{port}: the port is in use; name another"):
            async with served({}, "127.0.0.1", port, "scheduler"):
                pass

    with taken_port() as port:
        asyncio.run(story(port))


@pytest.mark.parametrize("daemon", [scheduler, controller])
def test_a_daemon_whose_port_is_taken_ends_with_the_reason(daemon: object) -> None:
    async def story(port: int) -> None:
        clock = VirtualClock()
        settings = daemon.Settings(listen=f"127.0.0.1:{port}")
        cluster, stop = await faulty_cluster(clock), asyncio.Event()
        with pytest.raises(BadInput, match="the port is in use"):
            await daemon.run(settings, cluster=cluster, clock=clock, rng=random.Random(1), stop=stop)

    with taken_port() as port:
        run_virtually(story(port))


def test_without_an_address_it_is_everywhere_or_the_pods_own(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    assert host_and_port(":8080") == bind_address(":8080", "--x") == ("0.0.0.0", 8080)
    monkeypatch.setenv("PUMICE_BIND_ADDRESS", "127.9.9.9")
    assert host_and_port(":8080") == bind_address(":8080", "--x") == ("127.9.9.9", 8080)
    assert host_and_port("127.0.0.1:8080") == ("127.0.0.1", 8080)


@pytest.mark.parametrize(("image", "address"), [("pumice/pumice:0.1.0", "127.7.7.7"), ("busybox", None)])
def test_the_twin_tells_pods_of_our_own_image_their_address(image: str, address: str | None, tmp_path: object) -> None:
    settings = KubeletSettings(node="n1", directory=tmp_path, data_dir=tmp_path)
    pod = {"metadata": {"name": "a"}, "spec": {}}
    found = base_environment(settings, pod, {"image": image}, "127.7.7.7")
    assert found.get("PUMICE_BIND_ADDRESS") == address
    assert "KUBECONFIG" not in found  # it has the rights of its service account, as everybody has
