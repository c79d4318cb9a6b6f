"""A container's environment and volumes, from the pod, ConfigMaps, Secrets and the downward API."""

from __future__ import annotations

import base64
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from lab.tests.unit.kubelet.world import OnNode, World

from pumice.wire.kinds import CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SECRETS, SERVICE_ACCOUNTS
from pumice_lab.kubelet.command import hosts_file, is_own_image
from pumice_lab.kubelet.environment import (
    ConfigMissing,
    build_environment,
    expand,
    expand_all,
    field_value,
    resource_value,
)
from pumice_lab.kubelet.fit import pod_requests
from pumice_lab.runtime.spec import StartFailed

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": 'say "1"'},
                    "annotations": {"x/y": "z"}},
       "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}]}}


@pytest.mark.parametrize(("text", "expanded"), [
    ("$(A)-$(B)", "1-$(B)"), ("$$(A)", "$(A)"), ("$A $", "$A $"), ("$(A", "$(A"), ("", ""), ("$(A)$(A)", "11"), ("$$$(A)", "$1"),
])  # fmt: skip
def test_references_are_expanded_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def env_of(container: dict[str, Any], pod: dict[str, Any] = POD, **more: Any) -> dict[str, str]:
    given = {"facts": {"status.podIP": "127.1.2.3"}, "base": {}, "plugins": [], "maps": {}, "secrets": {}, **more}
    return build_environment({"name": "c", **container}, pod, **given)


def test_sources_of_the_environment_have_their_precedence() -> None:
    env = env_of({"envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
                  "env": [{"name": "S", "value": "own"}, {"name": "LATER", "value": "$(S)$(P_k)"}]},
                 base={"BASE": "b", "PLUG": "b"}, plugins=[(("PLUG", "first"),), (("PLUG", "second"), ("k", "x"))],
                 maps={"m": {"k": "1"}}, secrets={"s": {"S": "secret"}})
    assert env == {"BASE": "b", "PLUG": "first", "k": "x", "P_k": "1", "S": "own", "LATER": "own1"}


def doubling(name: str, steps: int, first: str) -> list[dict[str, Any]]:
    """Variables of which each is twice the one before it."""
    return [{"name": f"{name}0", "value": first}, *(
        {"name": f"{name}{i}", "value": f"$({name}{i - 1})" * 2} for i in range(1, steps + 1))]


