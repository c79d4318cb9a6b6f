"""The network that pods of this machine have: a namespace each behind a router, or the machine's own with loopback addresses."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import json
import os
import socket
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pumice_lab
from pumice.model.errors import Unavailable
from pumice_lab.network.netlink import Netlink, Network
from pumice_lab.network.relay import servers
from pumice_lab.network.router import API, NAMES, Router, free_network
from pumice_lab.network.services import Door, doors, tables

_BOOT = "import sys; sys.path[:0] = [{src!r}]; from pumice_lab.network import relay; relay.main()"
ROUTES = Path("/proc/net/route")
API_PORT, NAMES_PORT, OUT_PORT = 443, 53, 15001
T = TypeVar("T")
Json = Mapping[str, Any]


class PodNetwork(Protocol):
    addresses: Addresses

    @property
    def api(self) -> tuple[str, int] | None:
        """Return where pods reach the API server; None: where everybody does."""
        ...

    @property
    def resolver(self) -> str:
        """The name server of pods; empty: the machine's."""
        ...

    async def attach(self, uid: str, address: str) -> str:
        """A path to the pod's network namespace, made where it is not there; empty: the machine's own. Raises OSError."""
        ...

    async def detach(self, uid: str) -> None: ...

    async def way_in(self, uid: str, address: str) -> tuple[socket.socket, str]:
        """One that stands in the pod's network, and the address of the pod's programs there. Raises OSError."""
        ...


class LoopbackNetwork:
    """All pods share the machine's network and have a loopback address each."""

    api, resolver = None, ""

    def __init__(self, node_address: str) -> None:
        self.addresses = loopback_addresses(node_address)

    async def attach(self, uid: str, address: str) -> str:
        return ""

    async def detach(self, uid: str) -> None:
        return

    async def way_in(self, uid: str, address: str) -> tuple[socket.socket, str]:
        return socket.socket(), address  # the machine's own localhost is nobody's


