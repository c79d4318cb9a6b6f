"""Quantities, ages, paths, selectors and Kubernetes' protobuf: the small parsers."""

from __future__ import annotations

import base64
import random
import re
import time

import pytest
from kit.seeds import chosen_seed

from pumice.wire.kubectl_columns import human
from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.http_types import target_of
from pumice_lab.apiserver.schema.protobuf import Malformed, decode_object
from pumice_lab.apiserver.schema.quantity import canonical
from pumice_lab.apiserver.schema.shape import numbers, types
from pumice_lab.apiserver.selectors import label_selector
from pumice_lab.apiserver.tables.render import find_first


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.5", "500m"), (60000, "60k"), ("1.5Gi", "1536Mi"), ("1024Mi", "1Gi"), ("1000Mi", "1000Mi"), ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1000m", "1"), ("100m", "100m"), ("0.1m", "100u"), ("1024", "1024"), ("1Ki", "1Ki"), ("512", "512"), ("-1", "-1"),
        ("0Gi", "0"),
        ("1500k", "1500k"), (1, "1"), (0.25, "250m"), ("22356", "22356"), ("0.0000000001", "1n"),
        ("500e30", "500e30"), ("10e30", "10e30"),
    ],
)  # fmt: skip
def test_quantities_in_canonical_form(text: str, wanted: str) -> None:
    assert canonical(text) == wanted
    assert canonical(wanted) == wanted


@pytest.mark.parametrize("text", ["", "many", "1 Gi", "3GiB", "1e99", "--1", " 1", True, "1000e30", "-1000e30", "9" * 40])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        canonical(text)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (3 * 3600, "3h"), (3 * 3600 + 120, "3h2m"),
     (8 * 3600, "8h"),
     (47 * 3600, "47h"), (49 * 3600, "2d1h"), (8 * 86400, "8d"), (730 * 86400, "2y"), (800 * 86400, "2y70d"), (-1, "0s"),
     (-5, "<invalid>")],
)  # fmt: skip
def test_ages_as_kubectl_shows_them(seconds: float, wanted: str) -> None:
    assert human(seconds) == wanted


def test_paths_of_printer_columns() -> None:
    value = {
        "status": {
            "conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "y"}],
            "a.b": 1,
            "n": [1, 2],
        }
    }
    assert find_first(value, '.status.conditions[?(@.type=="Ready")].status') == "y"
    assert find_first(value, ".status.conditions[1].type") == "Ready"
    assert find_first(value, ".status.conditions[*].type") == "A"
    assert find_first(value, r".status.a\.b") == 1
    assert find_first(value, ".status['a.b']") == 1
    assert find_first(value, ".status.nothing.here") is None
    assert find_first(value, "garbage[[") is None


def test_selectors_that_do_not_parse() -> None:
    for text in ("a in (b", "=b", "a=b=c", "a notin b", "a>x"):
        with pytest.raises(ApiFailure):
            label_selector(text)
    assert label_selector("") is None
    matcher = label_selector("n>5,n<9")
    assert matcher is not None
    assert matcher({"n": "7"})
    assert not matcher({"n": "9"})


def test_paths_of_requests() -> None:
    def parts(path: str) -> tuple[str, ...]:
        target = target_of(path)
        assert target is not None
        return target.group, target.namespace, target.plural, target.name, target.subresource

    assert parts("/api/v1/namespaces") == ("", "", "namespaces", "", "")
    assert parts("/api/v1/namespaces/a") == ("", "", "namespaces", "a", "")
    assert parts("/api/v1/namespaces/a/status") == ("", "", "namespaces", "a", "status")
    assert parts("/api/v1/namespaces/a/finalize") == ("", "", "namespaces", "a", "finalize")
    assert parts("/api/v1/namespaces/a/pods/p/log") == ("", "a", "pods", "p", "log")
    assert parts("/apis/apps/v1/namespaces/a/deployments") == ("apps", "a", "deployments", "", "")
    assert parts("/apis/apps/v1/deployments") == ("apps", "", "deployments", "", "")
    assert target_of("/api/v1") is None
    assert target_of("/healthz") is None


# `kubectl create deployment d1 --image=nginx --replicas=0` as it went over the wire.
DEPLOYMENT = base64.b64decode(
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EoEBCh4KAmQxEgAaACIAKgAyADgAQgBaCwoDYXBwEgJkMRJdCAASCwoJCgNhcHASAmQx"
)  # only its head: what follows is cut, and must be refused rather than guessed


def test_a_cut_message_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_object(DEPLOYMENT, types())
    with pytest.raises(Malformed):
        decode_object(b"{}", types())


def varint(value: int) -> bytes:
    value %= 1 << 64
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(*fields: tuple[int, bytes | int]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def envelope(api_version: bytes, kind: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw))