MULTIPLYING: dict[str, Any] = {
    "variables that double": {"env": doubling("E", 40, "x" * 100)},
    "many of the largest": {"env": [
        *doubling("E", 10, "x" * 100), *({"name": f"F{i}", "value": "$(E10)"} for i in range(20_000))]},
    "one of many references": {"env": [*doubling("E", 10, "x" * 100), {"name": "F", "value": "$(E10)" * 100_000}]},
    "a map under many prefixes": {"envFrom": [{"prefix": f"P{i}_", "configMapRef": {"name": "m"}} for i in range(1000)]},
    "a note in many variables": {"env": [
        {"name": f"N{i}", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x/y']"}}} for i in range(50_000)]},
    "a long variable": {"env": [{"name": "A", "value": "ü" * 70_000}]},
}


@pytest.mark.parametrize("kind", MULTIPLYING)
def test_an_environment_that_multiplies_itself_ends_where_linux_ends_it(kind: str) -> None:
    tracemalloc.start()
    try:
        note = {**POD, "metadata": {**POD["metadata"], "annotations": {"x/y": "n" * 100_000}}}
        with pytest.raises(StartFailed, match="argument list too long"):
            env_of(MULTIPLYING[kind], maps={"m": {f"k{i}": "x" * 1000 for i in range(1000)}}, pod=note)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_command_line_that_multiplies_itself_ends_where_linux_ends_it() -> None:
    for words in (["$(A)"] * 100_000, ["$(A)" * 1000], ["x" * 131_072]):
        with pytest.raises(StartFailed, match="argument list too long"):
            expand_all(words, {"A": "x" * 100_000})
    assert expand_all(["x" * 131_071, "$(A)"], {"A": "1"})[1] == "1"


def test_a_pod_whose_variables_double_fails_and_says_why(on_node: OnNode) -> None:
    async def work(world: World) -> None:
        await world.pod("p", container={"env": doubling("E", 40, "x" * 100)}, restartPolicy="Never")
        await world.settle(5)
        ended = (await world.state("p"))["state"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
        assert (await world.status("p"))["phase"] == "Failed"
        assert "argument list too long" in ended["message"]

    on_node(work)


def test_what_is_missing_is_named_unless_it_is_optional() -> None:
    ref = {"name": "m", "key": "k"}
    for container, text in (
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, 'configmap "m" not found'),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": ref}}]}, 'secret "m" not found'),
    ):
        with pytest.raises(ConfigMissing, match=text):
            env_of(container, maps={"m": None}, secrets={"m": None})
    with pytest.raises(ConfigMissing, match="couldn't find key k in configmap ns/m"):
        env_of({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": ref}}]}, maps={"m": {}})
    assert env_of({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {**ref, "optional": True}}}]}, maps={"m": None}) == {}


@pytest.mark.parametrize(("path", "value"), [
    ("metadata.name", "p"), ("metadata.namespace", "ns"), ("metadata.uid", "u"), ("metadata.labels['b']", "2"),
    ("metadata.annotations['x/y']", "z"), ("metadata.labels", 'a="say \\"1\\""\nb="2"'), ("spec.nodeName", "n1"),
    ("status.podIP", "127.1.2.3"), ("metadata.labels['none']", ""), ("spec.nothing", ""),
])  # fmt: skip
def test_fields_of_the_downward_api(path: str, value: str) -> None:
    assert field_value(POD, path, {"status.podIP": "127.1.2.3"}) == value


@pytest.mark.parametrize(("ref", "value"), [
    ({"resource": "limits.cpu"}, "2"), ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
    ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"), ({"resource": "requests.cpu"}, "0"),
])  # fmt: skip
def test_resources_of_the_downward_api_are_rounded_up(ref: dict[str, str], value: str) -> None:
    assert resource_value(POD["spec"]["containers"][0], POD, ref) == value  # type: ignore[index]


@pytest.mark.parametrize(("image", "own"), [
    ("pumice", True), ("pumice:v1", True), ("ghcr.io/x/pumice@sha256:12", True), ("localhost:5000/pumice:v1", True),
    ("pumice-other", False), ("pumice/other", False), ("busybox", False),
])  # fmt: skip
def test_our_own_image_is_told_by_its_name(image: str, own: bool) -> None:
    assert is_own_image(image, ("pumice",)) is own


def test_a_pods_hosts_file_names_the_pod_and_its_aliases() -> None:
    pod = {**POD, "spec": {**POD["spec"], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}]}}
    assert hosts_file(pod, "127.9.9.9", "127.0.0.1 localhost\n").splitlines() == [
        "127.0.0.1 localhost", "127.9.9.9\tp", "10.0.0.1\ta b"]


def test_a_pods_requests_are_the_larger_of_its_two_phases() -> None:
    def box(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [box("1"), box("500m")], "initContainers": [
        box("100m", restartPolicy="Always"), box("3")], "overhead": {"cpu": "10m"}}
    assert pod_requests({"spec": spec}) == {"cpu": 3110}


