"""The targets of Services: the router's tables of packets, and the lines of /etc/hosts. Pure.

What kube-proxy does on a node of iptables, for one router: a connection to a cluster address goes to one of its endpoints by
chance, with ``sessionAffinity: ClientIP`` to the same one for so long, and is refused where there is none.

Sources: Kubernetes "Virtual IPs and Service Proxies" (iptables mode, session affinity, traffic to terminating endpoints) and "DNS
for Services and Pods".
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pumice_lab.network.netlink import Address, Network

SERVICES = Network("10.96.0.0/16")
DOMAIN = "svc.cluster.local"
_OF_SLICE = "kubernetes.io/service-name"
_PROTOCOLS = {"TCP": "tcp", "UDP": "udp"}
_AFFINITY_SECONDS = 10_800
Json = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Door:
    """One port of a cluster address, and where it leads. ``sticky``: seconds for which a client comes to the same place."""

    address: Address
    protocol: str
    port: int
    targets: tuple[tuple[Address, int], ...]
    sticky: int = 0


@dataclass(frozen=True, slots=True)
class ServiceName:
    """A Service as names are resolved: ``addresses``: its own, or where it is ``headless`` those of its pods; ``hosts``:
    single ones of these by name."""

    namespace: str
    name: str
    addresses: tuple[Address, ...]
    headless: bool = False
    hosts: tuple[tuple[str, Address], ...] = ()
    ports: tuple[tuple[str, int, str], ...] = ()  # name, number, protocol


def doors(services: Iterable[Json], slices: Iterable[Json], pods: Network, reserved: Sequence[Address] = ()) -> list[Door]:
    """Of every Service with a cluster address but the ``reserved``; endpoints outside the network of the pods are left out."""
    found, of = [], _by_service(slices)
    for service in services:
        meta, spec = service["metadata"], service["spec"]
        address = _address(spec.get("clusterIP"))
        if address is None or address in reserved or address not in SERVICES:
            continue
        own, sticky = _by_port(of[meta.get("namespace", ""), meta["name"]]), _stickiness(spec)
        for port in spec.get("ports") or ():
            if protocol := _PROTOCOLS.get(port.get("protocol", "TCP")):
                targets = tuple(sorted(set(_targets(own[_key(port)], pods))))
                found.append(Door(address, protocol, int(port["port"]), targets, sticky))
    return sorted(found, key=lambda door: (door.address, door.protocol, door.port))


def service_names(services: Iterable[Json], slices: Iterable[Json]) -> list[ServiceName]:
    """Return the addresses that each Service resolves to: its cluster address, or those of its pods where it is headless."""
    found, of = [], _by_service(slices)
    for service in services:
        meta, spec = service["metadata"], service["spec"]
        namespace, cluster = meta.get("namespace", ""), spec.get("clusterIP")
        if address := _address(cluster):
            ports = tuple((each.get("name") or "", int(each["port"]), each.get("protocol", "TCP"))
                          for each in spec.get("ports") or ())  # fmt: skip
            found.append(ServiceName(namespace, meta["name"], (address,), ports=ports))
        elif cluster == "None":
            behind = _chosen([(each, None) for part in of[namespace, meta["name"]] for each in part.get("endpoints") or ()])
            answering = [(each.get("hostname") or "", ip) for each, _ in behind for ip in _addresses(each)]
            found.append(ServiceName(namespace, meta["name"], tuple(sorted({ip for _, ip in answering})), True,
                                     tuple(sorted((host, ip) for host, ip in answering if host))))
    return found


def without_effect(service: Json, *, routed: bool) -> str:
    """Return the part of a Service that leads nowhere in this cluster, and what to do instead; empty: nothing."""
    meta, spec = service["metadata"], service["spec"]
    kind, namespace = spec.get("type", "ClusterIP"), meta.get("namespace", "default")
    forward = f"kubectl port-forward -n {namespace} service/{meta['name']}"
    if kind == "ExternalName":
        return "ExternalName has no effect in this cluster: pods know no other name of a name"
    if kind in ("NodePort", "LoadBalancer"):
        return f"{kind} has no effect in this cluster beyond that of ClusterIP: from the machine use {forward}"
    if _address(spec.get("clusterIP")) and not routed and (namespace, meta["name"]) != ("default", "kubernetes"):
        return f"pods share the machine's network, in which cluster addresses lead nowhere: make it headless, or use {forward}"
    lacking = [field for field in ("internalTrafficPolicy", "externalTrafficPolicy") if spec.get(field) == "Local"]
    return f"{lacking[0]}: Local has no effect in this cluster: pods of all its nodes answer" if lacking else ""


def host_lines(names: Iterable[ServiceName], namespace: str) -> str:
    """Lines of /etc/hosts for containers of ``namespace``: by the shortest forms only its own Services are known."""
    lines = []
    for known in sorted(names, key=lambda known: (known.namespace, known.name)):
        pairs = [(known.name, ip) for ip in known.addresses]
        pairs += [(f"{host}.{known.name}", ip) for host, ip in known.hosts]
        lines += [f"{ip}\t{forms(name, known.namespace, short=known.namespace == namespace)}\n" for name, ip in pairs]
    return "".join(lines)


def links(names: Iterable[ServiceName], namespace: str) -> dict[str, str]:
    """Variables that tell a container of the Services of its namespace (Kubernetes "Service", "Environment variables")."""
    found: dict[str, str] = {}
    for known in names:
        if known.namespace == namespace and not known.headless and known.ports:
            name, host = _variable(known.name), str(known.addresses[0])
            _, first, protocol = known.ports[0]
            found |= {f"{name}_SERVICE_HOST": host, f"{name}_SERVICE_PORT": str(first),
                      f"{name}_PORT": f"{protocol.lower()}://{host}:{first}"}  # fmt: skip
            for title, port, protocol in known.ports:
                if title:
                    found[f"{name}_SERVICE_PORT_{_variable(title)}"] = str(port)
                stem, lower = f"{name}_PORT_{port}_{protocol}", protocol.lower()
                found |= {stem: f"{lower}://{host}:{port}", f"{stem}_PROTO": lower,
                          f"{stem}_PORT": str(port), f"{stem}_ADDR": host}  # fmt: skip
    return found


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def forms(name: str, namespace: str, *, short: bool = True) -> str:
    """Every way to write a name of the cluster's domain."""
    return f"{name}.{namespace}.{DOMAIN} {name}.{namespace}.svc {name}.{namespace}" + (f" {name}" if short else "")


