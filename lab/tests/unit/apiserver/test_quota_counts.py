"""The used amounts of a quota equal the existing objects after every write."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from kit.seeds import chosen_seed
from lab.tests.unit.apiserver.conftest import InProcess

from pumice_lab.apiserver.quota_usage import QUOTAS, count

Json = dict[str, Any]
Run = Callable[[Callable[[InProcess], Any]], Any]
ALL = "/api/v1/namespaces/default"


def quota(name: str, hard: Json, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


def pod(name: str, cpu: str, **spec: Any) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def used(api: InProcess, name: str = "q") -> Json:
    found: Json = (await api.call("GET", f"{ALL}/resourcequotas/{name}")).json()["status"]["used"]
    return found


def test_what_ends_or_goes_is_given_back(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create(f"{ALL}/pods", pod("before", "1"))
        await api.create(f"{ALL}/resourcequotas", quota("q", {"cpu": "4", "pods": "9", "count/pods": "9"}))
        assert await used(api) == {"cpu": "1", "pods": "1", "count/pods": "1"}
        await api.create(f"{ALL}/pods", pod("a", "500m"))
        await api.call("PATCH", f"{ALL}/pods/before/status", {"status": {"phase": "Succeeded"}}, "application/merge-patch+json")
        assert await used(api) == {"cpu": "500m", "pods": "1", "count/pods": "2"}
        await api.call("DELETE", f"{ALL}/pods/a", gracePeriodSeconds="0")
        assert await used(api) == {"cpu": "0", "pods": "0", "count/pods": "1"}

    with_api(work)


def test_a_quota_from_before_they_were_counted_is_counted_with_the_next_write(with_api: Run) -> None:
    async def older(api: InProcess) -> None:
        await api.create(f"{ALL}/pods", pod("a", "1"))
        made = await api.create(f"{ALL}/resourcequotas", quota("q", {"cpu": "2"}))
        del made["status"]
        api.server.storage.put(QUOTAS, "default", "q", made)
        assert (await api.call("POST", f"{ALL}/pods", pod("b", "2"))).code == 403
        await api.create(f"{ALL}/pods", pod("b", "1"))
        assert await used(api) == {"cpu": "2"}

    with_api(older)


def test_a_quota_that_becomes_another_is_counted_anew(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create(f"{ALL}/pods", pod("a", "1"))
        await api.create(f"{ALL}/resourcequotas", quota("q", {"pods": "0"}))
        assert (await api.call("POST", f"{ALL}/pods", pod("b", "1"))).code == 403
        patch = {"spec": {"hard": {"pods": None, "requests.cpu": "3"}}, "status": {"used": {"pods": "7"}}}
        changed = await api.call("PATCH", f"{ALL}/resourcequotas/q", patch, "application/merge-patch+json")
        assert changed.json()["status"] == {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "1"}}

    with_api(work)


@pytest.mark.parametrize("hard", [{"pods": "-3"}, {"pods": "500m"}, {"nobody": "1"}])
def test_bounds_that_no_quota_may_have_are_refused_in_its_status_too(with_api: Run, hard: Json) -> None:
    async def work(api: InProcess) -> None:
        made = await api.create(f"{ALL}/resourcequotas", quota("q", {"pods": "1"}))
        patch = {"status": {"hard": hard}}
        refused = await api.call("PATCH", f"{ALL}/resourcequotas/q/status", patch, "application/merge-patch+json")
        assert (refused.code, "status.hard" in refused.json()["message"]) == (422, True)
        assert (await api.call("GET", f"{ALL}/resourcequotas/q")).json() == made

    with_api(work)


@pytest.mark.parametrize("status", [None, {}, {"hard": None, "used": None}, {"hard": {"pods": None}}])
def test_a_quota_whose_status_is_emptied_goes_on_bounding(with_api: Run, status: Any) -> None:
    async def work(api: InProcess) -> None:
        await api.create(f"{ALL}/resourcequotas", quota("q", {"pods": "1"}))
        await api.create(f"{ALL}/pods", pod("a", "1"))
        await api.call("PATCH", f"{ALL}/resourcequotas/q/status", {"status": status}, "application/merge-patch+json")
        assert (await api.call("POST", f"{ALL}/pods", pod("b", "1"))).code == 403
        assert await used(api) == {"pods": "1"}

    with_api(work)


@pytest.mark.parametrize("amount", ["999e30", "1000e30", "9" * 32, "9" * 33, "9" * 63, "99999999999999Ei"])
def test_amounts_beyond_all_machines_are_refused_or_counted_and_given_back(with_api: Run, amount: str) -> None:
    async def work(api: InProcess) -> None:
        await api.create(f"{ALL}/resourcequotas", quota("q", {"requests.cpu": "999e30", "pods": "9"}))
        made = [await api.call("POST", f"{ALL}/pods", pod(f"a{n}", each)) for n, each in enumerate((amount, "1n", amount))]
        assert all(response.code in (201, 400, 403) for response in made)
        late = await api.call("POST", f"{ALL}/resourcequotas", quota("late", {"requests.cpu": "1"}))
        assert late.code == 201
        for n in range(len(made)):
            assert (await api.call("DELETE", f"{ALL}/pods/a{n}", gracePeriodSeconds="0")).code in (200, 404)
        assert await used(api) == {"requests.cpu": "0", "pods": "0"}

    with_api(work)


def test_random_writes_leave_every_quota_with_what_is_there(with_api: Run) -> None:
    seed = chosen_seed()
    print(f"PUMICE_SEED={seed}")

    async def work(api: InProcess) -> None:
        rng = random.Random(seed)
        for _ in range(40):
            await _random_writes(api, rng)

    with_api(work)


async def _random_writes(api: InProcess, rng: random.Random) -> None:
    quotas = [quota("all", {"pods": "4", "cpu": "3", "count/pods": "6", "configmaps": "3", "resourcequotas": "9"}),
              quota("short", {"pods": "2"}, scopes=["Terminating"]), quota("free", {"pods": "2"}, scopes=["BestEffort"])]
    for each in quotas:
        await api.create(f"{ALL}/resourcequotas", each)
    for _ in range(30):
        name = f"x{rng.randrange(6)}"
        match rng.choice(("make", "make", "map", "delete", "end", "both")):
            case "make":
                spec = {"activeDeadlineSeconds": 9} if rng.random() < 0.4 else {}
                await api.call("POST", f"{ALL}/pods", pod(name, rng.choice(("0", "250m", "1")), **spec))
            case "map":
                await api.call(rng.choice(("POST", "DELETE")), f"{ALL}/configmaps" if rng.random() < 0.5 else
                               f"{ALL}/configmaps/{name}", {"metadata": {"name": name}})  # fmt: skip
            case "delete":
                await api.call("DELETE", f"{ALL}/pods/{name}", gracePeriodSeconds="0")
            case "end":
                await api.call("PATCH", f"{ALL}/pods/{name}/status", {"status": {"phase": rng.choice(("Failed", "Running"))}},
                               "application/merge-patch+json")  # fmt: skip
            case "both":
                await api.call("PATCH", f"{ALL}/resourcequotas/all", {"spec": {"hard": {"cpu": str(rng.randrange(1, 5))}}},
                               "application/merge-patch+json")  # fmt: skip
    for each in quotas:
        found = (await api.call("GET", f"{ALL}/resourcequotas/{each['metadata']['name']}")).json()
        again = dict(found)
        count(api.server.storage, again)
        assert found["status"] == again["status"]
    for plural in ("pods", "configmaps", "resourcequotas"):
        await api.call("DELETE", f"{ALL}/{plural}", {"gracePeriodSeconds": 0})