async def mounted(here: World, volume: dict[str, Any], **mount: Any) -> Path:
    """Start a pod with one volume; give the folder that its container got."""
    await here.pod("p", container={"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]},
                   volumes=[{"name": "v", **volume}])
    await here.settle()
    (found,) = [m for m in here.runtime.started[0].mounts if m.target == "/v"]
    return Path(found.source)


async def config_map(here: World, name: str, **data: str) -> None:
    meta = {"name": name, "namespace": "default"}
    await here.kube.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def test_a_config_map_volume_holds_its_keys_and_follows_changes(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await config_map(here, "m", one="1", two="2")
        folder = await mounted(here, {"configMap": {"name": "m", "defaultMode": 0o400}})
        before = folder.stat().st_ino
        assert {p.name: p.read_text() for p in folder.iterdir()} == {"one": "1", "two": "2"}
        assert (folder / "one").stat().st_mode & 0o777 == 0o400
        await here.kube.patch(CONFIGMAPS, "m", {"data": {"one": "new", "two": None}}, "default")
        await here.settle(65)
        assert {p.name: p.read_text() for p in folder.iterdir()} == {"one": "new"}
        assert folder.stat().st_ino == before  # containers have this folder mounted

    on_node(work)


def test_a_volume_of_a_map_is_read_only_and_nothing_that_lies_in_its_place_holds_the_kubelet_up(
    on_node: OnNode,
) -> None:
    async def work(world: World) -> None:
        await world.kube.create(CONFIGMAPS, {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2", "c": "3"}}, "default")
        await world.pod("p", container={"volumeMounts": [{"name": "v", "mountPath": "/m"}]},
                        volumes=[{"name": "v", "configMap": {"name": "m"}}])  # fmt: skip
        await world.settle(2)
        (mount,) = [mount for mount in world.runtime.started[-1].mounts if mount.target == "/m"]
        assert mount.read_only
        place = Path(mount.source)
        for name in ("a", "b", "c"):
            (place / name).unlink()
        os.mkfifo(place / "a")
        os.mkfifo(place / ".b.new")
        reader = os.open(place / ".b.new", os.O_RDONLY | os.O_NONBLOCK)
        with open(place / "c", "wb") as file:
            file.truncate(1 << 42)
        await world.settle(100)
        os.close(reader)
        found = {name: (place / name).is_file() and (place / name).stat().st_size for name in ("a", "b", "c")}
        assert found == {"a": 1, "b": 1, "c": 1}

    on_node(work)


def test_items_choose_keys_and_paths(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        data = {"k": base64.b64encode(b"\x00\xff").decode(), "other": ""}
        await here.kube.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "data": data,
                                         "metadata": {"name": "s", "namespace": "default"}})
        folder = await mounted(here, {"secret": {"secretName": "s", "items": [{"key": "k", "path": "deep/er", "mode": 0o440}]}})
        assert (folder / "deep" / "er").read_bytes() == b"\x00\xff"
        assert [p.name for p in folder.iterdir()] == ["deep"]

    on_node(work)


async def claimed(here: World, **source: Any) -> None:
    """A claim ``c`` that is bound to a volume of this kind."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv"}
    made = await here.kube.create(PERSISTENT_VOLUME_CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": wanted,
                                                             "metadata": {"name": "c", "namespace": "default"}})
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "c", "uid": made["metadata"]["uid"]}, **source}  # fmt: skip
    await here.kube.create(PERSISTENT_VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
                                                "spec": spec})
    await here.kube.patch(PERSISTENT_VOLUME_CLAIMS, "c", {"status": {"phase": "Bound"}}, "default", subresource="status")


ANYWHERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}]}}


def test_a_claims_volume_is_the_folder_that_it_names(on_node: OnNode, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()

    async def work(here: World) -> None:
        await claimed(here, local={"path": str(tmp_path / "disk")}, nodeAffinity=ANYWHERE)
        assert await mounted(here, {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}) == tmp_path / "disk"
        (mount,) = [m for m in here.runtime.started[0].mounts if m.target == "/v"]
        assert mount.read_only

    on_node(work)


def test_a_folder_that_the_machine_lacks_is_made_for_a_host_path_alone_and_on_that_node(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await claimed(here, hostPath={"path": "/no-such-place/data"})
        folder = await mounted(here, {"persistentVolumeClaim": {"claimName": "c"}})
        assert folder.is_dir()
        assert not Path("/no-such-place").exists()

    on_node(work)


@pytest.mark.parametrize("source", [
    {"local": {"path": "/no-such-place"}, "nodeAffinity": ANYWHERE}, {"nfs": {"server": "s", "path": "/x"}},
    {"hostPath": {"path": "/tmp"}, "volumeMode": "Block"},
])  # fmt: skip
def test_a_pod_waits_for_a_volume_that_is_not_of_this_machine(on_node: OnNode, source: dict[str, Any]) -> None:
    async def work(here: World) -> None:
        await claimed(here, **source)
        await here.pod("p", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                       volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
        await here.settle()
        assert not here.runtime.started

    on_node(work)


def test_a_claim_that_names_anothers_volume_gets_nothing_of_it(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await claimed(here, hostPath={"path": "/usr"}, claimRef={"namespace": "default", "name": "c", "uid": "another"})
        await here.pod("p", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                       volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
        await here.settle()
        assert not here.runtime.started

    on_node(work)


def test_a_path_that_leads_out_of_the_volume_is_refused(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await config_map(here, "m", k="v")
        body = {"name": "v", "projected": {"sources": [{"configMap": {"name": "m", "items": [{"key": "k", "path": "ok"}]}}]}}
        await here.pod("sub", container={"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x/../../../.."}]},
                       volumes=[body])
        await here.settle()
        assert not here.runtime.started

    on_node(work)


def test_a_pod_that_shows_one_map_at_ten_thousand_paths_waits_and_says_why(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await config_map(here, "m", k="x" * 1_000_000)
        items = [{"key": "k", "path": f"p{i}"} for i in range(10_000)]
        await here.pod("p", volumes=[{"name": "v", "configMap": {"name": "m", "items": items}}])
        await here.settle(5)
        assert not here.runtime.started
        assert any("show more than 67108864 bytes" in message for _, _, message, _ in await here.events("p"))
        assert sum(path.stat().st_size for path in here.directory.rglob("*") if path.is_file()) < 1 << 20

    on_node(work)


def test_a_projected_volume_joins_its_sources(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await config_map(here, "m", k="v")
        await here.kube.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount",
                                          "metadata": {"name": "default", "namespace": "default"}})
        folder = await mounted(here, {"projected": {"sources": [
            {"configMap": {"name": "m"}}, {"configMap": {"name": "none", "optional": True}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}})
        assert (folder / "k").read_text() == "v"
        assert (folder / "name").read_text() == "p"
        token = (folder / "token").read_text()
        assert token
        await here.settle(400)
        assert (folder / "token").read_text() == token
        await here.settle(200)
        assert (folder / "token").read_text() != token  # a new one before the old one ends

    on_node(work)


def test_an_empty_dir_lives_as_long_as_its_pod(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        folder = await mounted(here, {"emptyDir": {}})
        (folder / "data").write_text("x")
        await here.runtime.signal(next(iter(here.runtime.running())), 15)
        await here.settle(5)
        assert (folder / "data").exists()
        await here.kube.delete(PODS, "p", "default")
        await here.settle(5)
        assert not folder.exists()

    on_node(work)


def test_a_host_path_is_the_hosts_own_and_a_missing_one_lies_in_the_data_dir(on_node: OnNode, tmp_path: Path) -> None:
    async def work(here: World) -> None:
        assert await mounted(here, {"hostPath": {"path": "/usr"}}) == Path("/usr")
        await here.kube.delete(PODS, "p", "default", grace=0)
        here.runtime.started.clear()
        missing = await mounted(here, {"hostPath": {"path": "/no/such/place", "type": "DirectoryOrCreate"}})
        assert missing.is_relative_to(tmp_path)
        assert missing.is_dir()
        assert not Path("/no").exists()
        await here.kube.delete(PODS, "p", "default", grace=0)
        here.runtime.started.clear()
        assert await mounted(here, {"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}) == here.settings.plugin_dir

    on_node(work)


def test_a_host_path_that_must_exist_keeps_the_pod_waiting(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", volumes=[{"name": "v", "hostPath": {"path": "/no/such/place", "type": "Directory"}}])
        await here.settle()
        (event, *_) = await here.events("p")
        assert event[2].endswith(': hostPath type check failed: /no/such/place is not a directory')

    on_node(work)


def test_liveness_and_readiness_probes_have_their_say(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        """In a hollow container every exec fails."""
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 5, "failureThreshold": 2}
        await here.pod("alive", container={"livenessProbe": probe})
        await here.pod("ready", container={"readinessProbe": probe})
        await here.settle(40)
        assert (await here.state("alive"))["restartCount"] >= 1
        assert [r for r in await here.reasons("alive") if r in ("Unhealthy", "Killing")]
        state = await here.state("ready")
        assert (state["ready"], state["restartCount"]) == (False, 0)
        conditions = {c["type"]: c["status"] for c in (await here.status("ready"))["conditions"]}
        assert (conditions["Ready"], conditions["Initialized"]) == ("False", "True")

    on_node(work)
