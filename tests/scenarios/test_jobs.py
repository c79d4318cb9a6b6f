"""Volcano's Jobs from submission to their end, as users see them (spec volcano-core 16 to 18)."""

from __future__ import annotations

import base64
from typing import Any

from kit.job_world import job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.wire import volcano
from pumice.wire.batch import NETWORK_POLICIES, SECRETS, SERVICES

EVICTED = on("PodEvicted", "RestartJob")


def mindcluster() -> dict[str, Any]:
    """The Job of MindCluster's guide."""
    container = {"name": "resnet50infer", "image": "mindie", "command": ["/bin/bash", "-c", "tail -f /dev/null"],
                 "resources": {"limits": {"huawei.com/npu-core": "8"}, "requests": {"huawei.com/npu-core": "8"}}}  # fmt: skip
    template = {"metadata": {"labels": {"app": "infers", "vnpu-level": "low"}},
                "spec": {"schedulerName": "volcano", "containers": [container], "nodeSelector": {"host-arch": "huawei-arm"}}}
    return job("mindx-dls", task("default-test", 1, template=template), labels={"ring-controller.atlas": "ascend-310P"},
               minAvailable=1, schedulerName="volcano", policies=[EVICTED], maxRetry=3, queue="default",
               plugins={"ssh": [], "env": [], "svc": []})  # fmt: skip


def test_a_job_is_made_with_all_that_its_plugins_promise() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster())
            assert await world.phase("mindx-dls") == "Pending"
            assert await world.pods() == {}, "no pod before the group is let in"
            (group,) = (await world.groups()).values()
            uid = (await world.job("mindx-dls"))["metadata"]["uid"]
            assert group["metadata"]["name"] == f"mindx-dls-{uid}"
            assert group["spec"]["minTaskMember"] == {"default-test": 1}
            assert group["spec"]["minResources"]["huawei.com/npu-core"] == "8"
            await world.start()
            pod = (await world.pods())["mindx-dls-default-test-0"]
            assert {k: v for k, v in pod["metadata"]["annotations"].items() if k.startswith(("volcano", "scheduling"))} == {
                "volcano.sh/task-index": "0", "volcano.sh/task-spec": "default-test", "volcano.sh/job-name": "mindx-dls",
                "volcano.sh/queue-name": "default", "volcano.sh/job-version": "0", "volcano.sh/job-retry-count": "0",
                "volcano.sh/template-uid": "mindx-dls-default-test", "scheduling.k8s.io/group-name": f"mindx-dls-{uid}",
            }  # fmt: skip
            assert pod["metadata"]["labels"] == {
                "app": "infers", "vnpu-level": "low", "volcano.sh/task-index": "0", "volcano.sh/job-name": "mindx-dls",
                "volcano.sh/task-spec": "default-test", "volcano.sh/job-namespace": "default", "volcano.sh/queue-name": "default",
            }  # fmt: skip
            assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("mindx-dls-default-test-0", "mindx-dls")
            env = pod["spec"]["containers"][0]["env"]
            assert [each["name"] for each in env] == [
                "VK_TASK_INDEX", "VC_TASK_INDEX", "VC_DEFAULT_TEST_HOSTS", "VC_DEFAULT_TEST_NUM"]  # fmt: skip
            config = await world.found(volcano.CONFIGMAPS, "mindx-dls-svc")
            assert config is not None
            assert config["data"] == {
                "default_test.host": "mindx-dls-default-test-0.mindx-dls", "VC_DEFAULT_TEST_NUM": "1",
                "VC_DEFAULT_TEST_HOSTS": "mindx-dls-default-test-0.mindx-dls",
            }  # fmt: skip
            service = await world.found(SERVICES, "mindx-dls")
            assert service is not None
            assert service["spec"]["clusterIP"] == "None"
            assert await world.found(NETWORK_POLICIES, "mindx-dls") is not None
            assert await world.found(NETWORK_POLICIES, "mindx-dls") is not None
            secret = await world.found(SECRETS, "mindx-dls-ssh")
            assert secret is not None
            assert sorted(secret["data"]) == ["authorized_keys", "config", "id_rsa", "id_rsa.pub"]
            assert base64.b64decode(secret["data"]["config"]).decode() == (
                "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost mindx-dls-default-test-0\n"
                "  HostName mindx-dls-default-test-0.mindx-dls\n  Port 22\n"
            )
            status = await world.status("mindx-dls")
            assert status["state"]["phase"] == "Running"
            assert status["controlledResources"] == {"plugin-env": "env", "plugin-svc": "svc", "plugin-ssh": "ssh"}
            assert status["taskStatusCount"] == {"default-test": {"phase": {"Running": 1}}}

    run_virtually(story())


def test_an_evicted_pod_restarts_its_job_until_the_retries_are_used_up() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster())
            name, seen = "mindx-dls-default-test-0", []
            for _ in range(3):
                await world.start()
                assert await world.phase("mindx-dls") == "Running"
                seen.append((await world.pods())[name]["metadata"]["annotations"]["volcano.sh/job-version"])
                old = await world.group_uids()
                await world.remove(name)
                assert not old & await world.group_uids(), "the group is a new one"
            status = await world.status("mindx-dls")
            assert (status["state"]["phase"], status["retryCount"], seen) == ("Failed", 3, ["0", "1", "2"])
            assert [c["status"] for c in status["conditions"]] == [
                *["Pending", "Running", "Restarting"] * 3, "Failed",
            ]  # fmt: skip
            assert await world.pods() == {}
            assert await world.groups() == {}
            for kind, called in ((SERVICES, "mindx-dls"), (volcano.CONFIGMAPS, "mindx-dls-svc"), (SECRETS, "mindx-dls-ssh")):
                assert await world.found(kind, called) is None
            assert await world.events("ExecuteAction") == ["Start to execute action RestartJob "] * 3

    run_virtually(story())
