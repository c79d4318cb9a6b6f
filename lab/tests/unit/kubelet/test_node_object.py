"""The node that the twin registers and keeps, in virtual time."""

from __future__ import annotations

from lab.tests.unit.kubelet.world import OnNode, World

from pumice.wire.kinds import LEASES, NODES
from pumice_lab.kubelet.simulator import KubeletSimulator


def test_the_node_registers_with_its_size_and_keeps_its_lease(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.settle(100)
        node = await here.kube.get(NODES, "n1")
        assert node["status"]["allocatable"]["cpu"] == "8"
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
        assert node["status"]["declaredFeatures"] == ["ExtendWebSocketsToKubelet"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
        lease = await here.kube.get(LEASES, "n1", "kube-node-lease")
        assert lease["spec"]["holderIdentity"] == "n1"

    on_node(work)


def test_a_capacity_that_a_plugin_wrote_is_copied_to_allocatable_and_kept(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        name = "volcano.sh/vgpu-memory"
        await here.kube.patch(NODES, "n1", {"status": {"capacity": {name: "22356"}}}, subresource="status")
        await here.settle(1)
        node = (await here.kube.get(NODES, "n1"))["status"]
        assert (node["capacity"][name], node["allocatable"][name]) == ("22356", "22356")
        await here.settle(60)
        assert (await here.kube.get(NODES, "n1"))["status"]["capacity"][name] == "22356"
        await here.kube.patch(NODES, "n1", {"status": {"capacity": {name: None}}}, subresource="status")
        await here.settle(15)
        assert name not in (await here.kube.get(NODES, "n1"))["status"]["allocatable"]

    on_node(work)


def test_a_twin_can_be_made_for_every_node_of_a_large_cluster_without_sockets(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        assert isinstance(here.simulator, KubeletSimulator)
        assert here.simulator.port == 0
        assert not here.settings.plugin_dir.exists()

    on_node(work)
