"""A scheduler with claims can be kept as bytes, and what a journal tells of claims is played anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.claims import of_memory, published, shared_card
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.objects import node, pod
from kit.scheduler_confs import conf
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.main import main
from pumice.journal.freezing import freeze, thaw
from pumice.wire import kinds


def test_an_engine_with_claims_is_thawed_as_it_was() -> None:
    world = ClaimWorld()
    world.add(node("n1"))
    world.publish(GPU, {"kind": "ResourceSlice", **published(shared_card())})
    world.ask("a", of_memory("50Gi", cores="10"))
    world.settle()
    world.ask("b", of_memory("40Gi", cores="10"))
    world.settle()
    world.engine = thaw(freeze(world.engine))
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    world.delete_pod("a")
    world.settle()
    assert world.node_of("b") == "n1"


async def ask(running: Daemon, name: str) -> None:
    """A pod with a claim of a template, made by hand as the controller of claims makes it."""
    await create(running.cluster, pod(name, cpu="1", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
    uid = (await running.cluster.get(kinds.PODS, name, "default"))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    meta = {"name": f"{name}-gpu", "namespace": "default", "ownerReferences": [owner]}
    await running.cluster.create(kinds.RESOURCE_CLAIMS, {"metadata": meta, "spec": whole()["spec"]}, "default")
    said: dict[str, Any] = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}}
    await running.cluster.patch(kinds.PODS, name, said, "default", subresource="status")


async def end(running: Daemon, name: str) -> None:
    await running.cluster.delete(kinds.PODS, name, "default", grace=0)
    claim = await running.cluster.get(kinds.RESOURCE_CLAIMS, f"{name}-gpu", "default")
    claim["metadata"].pop("finalizers", None)
    await running.cluster.update(kinds.RESOURCE_CLAIMS, claim)
    await running.cluster.delete(kinds.RESOURCE_CLAIMS, f"{name}-gpu", "default")


def test_pods_with_claims_are_placed_when_a_journal_is_played_with_another_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "journal"

    async def story() -> None:
        async with daemon(node("n1"), settings=Settings(journal=folder)) as running:
            await running.cluster.create(kinds.DEVICE_CLASSES, {k: v for k, v in GPU.items() if k != "kind"})
            await running.cluster.create(kinds.RESOURCE_SLICES, {k: v for k, v in cards("n1", 1).items() if k != "kind"})
            await ask(running, "a")
            await running.bind_all("a")
            await ask(running, "b")
            await running.clock.sleep(100)
            await end(running, "a")
            await running.bind_all("b")
            await running.clock.sleep(50)
            await end(running, "b")
            await running.clock.sleep(5)

    run_virtually(story())
    (tmp_path / "other.conf").write_text(conf("gang", "predicates", "nodeorder"))
    with pytest.raises(SystemExit) as over:
        main(["replay", str(folder), "--conf", str(tmp_path / "other.conf"), "-o", "json"])
    assert not over.value.code
    for variant in json.loads(capsys.readouterr().out)["variants"]:
        starts = {key: started for key, (started, _) in variant["starts"].items()}
        assert starts == {"default/a": pytest.approx(0, abs=5), "default/b": pytest.approx(100, abs=5)}, variant["variant"]
        assert not variant["fits_no_node"]
