"""``kubectl inspect gpushare``: the memory of shared cards, node by node.

Columns, titles and sums as AliyunContainerService/gpushare-device-plugin prints them (cmd/inspect/display.go), so that scripts
which read its table read this one. Cards shared by vgpu-number and by gpu-memory are counted alike, in MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pumice.cli import flags
from pumice.cli.completion import names_of
from pumice.cli.question import Kubeconfig, Master, ask
from pumice.devices.device_type import CardRow
from pumice.devices.nvidia_vgpu.device_type import card_rows
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json
from pumice.wire import kinds
from pumice.wire.kinds import NODES
from pumice.wire.names import GPU_MEMORY, GPU_NUMBER, VGPU_MEMORY, VGPU_NUMBER
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.quantity import round_up

app = flags.App(group=True, help="Show the memory of shared cards (kubectl inspect gpushare).",
                  epilog="Example: kubectl inspect gpushare -d")  # fmt: skip
GAP = 2
Line = Sequence[str]


def main() -> None:
    """Entry point of the kubectl plugin."""
    import sys

    from pumice.cli.main import run_command, run_safely

    run_safely("kubectl", lambda: run_command("inspect", ["gpushare", *sys.argv[1:]], "kubectl"))


@app.command("gpushare", epilog="Example: kubectl inspect gpushare -d node-1")
def gpushare(
    node: Annotated[str, flags.Argument(help="Only this node.", show_default=False), names_of(kinds.NODES)] = "",
    details: Annotated[bool, flags.Option("-d", "--details", help="Pod by pod.")] = False,
    kubeconfig: Kubeconfig = None,
    master: Master = "",
) -> None:
    """Show how much memory of each shared card is allocated."""

    async def question(kube: Cluster) -> tuple[list[Json], list[Json]]:
        nodes = [await kube.get(NODES, node)] if node else (await kube.list(NODES))["items"]
        selector = f"spec.nodeName={node}" if node else ""
        return nodes, (await kube.list(kinds.PODS, field_selector=selector))["items"]

    nodes, pods = ask(kubeconfig, master, question)
    shares = shares_of(nodes, pods)
    if node and not shares:
        raise BadInput(f"node {node} has no cards that are shared")
    print(detailed(shares) if details else summary(shares))


class Share:
    """The cards of one node, and the pods on them."""

    def __init__(self, node: Json, cards: Sequence[CardRow], pods: Sequence[Pod]) -> None:
        self.name: str = node["metadata"]["name"]
        addresses = (node.get("status") or {}).get("addresses") or []
        self.address: str = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), "unknown")
        self.cards = {card.index: card for card in cards}
        self.count = max(self.cards, default=-1) + 1
        self.pods: dict[str, dict[int, int]] = {}  # namespace/name -> memory of each card
        for card in cards:
            for holder in card.holders:
                allocated = self.pods.setdefault(holder.pod, {})
                allocated[card.index] = allocated.get(card.index, 0) + holder.memory
        self.pending = {pod.key: requested for pod in pods if pod.key not in self.pods and (requested := _requested(pod))}

    @property
    def total(self) -> int:
        return sum(card.total for card in self.cards.values())

    @property
    def used(self) -> int:
        return sum(card.memory for card in self.cards.values()) + sum(self.pending.values())


def shares_of(nodes: Iterable[Json], pods: Iterable[Json]) -> list[Share]:
    """Nodes without shared cards are left out."""
    known = [pod for pod in (convert(Pod, obj) for obj in pods) if pod.status.phase not in ("Succeeded", "Failed")]
    shares = []
    for node in nodes:
        here = [pod for pod in known if pod.spec.node_name == node["metadata"]["name"]]
        shares.append(Share(node, card_rows(convert(Node, node), here), here))
    return [share for share in shares if share.total > 0]


def _requested(pod: Pod) -> int:
    """The request of a bound pod whose cards are not written yet."""
    total = 0
    for container in pod.spec.containers:
        limits: Any = container.resources.limits
        for memory, number in ((GPU_MEMORY, GPU_NUMBER), (VGPU_MEMORY, VGPU_NUMBER)):
            total += round_up(limits.get(memory, 0)) * max(1, round_up(limits.get(number, 0)))
    return total


def summary(shares: Sequence[Share]) -> str:
    most, waits = max((share.count for share in shares), default=0), any(share.pending for share in shares)
    lines: list[Line] = [["NAME", "IPADDRESS", *(f"GPU{i}(Allocated/Total)" for i in range(most)),
                          *(["PENDING(Allocated)"] if waits else []), "GPU Memory(MiB)"]]  # fmt: skip
    for share in shares:
        cards = [f"{card.memory}/{card.total}" if (card := share.cards.get(i)) else "0/0" for i in range(most)]
        pending = [str(sum(share.pending.values()) or "")] if waits else []
        lines.append([share.name, share.address, *cards, *pending, f"{share.used}/{share.total}"])
    table = _aligned(lines)
    return "\n".join([*table, _rule(table), "Allocated/Total GPU Memory In Cluster:", _sum(shares)])


def detailed(shares: Sequence[Share]) -> str:
    lines: list[str] = []
    for share in shares:
        columns = [f"GPU{i}(Allocated)" for i in range(share.count)] + (["Pending(Allocated)"] if share.pending else [])
        rows: list[Line] = [["NAME", "NAMESPACE", *columns]]
        for key, allocated in sorted(
            {**share.pods, **{key: {share.count: requested} for key, requested in share.pending.items()}}.items()
        ):
            namespace, _, name = key.rpartition("/")
            rows.append([name, namespace, *(str(allocated.get(i, 0)) for i in range(len(columns)))])
        rows += [["Allocated :", f"{share.used} ({_percent(share.used, share.total)}%)"], ["Total :", str(share.total)]]
        table = _aligned(rows)
        lines += ["", *_aligned([["NAME:", share.name], ["IPADDRESS:", share.address]]), "", *table, _rule(table)]
    return "\n".join([*lines, "", "", f"Allocated/Total GPU Memory In Cluster:  {_sum(shares)}"])


def _sum(shares: Sequence[Share]) -> str:
    used, total = sum(share.used for share in shares), sum(share.total for share in shares)
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _aligned(lines: Sequence[Line]) -> list[str]:
    """Columns as wide as their widest cell; the last cell of a line widens nothing."""
    widths: dict[int, int] = {}
    for line in lines:
        for at, cell in enumerate(line[:-1]):
            widths[at] = max(widths.get(at, 0), len(cell) + GAP)
    return ["".join(f"{cell:<{widths[at]}}" for at, cell in enumerate(line[:-1])) + line[-1] for line in lines]


def _rule(table: Sequence[str]) -> str:
    return "-" * max(map(len, table))