class RoutedNetwork:
    """A network of pods behind a router: ``await RoutedNetwork.launch(...)``, then ``serve`` beside the rest, at last
    ``close``."""

    api, resolver = (str(API), API_PORT), str(NAMES)

    def __init__(self, router: Router, thread: concurrent.futures.Executor) -> None:
        self._router, self._thread = router, thread
        self.range = router.network
        self.addresses = Addresses(router.network, first=10)
        self.no_way_out = ""
        self._sockets: dict[str, socket.socket] = {}

    @classmethod
    async def launch(cls, name: str, wanted: str = "") -> RoutedNetwork:
        """``name`` tells clusters apart, ``wanted`` is a range of addresses. Raises OSError where the machine refuses."""
        thread = concurrent.futures.ThreadPoolExecutor(1, "pod network")
        try:
            router = await _in(thread, lambda: _router(name, wanted))
            network = cls(router, thread)
            await network._in(network._open)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return network

    def _open(self) -> None:
        listen = self._router.listen
        self._sockets = {"api": listen(API, API_PORT), "names": listen(NAMES, NAMES_PORT), "out": listen(NAMES, OUT_PORT),
                         "questions": listen(NAMES, NAMES_PORT, socket.SOCK_DGRAM)}  # fmt: skip
        self.no_way_out = self._router.program(self._tables([]))

    def _tables(self, doors: Sequence[Door]) -> str:
        return tables(doors, self.range, (NAMES, OUT_PORT))

    async def lead(self, services: Sequence[Json], slices: Sequence[Json]) -> str:
        """Connections to cluster addresses to where they belong from now on. Says why not, or nothing."""
        wanted = await asyncio.to_thread(lambda: self._tables(doors(services, slices, self.range, (API, NAMES))))
        return await self._in(lambda: self._router.program(wanted))

    async def _in(self, work: Callable[[], T]) -> T:
        return await _in(self._thread, work)

    async def attach(self, uid: str, address: str) -> str:
        descriptor = await self._in(lambda: self._router.attach(uid, Network(address)[0]))
        return f"/proc/{os.getpid()}/fd/{descriptor}"

    async def detach(self, uid: str) -> None:
        await self._in(lambda: self._router.detach(uid))

    async def way_in(self, uid: str, address: str) -> tuple[socket.socket, str]:
        return await self._in(lambda: self._router.socket_of(uid)), "127.0.0.1"

    async def serve(self, server: str) -> None:
        """Carry what pods send to the API server at ``server`` (host:port) and beyond, until cancelled."""
        source = str(Path(pumice_lab.__file__).resolve().parent.parent)
        places = {name: made.fileno() for name, made in self._sockets.items()}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-E", "-s", "-S", "-c", _BOOT.format(src=source), json.dumps({"sockets": places, "api": server}),
            pass_fds=list(places.values()), stdin=asyncio.subprocess.PIPE, start_new_session=True)  # fmt: skip
        try:
            raise OSError(f"the relay of the pods' network ended with code {await child.wait()}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def close(self) -> None:
        for made in self._sockets.values():
            made.close()
        await self._in(self._router.close)
        self._thread.shutdown(wait=False)


async def _in(thread: concurrent.futures.Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


def interface_of(name: str) -> str:
    """The one interface that a cluster has on the machine."""
    return f"pumice-{zlib.crc32(name.encode()):08x}"


def _router(name: str, wanted: str) -> Router:
    interface = interface_of(name)
    with contextlib.suppress(OSError), Netlink() as link:
        link.remove(interface)  # of this data dir's cluster before, which the kernel is still about to take away
    network = Network(wanted) if wanted else free_network(zlib.crc32(name.encode()) % 32, ROUTES.read_text(), servers())
    if network is None:
        raise OSError(0, "every part of 10.128.0.0/9 is routed somewhere on this machine")
    return Router(network, interface)


# -- Which address each pod has ---------------------------------------------------------------------------------------


class Addresses:
    """The addresses of a network from its ``first`` on, handed out in turn: one given back is not the next one given."""

    def __init__(self, network: ipaddress.IPv4Network, first: int = 1) -> None:
        self._network, self._first = network, first
        self._given: dict[str, str] = {}
        self._next = first

    def give(self, uid: str) -> str:
        """Empty when there are no more."""
        if uid in self._given:
            return self._given[uid]
        taken, end = set(self._given.values()), self._network.num_addresses - 1
        for _ in range(end - self._first):
            address = str(self._network[self._next])
            self._next = self._next + 1 if self._next + 1 < end else self._first
            if address not in taken:
                self._given[uid] = address
                return address
        return ""

    def keep(self, uid: str, address: str) -> str:
        """The one that it had before, or another where that is not of this network or somebody else's by now."""
        with contextlib.suppress(ValueError):  # whoever may write a pod's status may write anything there
            if ipaddress.IPv4Address(address) in self._network and address not in self._given.values():
                self._given[uid] = address
        return self.give(uid)

    def take_back(self, uid: str) -> None:
        self._given.pop(uid, None)


def loopback_addresses(node: str) -> Addresses:
    """127.x.y.z of a node's own, by the node's address."""
    own = int(ipaddress.IPv4Address(node))
    # The last ten bits of a node's address count the nodes; the five before them tell clusters apart (datadir).
    return Addresses(ipaddress.IPv4Network((127 << 24 | 1 << 23 | (own >> 10 & 31) << 18 | (own & 1023) << 8, 24)))


# -- Which network the pods of a cluster get, and what a person is told about it -------------------------------------

SHARED = ("pods share this machine's network (two that listen on all addresses of one port collide, and cluster addresses of "
          "Services lead nowhere)")


async def choose_network(wanted: str, name: str) -> tuple[RoutedNetwork | None, str]:
    """``wanted``: auto, none, or a range. Raises Unavailable where a range was asked for and cannot be had."""
    if wanted == "none":
        return None, f"{SHARED}, as was asked for"
    try:
        if os.geteuid() != 0:
            raise PermissionError("a network of their own needs root")
        network = await RoutedNetwork.launch(name, "" if wanted == "auto" else wanted)
    except OSError as error:
        if wanted != "auto":
            raise Unavailable(f"--pod-network {wanted}: {error}") from error
        return None, f"{SHARED}: {error}"
    beyond = f"; nothing leads out of it: {network.no_way_out}" if network.no_way_out else ""
    return network, f"pods have addresses of {network.range}{beyond}"
