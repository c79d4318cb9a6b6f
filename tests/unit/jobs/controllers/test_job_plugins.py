"""The additions of each plugin to the pods of a Job, word for word (Volcano pkg/controllers/job/plugins)."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from kit.job_world import job, task

from pumice.adapters.certificates import rsa_pair
from pumice.wire.batch import Job
from pumice.wire.kinds import SERVICES
from pumice_jobs.controllers.job import reconcile
from pumice_jobs.controllers.job.defaults import completed
from pumice_jobs.controllers.job.plugins import registry
from pumice_jobs.controllers.job.plugins.contract import parsed
from pumice_jobs.controllers.job.validation import problems

POD = {"spec": {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "first", "image": "i"}]}}


def made(*tasks: Any, **spec: Any) -> Job:
    """A Job as the controller sees it."""
    obj = job("j", *tasks, **spec)
    obj["metadata"] |= {"uid": "u1", "generation": 1}
    return completed(msgspec.json.decode(msgspec.json.encode(obj), type=Job))


def pod(of: Job, name: str, index: int = 0) -> dict[str, Any]:
    return reconcile.body(of, next(each for each in of.spec.tasks if each.name == name), index, "group")


def env(of: dict[str, Any], container: str = "containers") -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in of["spec"][container][0].get("env", [])}


def test_tensorflow_tells_every_process_of_the_cluster() -> None:
    found = made(task("ps", 1), task("worker", 2), plugins={"tensorflow": ["--port=5000"]})
    assert json.loads(env(pod(found, "worker", 1))["TF_CONFIG"]) == {
        "cluster": {"ps": ["j-ps-0.j:5000"], "worker": ["j-worker-0.j:5000", "j-worker-1.j:5000"]},
        "task": {"type": "worker", "index": 1},
    }  # fmt: skip
    assert "svc" in found.spec.plugins
    assert "TF_CONFIG" not in env(pod(made(task("worker", 1), plugins={"tensorflow": []}), "worker"))


def test_tensorflow_takes_roles_under_other_names() -> None:
    found = made(task("params", 1), task("main", 1), plugins={"tensorflow": ["--ps=params", "--chief=main"]})
    assert json.loads(env(pod(found, "main"))["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}


def test_pytorch_ranks_the_workers_behind_the_master_and_opens_its_port() -> None:
    found = made(task("master", 1, template=POD), task("worker", 2, template=POD), plugins={"pytorch": []})
    for name, index, rank in (("master", 0, "0"), ("worker", 0, "1"), ("worker", 1, "2")):
        shaped = pod(found, name, index)
        assert {key: env(shaped)[key] for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")} == {
            "MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": rank}  # fmt: skip
        assert shaped["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]
    assert [each["name"] for each in pod(found, "worker")["spec"]["initContainers"]] == ["first"]


def test_pytorch_lets_workers_wait_for_the_master_where_that_is_asked_for() -> None:
    flags = ["--wait-master-enabled=true", "--wait-master-timeout=60", "--port=777"]
    found = made(task("master", 1), task("worker", 1), plugins={"pytorch": flags})
    (waiter,) = pod(found, "worker")["spec"]["initContainers"]
    assert (waiter["name"], waiter["image"]) == ("wait-for-master", "busybox:1.36.1")
    assert "nc -z -w 1 j-master-0.j 777" in waiter["command"][2]
    assert "left=60" in waiter["command"][2]
    assert "initContainers" not in pod(found, "master")["spec"]


def test_mpi_brings_ssh_and_svc_and_tells_the_master_its_workers() -> None:
    found = made(task("master", 1, template=POD), task("worker", 2), plugins={"mpi": []})
    assert set(found.spec.plugins) == {"mpi", "ssh", "svc"}
    master = pod(found, "master")
    assert env(master)["MPI_HOST"] == env(master, "initContainers")["MPI_HOST"] == "j-worker-0.j,j-worker-1.j"
    assert master["spec"]["containers"][0]["ports"] == [{"name": "mpijob-port", "containerPort": 22}]
    assert "MPI_HOST" not in env(pod(found, "worker"))
    assert registry.problem(made(task("worker", 2), plugins={"mpi": []})) == "The specified mpi master task was not found"


def test_ray_starts_head_and_workers_and_serves_the_head() -> None:
    found = made(task("head", 1), task("worker", 1), plugins={"ray": ["--port=7000"]})
    (head,) = pod(found, "head")["spec"]["containers"]
    assert head["args"] == ["ray start --head --block --dashboard-host=0.0.0.0 --port=7000 --dashboard-port=8265"
                            " --ray-client-server-port=10001"]  # fmt: skip
    assert [each["containerPort"] for each in head["ports"]] == [7000, 8265, 10001]
    (worker,) = pod(found, "worker")["spec"]["containers"]
    assert worker["args"] == ["ray start --block --address=j-head-0.j:7000"]
    (service,) = registry.objects(found, "ray")
    assert (service.resource, service.body["metadata"]["name"]) == (SERVICES, "j-head-svc")
    assert [each["port"] for each in service.body["spec"]["ports"]] == [7000, 8265, 10001]


def test_ray_leaves_other_tasks_what_they_run_and_so_workers_without_a_head() -> None:
    beside = made(task("head", 1), task("worker", 1), task("eval", 1), plugins={"ray": []})
    headless = made(task("worker", 1), plugins={"ray": []})
    for found, name in ((beside, "eval"), (headless, "worker")):
        (container,) = pod(found, name)["spec"]["containers"]
        assert "args" not in container, name


def test_hcclrank_numbers_master_and_workers() -> None:
    found = made(task("master", 2), task("worker", 2), task("other", 1), plugins={"hcclrank": []})
    ranks = [pod(found, name, index)["metadata"]["annotations"].get("hccl/rankIndex")
             for name, index in (("master", 1), ("worker", 0), ("worker", 1), ("other", 0))]  # fmt: skip
    assert ranks == ["1", "2", "3", None]


def test_ssh_mounts_the_keys_where_they_are_wanted_and_takes_those_given() -> None:
    flags = ["--ssh-key-file-path=/home/me/.ssh", "--ssh-private-key=PRIVATE", "--ssh-public-key=PUBLIC", "--ssh-port=99999"]
    found = made(task("a", 1, template=POD), plugins={"ssh": flags})
    (secret,) = registry.objects(found, "ssh")
    assert not secret.keys
    assert {key: base64.b64decode(value).decode() for key, value in secret.body["data"].items()} == {
        "id_rsa": "PRIVATE", "id_rsa.pub": "PUBLIC", "authorized_keys": "PUBLIC",
        "config": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost j-a-0\n  HostName j-a-0.j\n  Port 22\n",
    }  # fmt: skip
    shaped = pod(found, "a")
    (volume,) = shaped["spec"]["volumes"]
    assert (volume["secret"]["secretName"], volume["secret"]["defaultMode"]) == ("j-ssh", 0o644)
    for container in (*shaped["spec"]["containers"], *shaped["spec"]["initContainers"]):
        assert container["volumeMounts"] == [{"name": "j-ssh", "mountPath": "/home/me/.ssh", "subPath": ".ssh"}]
    assert pod(made(task("a"), plugins={"ssh": []}), "a")["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o600


def test_a_fresh_key_is_an_rsa_key_as_ssh_reads_it() -> None:
    private, public = rsa_pair()
    assert private.startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert public.startswith("ssh-rsa AAAA")


def test_svc_knows_a_fixed_host_name_once_and_leaves_out_what_is_disabled() -> None:
    fixed = {"spec": {"hostname": "box", "subdomain": "net", "containers": [{"name": "c", "image": "i"}]}}
    found = made(task("a-b", 3, template=fixed), plugins={"svc": ["--disable-network-policy=true", "--inject-hosts-env=false"]})
    config, service = registry.objects(found, "svc")
    assert config.body["data"] == {"a_b.host": "box.net", "VC_A_B_HOSTS": "box.net", "VC_A_B_NUM": "1"}
    assert service.body["spec"]["publishNotReadyAddresses"] is False
    assert env(pod(found, "a-b")) == {}
    assert pod(found, "a-b")["spec"]["containers"][0]["volumeMounts"] == [{"name": "j-svc", "mountPath": "/etc/volcano"}]


@pytest.mark.parametrize(("words", "found"), [
    (["--port=7"], "7"), (["-port=7"], "7"), (["-port 7"], "7"), (["-port", "7"], "7"), (["--unknown=1", "--port=7"], "7"),
    ([], "1"),
])  # fmt: skip
def test_flags_are_read_as_go_reads_them(words: list[str], found: str) -> None:
    assert parsed(words, {"port": "1"}) == {"port": found}


def test_a_switch_needs_no_value() -> None:
    assert parsed(["--on", "--port=2"], {"on": "false", "port": "1"}) == {"on": "true", "port": "2"}


def test_what_a_job_leaves_out_is_what_admission_would_have_written() -> None:
    found = made({"replicas": 2, "template": POD}, task("b", 3, minAvailable=1))
    assert [each.name for each in found.spec.tasks] == ["default0", "b"]
    spec = found.spec
    assert (spec.min_available, spec.max_retry, spec.queue, spec.scheduler_name) == (3, 3, "default", "volcano")
    assert problems(found, registry.PLUGINS) == ""
