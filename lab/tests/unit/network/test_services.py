"""Where Services lead: the router's tables and the lines of /etc/hosts, as values."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from pumice_lab.network.netlink import Address, Network
from pumice_lab.network.pod_network import RoutedNetwork
from pumice_lab.network.services import Door, doors, host_lines, links, service_names, tables, without_effect

PODS, API, OUT = Network("10.128.0.0/14"), Address("10.96.0.1"), (Address("10.96.0.10"), 15001)
FIRST, SECOND = Address("10.128.0.10"), Address("10.128.0.11")


def _service(name: str = "web", cluster: str = "10.96.0.20", **spec: Any) -> dict:
    return {"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"clusterIP": cluster, "ports": [{"port": 80}], **spec}}  # fmt: skip


def _slice(*endpoints: dict, service: str = "web", port: Any = 5000, name: str = "") -> dict:
    return {"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "ports": [{"name": name, "port": port, "protocol": "TCP"}], "endpoints": list(endpoints)}  # fmt: skip


def _end(address: object, **conditions: bool) -> dict:
    return {"addresses": [str(address)], "conditions": conditions}


def _led(service: dict, *slices: dict) -> tuple:
    (door,) = doors([service], slices, PODS)
    return door.targets


def test_a_connection_goes_to_those_that_are_ready() -> None:
    assert _led(_service(), _slice(_end(FIRST, ready=True), _end(SECOND, ready=False))) == ((FIRST, 5000),)
    assert _led(_service(), _slice(_end(FIRST), _end(SECOND))) == ((FIRST, 5000), (SECOND, 5000)), (
        "who says nothing is ready"
    )


def test_where_none_is_ready_those_that_end_still_serve() -> None:
    ending = _end(FIRST, ready=False, serving=True, terminating=True)
    assert _led(_service(), _slice(ending, _end(SECOND, ready=False, serving=False, terminating=True))) == (
        (FIRST, 5000),
    )
    assert _led(_service(), _slice(ending), _slice(_end(SECOND, ready=True))) == ((SECOND, 5000),)


def test_a_port_leads_to_the_port_of_its_name() -> None:
    service = _service(ports=[{"name": "web", "port": 80}, {"name": "metrics", "port": 81}])
    found = doors([service], [_slice(_end(FIRST), name="web"), _slice(_end(SECOND), name="metrics", port=9000)], PODS)
    assert [(door.port, door.targets) for door in found] == [(80, ((FIRST, 5000),)), (81, ((SECOND, 9000),))]


class Looked(list[dict]):
    """Counts how often it is walked through."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()


def test_the_ports_of_a_slice_are_looked_at_once_for_all_ports_of_its_service() -> None:
    """Ten thousand of them, for each of ten thousand, took seconds."""
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 51)]
    slice_ = {**_slice(_end(FIRST)), "ports": Looked(ports)}
    found = doors([_service(ports=ports)], [slice_], PODS)
    assert [door.targets for door in found] == [((FIRST, each["port"]),) for each in ports]
    assert slice_["ports"].times == 1


def test_others_have_their_turn_while_it_is_worked_out_where_services_lead() -> None:
    threads = list[int]()

    async def done(work: Any) -> str:
        return ""

    network: Any = SimpleNamespace(range=PODS, _in=done, _tables=lambda found: threads.append(threading.get_ident()))
    asyncio.run(RoutedNetwork.lead(network, [_service()], []))
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_what_anybody_may_write_into_a_slice_leads_nowhere_else() -> None:
    strangers = [
        _end("8.8.8.8"),
        _end("10.96.0.20"),
        _end("fd00::1"),
        _end("10.128.0.10 -j ACCEPT\n-A X"),
        _end("127.0.0.1"),
    ]
    assert _led(_service(), _slice(*strangers, _end(FIRST))) == ((FIRST, 5000),)
    assert _led(_service(), {**_slice(_end(FIRST)), "addressType": "IPv6"}) == ()
    assert not doors([_service(cluster="10.96.0.1")], [_slice(_end(FIRST))], PODS, [API]), (
        "the API server's is nobody else's"
    )
    assert not doors([_service(cluster="None"), _service(cluster="192.168.0.1")], [_slice(_end(FIRST))], PODS)


