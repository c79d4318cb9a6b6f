"""The network of the pods: a namespace each, joined in the middle by one more, the router.

    machine --pair-- router --pair-- pod
                       |-----pair-- pod

All of it hangs on the router's and the pods' namespaces, which live as long as this process holds them or a container runs in
them. On the machine there is one interface with one address and one route, and the kernel takes it away with the router: after
any end, also ``kill -9``, nothing is left and nothing has to be cleaned up.

Everything here runs in one thread, which stays inside the router's namespace.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence

from pumice_lab.network.netlink import Address, Netlink, Network
from pumice_lab.network.services import SERVICES
from pumice_lab.runtime.rootfs import CLONE_NEWNET, setns, unshare

_OWN = "/proc/thread-self/ns/net"
_ANYWHERE = Network("0.0.0.0/0")
GATEWAY = Address("169.254.1.1")  # link-local, the same for every pod: it is seen by nobody else
API, NAMES = Address("10.96.0.1"), Address("10.96.0.10")  # where pods look for the API server and for names in Kubernetes


class Router:
    """Make it in the thread that calls everything else. Raises OSError where the machine refuses."""

    def __init__(self, network: Network, interface: str) -> None:
        self.network, self.interface = network, interface
        self._pods: dict[str, int] = {}  # the descriptor of each one's namespace
        self._count = 0
        self._home = _namespace()
        unshare(CLONE_NEWNET)
        try:
            self._inside = _namespace()
            self._join_machine()
        except BaseException:
            self.close()
            raise

    def _join_machine(self) -> None:
        here, there = self.network[1], self.network[2]
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
            file.write("1")
        with Netlink() as link:
            link.make_pair("machine", self.interface, self._home)
            link.set_up("lo")
            for address in (API, NAMES):
                link.add_address("lo", address)
            link.add_address("machine", there)
            link.set_up("machine")
            link.add_route(_only(here), "machine")
            link.add_route(SERVICES, "machine")  # so that what no rule leads on is refused on its way there, and not lost
        with self._in(self._home), Netlink() as link:
            link.add_address(self.interface, here)
            link.set_up(self.interface)
            link.add_route(_only(there), self.interface)
            link.add_route(self.network, self.interface, via=there, source=here)

    def attach(self, key: str, address: Address) -> int:
        """The descriptor of a pod's namespace, made at the first call."""
        if key in self._pods:
            return self._pods[key]
        self._count += 1
        name = f"p{self._count}"
        unshare(CLONE_NEWNET)
        pod = _namespace()
        try:
            with Netlink() as link:
                link.make_pair("eth0", name, self._inside)
                for each in ("lo", "eth0"):
                    link.set_up(each)
                link.add_address("eth0", address)
                link.add_route(_only(GATEWAY), "eth0")
                link.add_route(_ANYWHERE, "eth0", via=GATEWAY)
            setns(self._inside, CLONE_NEWNET)
            with Netlink() as link:
                link.add_address(name, GATEWAY)
                link.set_up(name)
                link.add_route(_only(address), name)
        except BaseException:
            os.close(pod)
            raise
        finally:
            setns(self._inside, CLONE_NEWNET)
        self._pods[key] = pod
        return pod

    def detach(self, key: str) -> None:
        """Its namespace goes with its last holder, and the pair with it: asking for that takes 20 ms, in which nobody starts."""
        if key in self._pods:
            os.close(self._pods.pop(key))

    def socket_of(self, key: str) -> socket.socket:
        """One in a pod's namespace. Raises OSError where the pod has none."""
        if key not in self._pods:
            raise OSError(errno.ENETUNREACH, "the pod has no network")
        with self._in(self._pods[key]):
            return socket.socket()

    def listen(self, address: Address, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """A socket that pods reach; whoever serves it stands in the machine's network."""
        made = socket.socket(socket.AF_INET, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((str(address), port))
        if kind is socket.SOCK_STREAM:
            made.listen(128)
        return made

    def program(self, tables: str) -> str:
        """Put rules for packets in place of all that are here, all or none. Says why not, or nothing."""
        program = shutil.which("iptables-restore") or "/usr/sbin/iptables-restore"
        try:
            done = subprocess.run([program, "-w"], input=tables, capture_output=True, text=True)
        except OSError as error:
            return f"{program}: {error.strerror}"
        if done.returncode:
            return done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"{program}: exit code {done.returncode}"
        return ""

    def close(self) -> None:
        for key in list(self._pods):
            self.detach(key)
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._inside)
        setns(self._home, CLONE_NEWNET)
        os.close(self._home)
        with contextlib.suppress(OSError), Netlink() as link:  # at once: a namespace goes a moment after its last holder
            link.remove(self.interface)

    @contextlib.contextmanager
    def _in(self, namespace: int) -> Iterator[None]:
        setns(namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            setns(self._inside, CLONE_NEWNET)


def free_network(wanted: int, routes: str, name_servers: Sequence[str] = ()) -> Network | None:
    """One of 32 parts of 10.128.0.0/9, the ``wanted``-th or a later one that no route of this machine touches and in which none
    of its name servers is: to these most often the default route leads.

    ``routes``: /proc/net/route.
    """
    parts = list(Network("10.128.0.0/9").subnets(new_prefix=14))
    taken = [network for network in _routed(routes) if network.prefixlen > 0]
    for server in name_servers:
        with contextlib.suppress(ValueError):  # of IPv6, or no address at all
            taken.append(Network(server))
    order = [parts[(wanted + step) % len(parts)] for step in range(len(parts))]
    return next((part for part in order if not any(part.overlaps(other) for other in taken)), None)


def _routed(routes: str) -> Iterator[Network]:
    for line in routes.splitlines()[1:]:
        fields = line.split()
        to, mask = (ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(fields[i])[::-1], "big")) for i in (1, 7))
        yield Network(f"{to}/{mask}", strict=False)


def _only(address: Address) -> Network:
    return Network((int(address), 32))


def _namespace() -> int:
    return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