def tables(doors: Sequence[Door], pods: Network, way_out: tuple[Address, int]) -> str:
    """The whole of the router's tables, as iptables-restore reads them: it puts them in place at once or not at all.

    ``way_out``: where TCP beyond the network of the pods is led. A pod that comes to itself through a Service must see
    another sender than itself, or it takes the packets for strays.
    """
    chains, rules, hairpins = [], [], set()
    for number, door in enumerate(door for door in doors if door.targets):
        name = f"SVC-{number}"
        rules.append(f"-A PREROUTING -d {door.address}/32 -p {door.protocol} --dport {door.port} -j {name}")
        chains.append(name)
        ends = [f"{name}-{index}" for index in range(len(door.targets))]
        chains += ends
        rules += _choices(name, door, ends)
        for end, (ip, port) in zip(ends, door.targets, strict=True):
            seen = f"-m recent --name {_client(door, ip, port)} --set " if door.sticky else ""
            rules.append(f"-A {end} -p {door.protocol} {seen}-j DNAT --to-destination {ip}:{port}")
            hairpins.add(ip)
    rules += [f"-A POSTROUTING -s {ip}/32 -d {ip}/32 -j MASQUERADE" for ip in sorted(hairpins)]
    rules.append(f"-A PREROUTING -d {SERVICES} -j RETURN")
    rules.append(f"-A PREROUTING -p tcp ! -d {pods} -j DNAT --to-destination {way_out[0]}:{way_out[1]}")
    refusals = [f"-A FORWARD -d {SERVICES} -p tcp -j REJECT --reject-with tcp-reset",
                f"-A FORWARD -d {SERVICES} -j REJECT --reject-with icmp-port-unreachable"]  # fmt: skip
    return "".join(f"{line}\n" for line in (
        "*nat", *(f":{name} ACCEPT" for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")),
        *(f":{name} -" for name in chains), *rules, "COMMIT",
        "*filter", *(f":{name} ACCEPT" for name in ("INPUT", "FORWARD", "OUTPUT")), *refusals, "COMMIT"))  # fmt: skip


def _choices(name: str, door: Door, ends: Sequence[str]) -> Iterator[str]:
    """Choose an endpoint: a client that came lately goes where it was, any other to each place with the same chance."""
    if door.sticky:
        for end, (ip, port) in zip(ends, door.targets, strict=True):
            yield f"-A {name} -m recent --name {_client(door, ip, port)} --rcheck --seconds {door.sticky} --reap -j {end}"
    for index, end in enumerate(ends):
        left = len(ends) - index
        chance = f"-m statistic --mode random --probability {1 / left:.11f} " if left > 1 else ""
        yield f"-A {name} {chance}-j {end}"


def _client(door: Door, ip: Address, port: int) -> str:
    """The kernel's list of who was led to a place: the name outlives the tables, so it must not be a number of theirs."""
    return f"{door.address}:{door.port}{door.protocol[0]}-{ip}:{port}"


def _by_service(slices: Iterable[Json]) -> defaultdict[tuple[str, str], list[Json]]:
    found: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    for part in slices:
        meta = part["metadata"]
        if part.get("addressType") == "IPv4" and (name := (meta.get("labels") or {}).get(_OF_SLICE)):
            found[meta.get("namespace", ""), name].append(part)
    return found


def _key(port: Json) -> tuple[str, str]:
    return port.get("name") or "", port.get("protocol", "TCP")


def _by_port(slices: Iterable[Json]) -> defaultdict[tuple[str, str], list[tuple[Json, int]]]:
    """The slices of a Service that have a port, and its number there; a Service may have ten thousand."""
    found: defaultdict[tuple[str, str], list[tuple[Json, int]]] = defaultdict(list)
    for part in slices:
        for each in part.get("ports") or ():
            if each.get("port"):
                found[_key(each)].append((part, each["port"]))
    return found


def _targets(here: Iterable[tuple[Json, int]], pods: Network) -> Iterator[tuple[Address, int]]:
    for each, number in _chosen([(each, int(number)) for part, number in here for each in part.get("endpoints") or ()]):
        yield from ((ip, number) for ip in _addresses(each) if ip in pods)


def _chosen(endpoints: Sequence[tuple[Json, T]]) -> list[tuple[Json, T]]:
    """Of all endpoints of a Service those that are ready; where none is, those that still serve while they end."""

    def says(endpoint: Json, condition: str, otherwise: bool) -> bool:
        reported = (endpoint.get("conditions") or {}).get(condition)
        return otherwise if reported is None else bool(reported)

    ready = [pair for pair in endpoints if says(pair[0], "ready", True)]
    return ready or [pair for pair in endpoints if says(pair[0], "serving", False) and says(pair[0], "terminating", False)]


def _addresses(endpoint: Json) -> Iterator[Address]:
    """Anybody may write an EndpointSlice: what is no address is none."""
    return (ip for text in endpoint.get("addresses") or () if (ip := _address(text)))


def _address(text: Any) -> Address | None:
    try:
        return ipaddress.IPv4Address(str(text))
    except ValueError:
        return None


def _stickiness(spec: Json) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    return int(client.get("timeoutSeconds") or _AFFINITY_SECONDS)