def test_the_tables_are_written_as_iptables_restore_reads_them() -> None:
    door = Door(Address("10.96.0.20"), "tcp", 80, ((FIRST, 5000), (SECOND, 5000)), sticky=60)
    nothing = Door(Address("10.96.0.21"), "udp", 53, ())
    recent = "-m recent --name 10.96.0.20:80t-10.128.0.1{}:5000"
    assert tables([door, nothing], PODS, OUT).splitlines() == [
        "*nat",
        *(f":{chain} ACCEPT" for chain in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")),
        *(f":{chain} -" for chain in ("SVC-0", "SVC-0-0", "SVC-0-1")),
        "-A PREROUTING -d 10.96.0.20/32 -p tcp --dport 80 -j SVC-0",
        f"-A SVC-0 {recent.format(0)} --rcheck --seconds 60 --reap -j SVC-0-0",
        f"-A SVC-0 {recent.format(1)} --rcheck --seconds 60 --reap -j SVC-0-1",
        "-A SVC-0 -m statistic --mode random --probability 0.50000000000 -j SVC-0-0",
        "-A SVC-0 -j SVC-0-1",
        f"-A SVC-0-0 -p tcp {recent.format(0)} --set -j DNAT --to-destination 10.128.0.10:5000",
        f"-A SVC-0-1 -p tcp {recent.format(1)} --set -j DNAT --to-destination 10.128.0.11:5000",
        "-A POSTROUTING -s 10.128.0.10/32 -d 10.128.0.10/32 -j MASQUERADE",
        "-A POSTROUTING -s 10.128.0.11/32 -d 10.128.0.11/32 -j MASQUERADE",
        "-A PREROUTING -d 10.96.0.0/16 -j RETURN",
        "-A PREROUTING -p tcp ! -d 10.128.0.0/14 -j DNAT --to-destination 10.96.0.10:15001",
        "COMMIT",
        "*filter",
        *(f":{chain} ACCEPT" for chain in ("INPUT", "FORWARD", "OUTPUT")),
        "-A FORWARD -d 10.96.0.0/16 -p tcp -j REJECT --reject-with tcp-reset",
        "-A FORWARD -d 10.96.0.0/16 -j REJECT --reject-with icmp-port-unreachable",
        "COMMIT",
    ]


def test_names_of_services_are_known_everywhere_and_the_shortest_at_home() -> None:
    headless = _service("all", "None")
    named = service_names(
        [_service(), headless], [_slice({**_end(FIRST), "hostname": "all-0"}, _end(SECOND), service="all")]
    )
    at_home, far = (host_lines(named, namespace) for namespace in ("default", "far"))
    full = "{0}.default.svc.cluster.local {0}.default.svc {0}.default"
    assert far.splitlines() == [f"{FIRST}\t{full.format('all')}", f"{SECOND}\t{full.format('all')}",
                                f"{FIRST}\t{full.format('all-0.all')}", f"10.96.0.20\t{full.format('web')}"]  # fmt: skip
    assert at_home.splitlines() == [line + " " + name for line, name in
                                    zip(far.splitlines(), ("all", "all", "all-0.all", "web"), strict=True)]  # fmt: skip


def test_a_container_is_told_of_the_services_of_its_namespace() -> None:
    named = service_names([_service("my-web", ports=[{"name": "http", "port": 80}]), _service("all", "None")], [])
    assert links(named, "far") == {}
    assert links(named, "default") == {
        "MY_WEB_SERVICE_HOST": "10.96.0.20", "MY_WEB_SERVICE_PORT": "80", "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_PORT": "tcp://10.96.0.20:80", "MY_WEB_PORT_80_TCP": "tcp://10.96.0.20:80", "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80", "MY_WEB_PORT_80_TCP_ADDR": "10.96.0.20",
    }  # fmt: skip


def test_what_leads_nowhere_is_said_with_what_does() -> None:
    assert without_effect(_service(), routed=True) == ""
    assert "port-forward -n default service/web" in without_effect(_service(), routed=False)
    assert "port-forward" in without_effect(_service(type="NodePort"), routed=True)
    assert "ExternalName" in without_effect(_service(cluster="", type="ExternalName"), routed=True)
    assert "internalTrafficPolicy" in without_effect(_service(internalTrafficPolicy="Local"), routed=True)
