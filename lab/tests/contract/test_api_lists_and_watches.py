"""Lists in pages and at revisions, and watches that miss nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kit.control_plane import Api, Json


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def make(api: Api, maps: str, name: str, **labels: str) -> Json:
    return api.create(maps, {"metadata": {"name": name, "labels": labels}})


def names(value: Json) -> list[str]:
    return [item["metadata"]["name"] for item in value["items"]]


def take(events: Iterator[Json], count: int) -> list[tuple[str, str]]:
    found = []
    for event in events:
        if event["type"] != "BOOKMARK":
            found.append((event["type"], event["object"]["metadata"]["name"]))
        if len(found) == count:
            break
    return found


def test_a_list_is_sorted_and_has_a_revision(api: Api, maps: str) -> None:
    made = [make(api, maps, name) for name in ("c", "a", "b")]
    listed = api.get(maps)
    assert names(listed) == ["a", "b", "c"]
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) >= int(made[-1]["metadata"]["resourceVersion"])


def test_pages_show_one_moment(api: Api, maps: str) -> None:
    for name in "abcde":
        make(api, maps, name)
    first = api.get(maps, limit=2)
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    api.delete(f"{maps}/c")
    make(api, maps, "bb")
    second = api.get(maps, limit=2, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.get(maps, limit=2, **{"continue": second["metadata"]["continue"]})
    assert names(last) == ["e"]
    assert "continue" not in last["metadata"]


def test_a_continue_token_that_was_made_up_is_refused(api: Api, maps: str) -> None:
    assert api.call("GET", maps, limit=1, **{"continue": "bm9uc2Vuc2U"}).code == 400


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("app=web", ["a", "b"]), ("app==web,tier=front", ["a"]), ("app!=web", ["c", "d"]), ("tier", ["a", "b"]),
        ("!tier", ["c", "d"]), ("tier in (front, back)", ["a", "b"]), ("tier notin (front)", ["b", "c", "d"]),
        ("app in (db),!tier", ["c"]),
    ],
)  # fmt: skip
def test_label_selectors(api: Api, maps: str, selector: str, chosen: list[str]) -> None:
    make(api, maps, "a", app="web", tier="front")
    make(api, maps, "b", app="web", tier="back")
    make(api, maps, "c", app="db")
    make(api, maps, "d")
    assert names(api.get(maps, labelSelector=selector)) == chosen


def test_a_selector_that_does_not_parse_is_a_bad_request(api: Api, maps: str) -> None:
    assert api.call("GET", maps, labelSelector="a in (b").code == 400
    assert api.call("GET", maps, fieldSelector="data.x=1").code == 400


def test_lists_at_an_exact_revision_show_the_past(api: Api, maps: str) -> None:
    revision = make(api, maps, "a")["metadata"]["resourceVersion"]
    make(api, maps, "b")
    api.delete(f"{maps}/a")
    assert names(api.get(maps, resourceVersion=revision, resourceVersionMatch="Exact")) == ["a"]
    assert names(api.get(maps, resourceVersion=revision, resourceVersionMatch="NotOlderThan")) == ["b"]
    assert names(api.get(maps, resourceVersion="0")) == ["b"]
    assert api.call("GET", maps, resourceVersionMatch="Exact").code in (400, 422)


def test_a_watch_tells_every_change_in_order(api: Api, maps: str) -> None:
    revision = api.get(maps)["metadata"]["resourceVersion"]
    make(api, maps, "a")
    with api.watch(maps, resourceVersion=revision) as events:
        api.merge(f"{maps}/a", {"data": {"x": "1"}})
        make(api, maps, "b")
        api.delete(f"{maps}/a")
        seen = [next(events) for _ in range(4)]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [
        ("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]  # fmt: skip
    revisions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
    assert revisions == sorted(set(revisions))
    assert seen[3]["object"]["data"] == {"x": "1"}


def test_a_watch_without_a_revision_begins_with_what_is_there(api: Api, maps: str) -> None:
    make(api, maps, "a")
    make(api, maps, "b")
    with api.watch(maps) as events:
        assert sorted(take(events, 2)) == [("ADDED", "a"), ("ADDED", "b")]
        make(api, maps, "c")
        assert take(events, 1) == [("ADDED", "c")]


def test_a_watch_list_ends_its_beginning_with_a_bookmark(api: Api, maps: str) -> None:
    make(api, maps, "a")
    asked = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
    with api.watch(maps, **asked) as events:
        assert take(events, 1) == [("ADDED", "a")]
        bookmark = next(events)
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        make(api, maps, "b")
        assert take(events, 1) == [("ADDED", "b")]


def test_leaving_a_selection_looks_like_a_deletion(api: Api, maps: str) -> None:
    revision = make(api, maps, "a", color="red")["metadata"]["resourceVersion"]
    with api.watch(maps, resourceVersion=revision, labelSelector="color=red") as events:
        make(api, maps, "b", color="blue")
        api.merge(f"{maps}/a", {"metadata": {"labels": {"color": "blue"}}})
        api.merge(f"{maps}/b", {"metadata": {"labels": {"color": "red"}}})
        assert take(events, 2) == [("DELETED", "a"), ("ADDED", "b")]


def test_a_watch_of_one_object_sees_only_that(api: Api, maps: str) -> None:
    revision = make(api, maps, "a")["metadata"]["resourceVersion"]
    with api.watch(maps, resourceVersion=revision, fieldSelector="metadata.name=a") as events:
        make(api, maps, "b")
        api.delete(f"{maps}/a")
        assert take(events, 1) == [("DELETED", "a")]


def test_a_watch_across_namespaces_sees_all_of_them(api: Api, maps: str) -> None:
    revision = make(api, maps, "a")["metadata"]["resourceVersion"]
    with api.watch("/api/v1/configmaps", resourceVersion=revision, labelSelector="here=yes") as events:
        make(api, maps, "b", here="yes")
        assert take(events, 1) == [("ADDED", "b")]


def test_a_watch_ends_after_the_time_asked_for(api: Api, maps: str) -> None:
    with api.watch(maps, timeoutSeconds=1) as events:
        assert list(events) == []


def test_a_watch_from_a_revision_that_is_long_gone_is_told_so(api: Api, maps: str) -> None:
    make(api, maps, "a")
    with api.watch(maps, resourceVersion="1") as events:
        assert next(events)["type"] in ("ADDED", "ERROR")


def test_many_writers_and_a_watcher_agree(api: Api, maps: str) -> None:
    """Forty writes from four threads: the watcher's picture is the list's."""
    revision = api.get(maps)["metadata"]["resourceVersion"]

    def write(worker: int) -> None:
        for i in range(5):
            make(api, maps, f"w{worker}-{i}")
            api.merge(f"{maps}/w{worker}-{i}", {"data": {"n": str(i)}})

    with api.watch(maps, resourceVersion=revision) as events:
        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        picture: dict[str, str] = {}
        for _ in range(40):
            event = next(events)
            picture[event["object"]["metadata"]["name"]] = event["object"]["metadata"]["resourceVersion"]
        for thread in threads:
            thread.join()
    assert picture == {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in api.get(maps)["items"]}


def test_metadata_only_is_served(api: Api, maps: str) -> None:
    make(api, maps, "a")
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = api.call("GET", maps, accept=accept).json
    assert (listed["kind"], listed["items"][0]["metadata"]["name"]) == ("PartialObjectMetadataList", "a")
    one = api.call("GET", f"{maps}/a", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").json
    assert one["kind"] == "PartialObjectMetadata"
    assert "data" not in one


def test_a_list_of_a_built_in_kind_says_it_once(api: Api, maps: str) -> None:
    api.create(maps, {"metadata": {"name": "one"}})
    found = api.get(maps)
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert [("kind" in item, "apiVersion" in item) for item in found["items"]] == [(False, False)]
    metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert {item["kind"] for item in api.call("GET", maps, accept=metadata).json["items"]} == {"PartialObjectMetadata"}


@pytest.mark.parametrize(("path", "selector"), [
    ("/apis/certificates.k8s.io/v1/certificatesigningrequests", "spec.signerName=example.com/nobody"),
    ("/apis/events.k8s.io/v1/events", "reportingController=nobody"),
    ("/api/v1/events", "reportingComponent=nobody,source=nobody"),
])  # fmt: skip
def test_kinds_are_selected_by_fields_of_their_own(api: Api, path: str, selector: str) -> None:
    assert api.get(path, fieldSelector=selector)["items"] in ([], None)
