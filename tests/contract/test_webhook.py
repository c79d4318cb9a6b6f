"""The admission server before an API server: it registers itself, fills in, refuses, and comes back after what befalls it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from kit.control_plane import Api
from kit.job_world import job, task
from kit.manifests import token_of
from kit.objects import queue
from kit.tenant_cases import VOID, env, plain, share

from pumice.adapters.kube import Access, KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice.wire.batch import CRON_JOBS
from pumice.wire.kinds import CLUSTER_ROLES, NAMESPACES, PODS, SECRETS
from pumice.wire.share_claims import Share, parse
from pumice.wire.volcano import JOBS, POD_GROUPS, QUEUES, SCHEDULING_API
from pumice_jobs.admission.review import Settings as Rules
from pumice_jobs.admission.rules import API, LABELS, MUTATING, RULES, VALIDATING, owned_by
from pumice_jobs.apps.webhook import daemon
from pumice_jobs.apps.webhook.registering import SECRET, Place, take_back
from pumice_lab import first_objects
from pumice_lab.spec import uniform

pytestmark = pytest.mark.kube
SYSTEM = "volcano-system"
PATHS = ",".join(rule.path for rule in RULES if rule.word not in ("pods", "jobflows"))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.asynccontextmanager
async def webhook(api: Api, port: int) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    """(everybody's client, the server's) while the server runs as its own account. Its registration is taken away at the end: the
    API server is shared, and would wait for us."""
    tls = ssl.create_default_context(cafile=str(api.ca))
    account = token_of(api, "volcano-admission.yml", "volcano-admission")
    everybody, server = Access(api.url, tls, lambda: api.token), Access(api.url, tls, lambda: account)
    async with KubeClient(everybody) as kube, KubeClient(server) as own:
        await first_objects.ensure(kube, uniform(1, 1, "Tesla-V100-SXM2-16GB"))
        with contextlib.suppress(ApiError):
            await kube.create(QUEUES, queue("default"))
        stop, ready = asyncio.Event(), asyncio.Event()
        paths = daemon.paths_of(f"{PATHS},/pods/validate")
        place = Place(namespace=SYSTEM, url=f"https://127.0.0.1:{port}")
        settings = daemon.Settings(Rules(), paths, f"127.0.0.1:{port}", "127.0.0.1:0", place)
        running = asyncio.create_task(daemon.run(settings, cluster=own, clock=SystemClock(), stop=stop, ready=ready))
        try:
            await asyncio.wait_for(ready.wait(), 30)
            yield kube, own
        finally:
            stop.set()
            await asyncio.wait_for(running, 10)
            for resource in (MUTATING, VALIDATING):
                for found in (await kube.list(resource, label_selector="app=volcano-admission"))["items"]:
                    await kube.delete(resource, found["metadata"]["name"])


def play(api: Api, story: Callable[[KubeClient, KubeClient], Awaitable[Any]], port: int = 0) -> None:
    async def all_of_it() -> None:
        async with webhook(api, port or free_port()) as (kube, own):
            await story(kube, own)

    asyncio.run(all_of_it())


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    """A registration counts for the API server a moment after it was written."""
    for _ in range(100):
        if await ask():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the API server does not ask")


async def refused(kube: KubeClient, obj: dict[str, Any], resource: Any, namespace: str = "") -> str:
    try:
        made = await kube.create(resource, obj, namespace)
    except ApiError as error:
        return error.message
    await kube.delete(resource, made["metadata"]["name"], namespace)
    return ""


def test_a_job_is_filled_in_and_one_that_cannot_be_meant_is_refused_with_the_reason(api: Api, namespace: str) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        bad = job("bad", task("a"), task("a"), namespace=namespace)
        await until(lambda: _says(kube, bad, JOBS, namespace, "duplicated task name a;"))
        pods = {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
        bare = job("bare", pods, namespace=namespace)
        made = await kube.create(JOBS, bare, namespace)
        assert (made["spec"]["minAvailable"], made["spec"]["maxRetry"], made["spec"]["queue"]) == (2, 3, "default")
        assert made["spec"]["tasks"][0]["name"] == "default0"
        with pytest.raises(ApiError, match="may not change fields other than"):
            await kube.patch(JOBS, "bare", {"spec": {"queue": "other"}}, namespace)
        await kube.patch(JOBS, "bare", {"spec": {"minAvailable": 1}}, namespace)
        await kube.delete(JOBS, "bare", namespace)

    play(api, story)


def test_a_cronjob_that_no_clock_knows_is_refused_and_so_is_a_podgroup_of_no_queue(api: Api, namespace: str) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        spec = {"schedule": "every night", "jobTemplate": {"spec": job("j", task("a"))["spec"]}}
        nightly = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob",
                   "metadata": {"name": "nightly", "namespace": namespace}, "spec": spec}  # fmt: skip
        await until(lambda: _says(kube, nightly, CRON_JOBS, namespace, "schedule is not a valid cron expression"))
        made = await kube.create(CRON_JOBS, {**nightly, "spec": {**spec, "schedule": "0 3 * * *"}}, namespace)
        with pytest.raises(ApiError, match="unknown timeZone"):
            await kube.patch(CRON_JOBS, "nightly", {"spec": {"timeZone": "Nowhere!"}}, namespace)
        await kube.delete(CRON_JOBS, made["metadata"]["name"], namespace)
        group = {"apiVersion": SCHEDULING_API, "kind": "PodGroup", "metadata": {"name": "g", "namespace": namespace},
                 "spec": {"minMember": 1, "queue": "nowhere"}}  # fmt: skip
        await until(lambda: _says(kube, group, POD_GROUPS, namespace, "unable to find queue"))

    play(api, story)


async def _says(kube: KubeClient, obj: dict[str, Any], resource: Any, namespace: str, words: str) -> bool:
    return words in await refused(kube, obj, resource, namespace)


def test_queues_are_held_to_their_tree_and_those_made_a_moment_ago_are_known(api: Api, namespace: str) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        lost = {**queue(f"{namespace}-lost"), "spec": {"weight": 1, "parent": "nowhere"}}
        await until(lambda: _says(kube, lost, QUEUES, "", "failed to get parent queue"))
        parent = f"{namespace}-parent"
        await kube.create(QUEUES, {**queue(parent), "spec": {"weight": 1, "deserved": {"cpu": "4"}}})
        child = {**queue(f"{namespace}-child"), "spec": {"weight": 1, "parent": parent, "deserved": {"cpu": "9"}}}
        assert "exceeds parent's deserved limit" in await refused(kube, child, QUEUES)
        await kube.create(QUEUES, {**child, "spec": {**child["spec"], "deserved": {"cpu": "2"}}})
        to_a_parent = job("j", task("a"), namespace=namespace, queue=parent)
        await until(lambda: _says(kube, to_a_parent, JOBS, namespace, "can only submit job to leaf queue"))
        with pytest.raises(ApiError, match="can not be deleted because it has 1 child queues"):
            await kube.delete(QUEUES, parent)
        await kube.delete(QUEUES, child["metadata"]["name"])
        await until(lambda: _gone(kube, parent))

    play(api, story)


async def _gone(kube: KubeClient, name: str) -> bool:
    try:
        await kube.delete(QUEUES, name)
    except ApiError as error:
        return error.code == 404
    return True


def test_a_second_start_shows_the_same_certificate_and_a_forged_one_is_made_anew(api: Api, namespace: str) -> None:
    seen: list[str] = []

    async def story(kube: KubeClient, own: KubeClient) -> None:
        secret = await kube.get(SECRETS, SECRET, SYSTEM)
        seen.append(secret["data"]["tls.crt"])
        if len(seen) == 2:
            await kube.patch(SECRETS, SECRET, {"data": {"tls.crt": "Zm9yZ2Vk", "ca.key": None}}, SYSTEM)

    port = free_port()
    for _ in range(3):
        play(api, story, port)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 200_000, b'{"request":' + b"[" * 200_000, b'{"request":{"uid":1}}'])
def test_what_is_no_review_is_an_error_of_whoever_sent_it(api: Api, body: bytes) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        async with aiohttp.ClientSession() as anybody:
            requested = await anybody.post(f"https://127.0.0.1:{port}/pods/validate", data=body, ssl=tls)
            assert requested.status == 400

    port = free_port()
    play(api, story, port)


def test_what_is_decided_no_more_is_asked_no_more(api: Api, namespace: str) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        bad = job("bad", task("a"), task("a"), namespace=namespace)
        await until(lambda: _says(kube, bad, JOBS, namespace, "duplicated"))
        await take_back(kube, [rule for rule in RULES if rule.word in ("jobs", "jobflows")])

        async def made() -> bool:
            return await refused(kube, bad, JOBS, namespace) == ""

        await until(made)

    play(api, story)


def test_a_field_that_no_job_may_have_is_told_by_its_path(api: Api, namespace: str) -> None:
    """Kubernetes holds an object to its schema before it asks who validates (Volcano's definitions bound these fields)."""

    async def story(kube: KubeClient, own: KubeClient) -> None:
        negative = job("j", {**task("a"), "replicas": -1}, namespace=namespace)
        words = "spec.tasks[0].replicas in body should be greater than or equal to 0"
        await until(lambda: _says(kube, negative, JOBS, namespace, words))
        nowhere = job("j", task("a"), namespace=namespace, volumes=[{"mountPath": ""}])
        words = "spec.volumes[0].mountPath in body should be at least 1 chars long"
        await until(lambda: _says(kube, nowhere, JOBS, namespace, words))
        policy = job("j", task("a"), namespace=namespace, policies=[{"event": "PodFailed", "action": "Party"}])
        await until(lambda: _says(kube, policy, JOBS, namespace, "invalid policy action"))
        idle = {**job("j", namespace=namespace), "spec": {"minAvailable": 0}}
        await until(lambda: _says(kube, idle, JOBS, namespace, "No task specified in job spec"))

    play(api, story)


def test_only_pods_of_ours_that_say_something_wait_for_the_server(api: Api, namespace: str) -> None:
    def saying(scheduler: str, **notes: str) -> dict[str, Any]:
        annotations = {f"volcano.sh/{key.replace('_', '-')}": text for key, text in notes.items()}
        return {"metadata": {"name": "p", "namespace": namespace, "annotations": annotations},
                "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}}  # fmt: skip

    async def story(kube: KubeClient, own: KubeClient) -> None:
        bad = saying("volcano", jdb_min_available="0")
        await until(lambda: _says(kube, bad, PODS, namespace, "it must be a positive integer"))
        found = await kube.get(VALIDATING, "volcano-admission-service-pods-validate")
        found["webhooks"][0]["clientConfig"]["url"] = f"https://127.0.0.1:{free_port()}/pods/validate"
        await kube.update(VALIDATING, found)
        await until(lambda: _says(kube, bad, PODS, namespace, "failed calling webhook"))
        for other in (saying("volcano"), saying("default-scheduler", jdb_min_available="0")):
            assert await refused(kube, other, PODS, namespace) == ""

    play(api, story)


def test_while_the_server_is_down_no_job_passes_unseen(api: Api, namespace: str) -> None:
    """The registration stays, and with it the promise."""

    async def story() -> None:
        async with webhook(api, free_port()) as (kube, _):
            await until(lambda: _says(kube, job("bad", task("a"), task("a"), namespace=namespace), JOBS, namespace, "duplicated"))
            name = "volcano-admission-service-jobs-validate"
            away = f"https://127.0.0.1:{free_port()}/jobs/validate"
            found = await kube.get(VALIDATING, name)
            found["webhooks"][0]["clientConfig"]["url"] = away
            await kube.update(VALIDATING, found)
            good = job("good", task("a"), namespace=namespace)
            await until(lambda: _says(kube, good, JOBS, namespace, "failed calling webhook"))

    asyncio.run(story())


def test_what_is_registered_belongs_to_the_servers_role_and_goes_with_it(api: Api) -> None:
    """The garbage collector takes it away; else an uninstalled server would keep everybody from making a Job."""
    earlier = "volcano-admission-service-jobs-validate"
    api.create(f"/apis/{API}/validatingwebhookconfigurations", {"metadata": {"name": earlier, "labels": LABELS}, "webhooks": []})

    async def story(kube: KubeClient, own: KubeClient) -> None:
        role = await kube.get(CLUSTER_ROLES, "volcano-admission")
        ours = "app=volcano-admission"
        items = [item for kind in (MUTATING, VALIDATING) for item in (await kube.list(kind, label_selector=ours))["items"]]
        assert earlier in [item["metadata"]["name"] for item in items]
        assert [item["metadata"]["ownerReferences"] for item in items] == [owned_by(role)] * len(items)

    play(api, story)


def test_a_tenant_that_lifts_its_limits_is_refused_by_the_admission_server_too(api: Api) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        bad = {"metadata": {"name": "lifter", "namespace": "default"}, "spec": share(**env("CUDA_DISABLE_CONTROL", "true"))}

        async def refused() -> bool:
            try:
                await kube.create(PODS, bad)
            except ApiError as error:
                return "must not set the variables of its limits" in str(error)
            await kube.delete(PODS, "lifter", "default")
            return False

        await until(refused)
        seen = await kube.create(PODS, {"metadata": {"name": "plain", "namespace": "default"}, "spec": plain()})
        assert seen["spec"]["containers"][0]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        await kube.delete(PODS, "plain", "default")

    play(api, story)


def test_a_container_for_looking_into_a_pod_is_asked_about_where_policies_are_not_to_be_had(api: Api, namespace: str) -> None:
    async def story(kube: KubeClient, own: KubeClient) -> None:
        await until(lambda: _says(kube, {"metadata": {"name": "p"}, "spec": plain(**env("NVIDIA_VISIBLE_DEVICES", "all"))}, PODS,
                                  namespace, "may only say void or none"))  # fmt: skip
        await kube.create(PODS, {"metadata": {"name": "mine", "namespace": namespace}, "spec": plain()}, namespace)

        async def debug(**container: Any) -> str:
            body = {"spec": {"ephemeralContainers": [{"name": "d", "image": "x", **container}]}}
            path = f"/api/v1/namespaces/{namespace}/pods/mine/ephemeralcontainers"
            answer = await asyncio.to_thread(api.call, "PATCH", path, body, media="application/strategic-merge-patch+json")
            return str(answer.json.get("message") or answer.json["spec"]["ephemeralContainers"][0].get("env"))

        assert "may only say void or none" in await debug(**env("NVIDIA_VISIBLE_DEVICES", "all"))
        assert await debug() == str([VOID])

    play(api, story)


def test_shares_are_claims_where_the_namespace_says_so_and_a_dry_run_writes_nothing(api: Api, namespace: str) -> None:
    """Acceptance case 25 of claims: owners and names of templates as the controller makes them (tests/scenarios)."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "50"}
    pod = {"metadata": {"name": "p", "namespace": namespace}, "spec": {
        "schedulerName": "volcano", "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}}  # fmt: skip
    pods = f"/api/v1/namespaces/{namespace}/pods"
    templates = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"

    async def dry_run() -> Any:
        return (await asyncio.to_thread(api.call, "POST", f"{pods}?dryRun=All", pod)).json

    async def story(kube: KubeClient, own: KubeClient) -> None:
        assert (await dry_run())["spec"]["containers"][0]["resources"]["limits"] == {**limits, "nvidia.com/gpumem": "4k"}
        await kube.patch(NAMESPACES, namespace, {"metadata": {"labels": {"pumice.io/claims": "on"}}})

        async def claims() -> bool:
            return "resourceClaims" in (await dry_run())["spec"]

        await until(claims)
        dry = await dry_run()
        made = await kube.create(PODS, pod, namespace)
        assert made["spec"]["resourceClaims"] == dry["spec"]["resourceClaims"]
        name = made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        assert parse(made["metadata"]["annotations"]["pumice.io/share-claims"]) == {name: Share(1, 4000, 50)}
        again = await asyncio.to_thread(api.call, "PATCH", f"{pods}/p", pod, media="application/strategic-merge-patch+json")
        assert again.json["spec"]["containers"] == made["spec"]["containers"], "applied again it is changed in the same way"
        assert api.get(templates)["items"] == [], "the server writes nothing"
        before = {**pod, "metadata": {"name": "before", "namespace": "default"}}
        await kube.create(PODS, before, "default")
        await kube.patch(NAMESPACES, "default", {"metadata": {"labels": {"pumice.io/claims": "on"}}})
        changed = await kube.patch(PODS, "before", {"metadata": {"annotations": {"a": "b"}}}, "default")
        await kube.patch(NAMESPACES, "default", {"metadata": {"labels": {"pumice.io/claims": None}}})
        assert "resourceClaims" not in changed["spec"], "what was stored as shares stays so, and nobody is asked about it"
        await kube.delete(PODS, "before", "default")
        work = job("j", task("t", template={"spec": pod["spec"]}), namespace=namespace)
        stored = await kube.create(JOBS, work, namespace)
        [claim] = stored["spec"]["tasks"][0]["template"]["spec"]["resourceClaims"]
        assert claim["name"] != name
        same = await kube.patch(JOBS, "j", {"spec": {"tasks": work["spec"]["tasks"]}}, namespace)
        assert same["spec"]["tasks"][0]["template"] == stored["spec"]["tasks"][0]["template"]
        await kube.delete(JOBS, "j", namespace)
        await kube.delete(PODS, "p", namespace)

    play(api, story)