def test_maps_bytes_and_times_of_protobuf() -> None:
    metadata = message((1, b"x"), (7, 0), (8, b""), (11, message((1, b"app"), (2, b"web"))))
    secret = message((1, metadata), (2, message((1, b"k"), (2, b"v"))), (3, b"Opaque"))
    assert decode_object(envelope(b"v1", b"Secret", secret), types()) == {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "labels": {"app": "web"}}, "data": {"k": "dg=="},
        "type": "Opaque",
    }  # fmt: skip


def test_a_definition_from_a_typed_client_keeps_what_its_lists_and_maps_hold() -> None:
    text = message((5, b"string"))
    listed = message((5, b"array"), (24, message((1, text))))
    tuple_ = message((24, message((2, text), (2, text))))
    schemas = {b"list": listed, b"tuple": tuple_, b"map": message((30, message((1, 1), (2, text)))),
               b"any": message((30, message((1, 1)))), b"none": message((30, message((1, 0))))}  # fmt: skip
    schema = message((5, b"object"), *((29, message((1, key), (2, inner))) for key, inner in schemas.items()))
    version = message((1, b"v1"), (4, message((1, schema))))
    value = decode_object(
        envelope(b"apiextensions.k8s.io/v1", b"CustomResourceDefinition", message((2, message((7, version))))), types()
    )
    found = value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    string = {"type": "string"}
    assert found == {"list": {"type": "array", "items": string}, "tuple": {"items": [string, string]},
                     "map": {"additionalProperties": string}, "any": {"additionalProperties": True},
                     "none": {"additionalProperties": False}}  # fmt: skip


@pytest.mark.parametrize(("seconds", "reported"), [(0, "1970-01-01T00:00:00Z"), (-1, "1969-12-31T23:59:59Z"),
                                               (-62_135_596_800, None), (1 << 60, "")])  # fmt: skip
def test_times_before_1970_are_times(seconds: int, reported: str | None) -> None:
    data = envelope(b"v1", b"Secret", message((1, message((1, b"x"), (8, message((1, seconds)))))))
    if reported == "":
        with pytest.raises(Malformed):
            decode_object(data, types())
        return
    assert decode_object(data, types())["metadata"].get("creationTimestamp") == reported


def test_zero_is_kept_where_it_is_meant() -> None:
    spec = message((1, 0), (5, 0))  # replicas is a pointer in Go, minReadySeconds is not
    value = decode_object(envelope(b"apps/v1", b"Deployment", message((2, spec))), types())
    assert value["spec"] == {"replicas": 0}


def test_inlined_messages_and_quantities() -> None:
    volume = message((1, b"v"), (2, message((2, b""))))  # VolumeSource inside of Volume: emptyDir {}
    limits = message((1, b"nvidia.com/gpu"), (2, message((1, b"2"))))
    container = message((1, b"c"), (8, message((1, limits))))
    pod = message((2, message((1, volume), (2, container))))
    assert decode_object(envelope(b"v1", b"Pod", pod), types())["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    }  # fmt: skip


def test_every_type_of_the_api_has_numbers() -> None:
    assert types().raw.keys() <= numbers().keys()


def means(part: str, labels: dict[str, str]) -> bool:
    """Check the words of one requirement."""
    key, operator, value = re.fullmatch(r"(!?\w+)(?: ?(==|!=|=|<|>|in|notin) ?(.*))?", part).groups()  # type: ignore[union-attr]
    values = (value or "").strip("()").split(",")
    match operator:
        case None:
            return key[1:] not in labels if key.startswith("!") else key in labels
        case "=" | "==" | "in":
            return labels.get(key) in values
        case "!=" | "notin":
            return labels.get(key) not in values
    number = labels.get(key, "")
    return number.isdigit() and (int(number) > int(value) if operator == ">" else int(number) < int(value))


def test_requirements_that_are_gathered_mean_what_each_says() -> None:
    seed = chosen_seed()
    print(f"PUMICE_SEED={seed}")
    rng = random.Random(seed)
    forms = ("{k}", "!{k}", "{k}={v}", "{k}=={v}", "{k}!={v}", "{k}>{v}", "{k}<{v}", "{k} in ({v},{w})", "{k} notin ({v},{w})")
    for _ in range(3000):
        parts = [rng.choice(forms).format(k=rng.choice("abc"), v=rng.randrange(4), w=rng.randrange(4))
                 for _ in range(rng.randrange(1, 5))]  # fmt: skip
        labels = {key: rng.choice(["0", "1", "2", "3", "x"]) for key in "abc" if rng.random() < 0.6}
        matcher = label_selector(",".join(parts))
        assert matcher is not None
        assert matcher(labels) == all(means(part, labels) for part in parts), (parts, labels)


def test_a_selector_of_many_requirements_takes_as_long_as_there_are_labels() -> None:
    matcher = label_selector(",".join(f"!a{i},b{i}!=c" for i in range(2000)))
    assert matcher is not None
    before = time.thread_time()
    assert all(matcher({"x": "y", "b1": "d"}) for _ in range(10_000))
    assert time.thread_time() - before < 1
