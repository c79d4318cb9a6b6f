"""Addresses of pods: no two have one, and one that was had before is kept where that can be."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from pumice_lab.network.pod_network import Addresses, loopback_addresses
from pumice_lab.network.router import free_network

SMALL = IPv4Network("10.9.0.0/29")


def test_addresses_are_handed_out_in_turn_until_there_are_none() -> None:
    addresses = Addresses(SMALL, first=3)
    assert [addresses.give(uid) for uid in "abcdef"] == ["10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6", "", ""]
    addresses.take_back("b")
    assert addresses.give("f") == "10.9.0.4"
    assert addresses.give("f") == "10.9.0.4", "whoever asks again has the same one"


def test_an_address_given_back_is_not_the_next_one_given() -> None:
    addresses = Addresses(SMALL)
    addresses.take_back("a") if addresses.give("a") else None
    assert addresses.give("b") == "10.9.0.2"


@pytest.mark.parametrize(("had", "kept"), [
    ("10.9.0.5", "10.9.0.5"), ("127.1.1.1", "10.9.0.2"), ("10.9.0.1", "10.9.0.2"), ("", "10.9.0.2"), ("::1", "10.9.0.2"),
    ("nonsense", "10.9.0.2"),
], ids=["of this network", "of another", "of somebody else", "none", "of IPv6", "nonsense"])  # fmt: skip
def test_a_pod_keeps_the_address_that_it_had_if_that_can_be(had: str, kept: str) -> None:
    addresses = Addresses(SMALL)
    assert addresses.give("other") == "10.9.0.1"
    assert addresses.keep("pod", had) == kept


def test_two_nodes_have_no_loopback_address_in_common() -> None:
    one, other = (loopback_addresses(f"127.64.4.{node}") for node in (2, 3))
    assert not {one.give(str(n)) for n in range(300)} & {other.give(str(n)) for n in range(300)} - {""}


HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"


def test_a_range_is_one_that_no_route_of_the_machine_touches() -> None:
    assert str(free_network(3, HEADER)) == "10.140.0.0/14"
    default = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    vpn = "tun0\t0000900A\t00000000\t0001\t0\t0\t0\t0000F0FF\t0\t0\t0\n"  # 10.144.0.0/12
    assert str(free_network(3, HEADER + default + vpn)) == "10.140.0.0/14"
    assert str(free_network(4, HEADER + default + vpn)) == "10.160.0.0/14"
    assert str(free_network(4, HEADER + default + vpn, ["10.163.255.53", "fd00::53", "none"])) == "10.164.0.0/14"
    assert free_network(4, HEADER + "tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n") is None
