"""Pods behind the router: each has all ports to itself, and nothing is left on the machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pumice_lab.network.router import Router, free_network
from pumice_lab.runtime.rootfs import CLONE_NEWNET, setns

INTERFACE = f"pumice-t{os.getpid() % 1_000_000}"
PORT = 5000
Work = Callable[[Router], None]


@pytest.fixture
def in_router() -> Callable[[Work], None]:
    """Run something in the thread of a router of its own."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")

    def run(work: Work) -> None:
        def whole() -> str:
            network = free_network(os.getpid() % 32, Path("/proc/net/route").read_text())
            assert network is not None
            try:
                router = Router(network, INTERFACE)
            except OSError as error:
                return f"this machine makes no network namespaces: {error}"
            try:
                work(router)
            finally:
                router.close()
            return ""

        with ThreadPoolExecutor(1) as thread:
            if why := thread.submit(whole).result():
                pytest.skip(why)

    return run


def _inside(router: Router, namespace: int, work: Callable[[], socket.socket]) -> socket.socket:
    """A socket belongs to the namespace in which it was made."""
    setns(namespace, CLONE_NEWNET)
    try:
        return work()
    finally:
        setns(router._inside, CLONE_NEWNET)


def _listen() -> socket.socket:
    return socket.create_server(("", PORT))


def _ask(router: Router, namespace: int, address: str) -> str:
    with _inside(router, namespace, lambda: socket.create_connection((address, PORT), 10)) as made:
        return str(made.getsockname()[0])


def test_two_pods_listen_on_one_port_and_reach_each_other(in_router: Callable[[Work], None]) -> None:
    def work(router: Router) -> None:
        addresses = [router.network[10], router.network[11]]
        pods = [router.attach(str(address), address) for address in addresses]
        with _inside(router, pods[0], _listen), _inside(router, pods[1], _listen):
            assert _ask(router, pods[0], str(addresses[1])) == str(addresses[0]), "and is known by its own address"
            assert _ask(router, pods[1], str(addresses[0])) == str(addresses[1])
            assert _ask(router, router._home, str(addresses[0])) == str(router.network[1]), "so does the machine"
            assert router.attach(str(addresses[0]), addresses[0]) == pods[0], "asked again, it is the same one"

    in_router(work)


def test_an_address_given_again_leads_to_its_new_holder(in_router: Callable[[Work], None]) -> None:
    def work(router: Router) -> None:
        address, before = router.network[10], {name for _, name in socket.if_nameindex()}
        first = router.attach("first", address)
        gone = {name for _, name in socket.if_nameindex()} - before
        with _inside(router, first, _listen):
            pass
        router.detach("first")
        second = router.attach("second", address)
        deadline = time.monotonic() + 60
        while gone & {name for _, name in socket.if_nameindex()} and time.monotonic() < deadline:
            time.sleep(0.01)  # the kernel takes its time with the old one, and its route must not go with it
        with _inside(router, second, _listen):
            assert _ask(router, router._home, str(address))

    in_router(work)


def test_when_the_router_goes_the_machine_is_as_it_was(in_router: Callable[[Work], None]) -> None:
    def state() -> tuple[set[str], str, str]:
        forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        return {name for _, name in socket.if_nameindex()}, Path("/proc/net/route").read_text(), forwarding

    def ours(router: Router) -> None:
        router.attach("a", router.network[10])
        setns(router._home, CLONE_NEWNET)
        seen.append(state())
        setns(router._inside, CLONE_NEWNET)

    before, seen = state(), list[tuple[set[str], str, str]]()
    in_router(ours)
    assert INTERFACE in seen[0][0]
    assert len(seen[0][0] - before[0]) >= 1
    after = state()
    assert INTERFACE not in after[0]
    assert INTERFACE not in after[1]
    assert (after[2], seen[0][2]) == (before[2], before[2])
