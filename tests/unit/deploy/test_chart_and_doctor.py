"""The chart refuses before an installation what `pumice doctor cluster` would find after it: two languages, one judgement."""

from __future__ import annotations

import random
import shutil
from copy import deepcopy
from itertools import product
from pathlib import Path

import yaml
from kit.installing import CHART, helm
from kit.manifests import manifest

from pumice.apps.doctor.cluster.checks import schema_of, unknown_fields
from pumice.ports.cluster import Json
from pumice.wire.programs import Role, programs

ASKED = """\
{{- range $i, $case := .Values.deployments }}
---
kind: Takes
metadata: {name: d{{ $i }}}
spec: {{ include "pumice.schedules" (dict "spec" (dict "template" (dict "spec" $case))) | fromYamlArray | toJson }}
{{- end }}
{{- range $i, $case := .Values.definitions }}
---
kind: Lacks
metadata: {name: c{{ $i }}}
spec: {{ include "pumice.fields" (list "" $case.ours $case.theirs) | splitList "\\n" | toJson }}
{{- end }}
"""


def said_by_the_chart(folder: Path, **cases: list[Json]) -> list[list[str]]:
    """Return the result of its template of checks for each case."""
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: asked\nversion: 0.1.0\n", "utf-8")
    (folder / "templates/asked.yaml").write_text(ASKED, "utf-8")
    shutil.copy(CHART / "templates/_checks.tpl", folder / "templates")
    done = helm("template", "asked", str(folder), values=cases)
    assert done.returncode == 0, done.stderr
    objects = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    return [sorted({word.strip() for word in obj["spec"] if word.strip()}) for obj in objects]


def said_by_the_doctor(pod: Json) -> list[str]:
    return sorted({name for program, _ in programs(pod) if program.role is Role.SCHEDULER for name in program.names})


def a_pod(image: str, command: tuple[str, ...], args: tuple[str, ...], account: str) -> Json:
    """Unset values are absent."""
    container = {"name": "c", "image": image, "command": list(command), "args": list(args)}
    spec = {"containers": [{key: value for key, value in container.items() if value}], "serviceAccountName": account}
    return {key: value for key, value in spec.items() if value}


OURS = (("scheduler",), ("scheduler", "--scheduler-name=one", "--scheduler-name", "two"),
        ("controller", "--scheduler-name=volcano"), ("webhook", "--scheduler-name=volcano"),
        ("device-plugin", "nvidia"), ("monitor",), ())  # fmt: skip
NAMED = (("--v=3",), ("--scheduler-name=batch", "--leader-elect=false"), ())
INSTALLED = (
    # an image, how it may be called, what it may be told, and its account
    (("pumice/pumice:0.1.0", "registry.example/team/pumice@sha256:00"), ((), ("pumice",), ("/usr/bin/pumice",)), OURS, ("", "x")),
    (("own/tools:1",), (("pumice",), ("/usr/bin/pumice",)), OURS, ("", "volcano-scheduler")),
    (("own/tools:1",), ((),), OURS, ("volcano-scheduler",)),
    (("docker.io/volcanosh/vc-scheduler:v1.12.0", "vc-scheduler"), ((), ("/vc-scheduler",)), NAMED, ("", "volcano-scheduler")),
    (("docker.io/volcanosh/vc-controller-manager:v1.12.0",), ((),), NAMED, ("", "volcano-controllers")),
    (("own/tools:1",), (("/vc-scheduler",), ("vc-controller-manager",)), NAMED, ("",)),
    (("projecthami/hami:v2.6.0",), (("scheduler",), ("vGPUmonitor",), ("nvidia-device-plugin",)), NAMED, ("", "hami-scheduler")),
    (("busybox:1.36", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"), ((), ("sleep",)), ((), ("1",)), ("",)),
)
PODS = [a_pod(*one) for row in INSTALLED for one in product(*row)]
SHIPPED = [obj["spec"]["template"]["spec"] for name in ("volcano.yml", "volcano-admission.yml") for obj in manifest(name)
           if obj["kind"] == "Deployment"]  # fmt: skip


def test_both_name_the_same_schedulers_of_a_deployment(tmp_path: Path) -> None:
    pods = [*SHIPPED, *PODS]
    chart = said_by_the_chart(tmp_path, deployments=pods)
    doctor = [said_by_the_doctor(pod) for pod in pods]
    differ = [(pod, one, other) for pod, one, other in zip(pods, chart, doctor, strict=True) if one != other]
    assert differ == []
    assert {tuple(names) for names in doctor} == {(), ("volcano",), ("one", "two"), ("batch",), ("hami-scheduler",)}


def a_schema(chance: random.Random, depth: int = 4) -> Json:
    """Any of those that an API server would take."""
    kind = chance.choice(("string", "array", "open", "map", "anything", "object", "object", "object")) if depth else "string"
    if kind == "array":
        return {"type": "array", "items": a_schema(chance, depth - 1)}
    if kind == "map":
        return {"type": "object", "additionalProperties": a_schema(chance, depth - 1)}
    if kind == "object":
        names = chance.sample("abcd", chance.randrange(4))
        return {"type": "object", "properties": {name: a_schema(chance, depth - 1) for name in names}}
    return {"open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "anything": {"additionalProperties": True},
            "string": {"type": "string"}}[kind]  # fmt: skip


def test_both_name_the_same_fields_that_an_older_definition_drops(tmp_path: Path) -> None:
    chance = random.Random(0)
    pairs = [({"properties": {"spec": a_schema(chance)}}, {"properties": {"spec": a_schema(chance)}}) for _ in range(400)]
    for path in sorted((CHART / "crds").iterdir()):
        ours = schema_of(manifest(f"crds/{path.name}")[0]["spec"]["versions"][0])
        older = deepcopy(ours)
        for part in ("spec", "status"):
            fields = older["properties"].get(part, {}).get("properties", {})
            for name in sorted(fields)[::2]:
                del fields[name]
        pairs += [(ours, older), (ours, ours), (ours, {})]
    chart = said_by_the_chart(tmp_path, definitions=[{"ours": ours, "theirs": theirs} for ours, theirs in pairs])
    doctor = [sorted({f".{field}" for field in unknown_fields(ours, theirs)}) for ours, theirs in pairs]
    assert [(pair, one, other) for pair, one, other in zip(pairs, chart, doctor, strict=True) if one != other] == []
    assert sum(map(bool, doctor)) > 20
