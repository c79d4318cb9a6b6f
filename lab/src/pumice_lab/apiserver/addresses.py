"""Cluster IPs and node ports of services.

Where they lead is the service proxy's; nothing forwards node ports, which are given out because clients count on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice_lab.apiserver.errors import FieldProblem, invalid_value
from pumice_lab.apiserver.storage import Storage
from pumice_lab.network.services import SERVICES

Json = dict[str, Any]

NODE_PORTS = range(30000, 32768)


def give_addresses(storage: Storage, service: Json) -> list[FieldProblem]:
    """Fills in what the service's type calls for. Problems: an address or port that is taken, or none left."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return []
    others = [s.value()["spec"] for s in storage.objects("v1/services") if not _same(s.namespace, s.name, service)]
    problems = _cluster_ip(spec, {ip for other in others for ip in other.get("clusterIPs") or []})
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        problems += _node_ports(
            spec, {p["nodePort"] for o in others for p in o.get("ports") or [] if p.get("nodePort")}
        )
    return problems


def _same(namespace: str, name: str, service: Json) -> bool:
    return (namespace, name) == (service["metadata"].get("namespace"), service["metadata"].get("name"))


def _cluster_ip(spec: Json, taken: set[str]) -> list[FieldProblem]:
    asked = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or []), "")
    if asked and asked != "None" and asked in taken:
        detail = "failed to allocate IP: provided IP is already allocated"
        return [invalid_value("spec.clusterIPs", [asked], detail)]
    if not asked:
        asked = next((ip for ip in _free() if ip not in taken), "")
        if not asked:
            return [invalid_value("spec.clusterIPs", [], f"failed to allocate IP: range {SERVICES} is full")]
    spec["clusterIP"], spec["clusterIPs"] = asked, [asked]
    return []


def _free() -> Iterator[str]:
    hosts = SERVICES.hosts()
    for _ in range(10):  # the first few are for well-known services, as in Kubernetes
        next(hosts)
    return (str(ip) for ip in hosts)


def _node_ports(spec: Json, taken: set[int]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for i, port in enumerate(spec.get("ports") or []):
        asked = port.get("nodePort")
        if asked and (asked in taken or asked not in NODE_PORTS):
            why = "provided port is already allocated" if asked in taken else "provided port is not in the valid range"
            problems.append(invalid_value(f"spec.ports[{i}].nodePort", asked, why))
        port["nodePort"] = asked or next((p for p in NODE_PORTS if p not in taken), 0)
        taken.add(port["nodePort"])
    return problems
