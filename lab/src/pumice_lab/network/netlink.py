"""The few requests to the kernel's network that pods need, by rtnetlink (rtnetlink(7), linux/if_link.h, linux/veth.h).

A ``Netlink`` speaks to the network namespace in which its thread was when it was made.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import Self

_ERROR = 2
_NEW_LINK, _DEL_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 1, 4, 0x100, 0x200, 0x400
_IFLA_NAME, _IFLA_LINK_INFO, _IFLA_NAMESPACE_FD = 3, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_TO, _RTA_INTERFACE, _RTA_VIA, _RTA_SOURCE = 1, 4, 5, 7
_MAIN, _STATIC, _UNIVERSE, _LINK, _UNICAST, _ON_LINK = 254, 4, 0, 253, 1, 4
_UP = 1

Address = ipaddress.IPv4Address
Network = ipaddress.IPv4Network


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def make_pair(self, name: str, peer: str, namespace: int) -> None:
        """Two interfaces joined back to back: ``name`` here, ``peer`` in the namespace of that descriptor."""
        far = _interface(0) + _text(_IFLA_NAME, peer) + _attribute(_IFLA_NAMESPACE_FD, struct.pack("I", namespace))
        kind = _text(_INFO_KIND, "veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, far))
        body = _interface(0) + _text(_IFLA_NAME, name) + _attribute(_IFLA_LINK_INFO, kind)
        self._ask(_NEW_LINK, _CREATE | _EXCLUSIVE, body, name)

    def set_up(self, name: str) -> None:
        self._ask(_NEW_LINK, 0, _interface(socket.if_nametoindex(name), _UP), name)

    def remove(self, name: str) -> None:
        """An interface, and the one that it is joined to."""
        self._ask(_DEL_LINK, 0, _interface(socket.if_nametoindex(name)), name)

    def add_address(self, name: str, address: Address) -> None:
        head = struct.pack("BBBBI", socket.AF_INET, 32, 0, _UNIVERSE, socket.if_nametoindex(name))
        body = head + _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
        self._ask(_NEW_ADDRESS, _CREATE | _REPLACE, body, str(address))

    def add_route(self, to: Network, name: str, via: Address | None = None, source: Address | None = None) -> None:
        scope, flags = (_LINK, 0) if via is None else (_UNIVERSE, _ON_LINK)
        body = struct.pack("BBBBBBBBI", socket.AF_INET, to.prefixlen, 0, 0, _MAIN, _STATIC, scope, _UNICAST, flags)
        body += _attribute(_RTA_TO, to.network_address.packed)
        body += _attribute(_RTA_INTERFACE, struct.pack("I", socket.if_nametoindex(name)))
        if via is not None:
            body += _attribute(_RTA_VIA, via.packed)
        if source is not None:
            body += _attribute(_RTA_SOURCE, source.packed)
        self._ask(_NEW_ROUTE, _CREATE | _REPLACE, body, str(to))

    def _ask(self, kind: int, flags: int, body: bytes, about: str) -> None:
        """Raises OSError with what the kernel says."""
        self._number += 1
        self._socket.send(struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, self._number, 0) + body)
        answer = self._socket.recv(65536)
        _, what, _, _, _, error = struct.unpack_from("IHHIIi", answer)
        if what == _ERROR and error:
            raise OSError(-error, os.strerror(-error), about)


def _interface(index: int, flags: int = 0) -> bytes:
    return struct.pack("BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("HH", 4 + len(content), kind) + content + b"\0" * (-len(content) % 4)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")
