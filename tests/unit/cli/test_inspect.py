"""`kubectl inspect gpushare`: the table that scripts read, of both ways to share cards."""

from __future__ import annotations

from typing import Any

from pumice.cli.inspect import detailed, shares_of, summary

Json = dict[str, Any]


def _node(name: str, address: str = "", **status: Any) -> Json:
    addresses = [{"type": "Hostname", "address": name}] + ([{"type": "InternalIP", "address": address}] if address else [])
    return {"metadata": {"name": name}, "status": {"addresses": addresses, **status}}


def _legacy(name: str, address: str, cards: int, memory: int) -> Json:
    return _node(name, address, capacity={"volcano.sh/gpu-number": cards, "volcano.sh/gpu-memory": cards * memory})


def _pod(name: str, node: str, memory: int, index: str = "", phase: str = "Running", namespace: str = "default") -> Json:
    limits = {"volcano.sh/gpu-memory": memory}
    annotations = {"volcano.sh/gpu-index": index} if index else {}
    return {"metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits}}]}}  # fmt: skip


NODES = [_legacy("one", "10.0.0.1", 2, 11178), _legacy("another", "10.0.0.22", 1, 15109), _node("bare", "10.0.0.3")]
PODS = [_pod("a", "one", 3000, "0"), _pod("trainer", "one", 5000, "1", namespace="team"), _pod("b", "another", 1000, "0"),
        _pod("over", "one", 9000, "0", phase="Succeeded")]  # fmt: skip


def test_the_summary_has_a_line_for_each_node_with_shared_cards() -> None:
    assert summary(shares_of(NODES, PODS)).splitlines() == [
        "NAME     IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(MiB)",
        "one      10.0.0.1   3000/11178             5000/11178             8000/22356",
        "another  10.0.0.22  1000/15109             0/0                    1000/15109",
        "---------------------------------------------------------------------------------",
        "Allocated/Total GPU Memory In Cluster:",
        "9000/37465 (24%)",
    ]


def test_what_is_bound_without_a_card_yet_is_pending() -> None:
    reported = summary(shares_of(NODES, [*PODS, _pod("new", "one", 700)])).splitlines()
    assert reported[0].split("  ")[-2:] == ["PENDING(Allocated)", "GPU Memory(MiB)"]
    assert reported[1].split() == ["one", "10.0.0.1", "3000/11178", "5000/11178", "700", "8700/22356"]
    assert reported[2].split() == ["another", "10.0.0.22", "1000/15109", "0/0", "1000/15109"]


def test_the_details_have_a_line_for_each_pod() -> None:
    assert detailed(shares_of(NODES, [*PODS, _pod("new", "another", 700)])).splitlines() == [
        "",
        "NAME:       one",
        "IPADDRESS:  10.0.0.1",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)",
        "a            default    3000             0",
        "trainer      team       0                5000",
        "Allocated :  8000 (35%)",
        "Total :      22356",
        "--------------------------------------------------------",
        "",
        "NAME:       another",
        "IPADDRESS:  10.0.0.22",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)  Pending(Allocated)",
        "b            default    1000             0",
        "new          default    0                700",
        "Allocated :  1700 (11%)",
        "Total :      15109",
        "-----------------------------------------------------------",
        "",
        "",
        "Allocated/Total GPU Memory In Cluster:  9700/37465 (25%)",
    ]


def test_a_cluster_without_shared_cards_has_an_empty_table() -> None:
    assert summary(shares_of([_node("bare")], [])).splitlines()[-1] == "0/0 (0%)"
