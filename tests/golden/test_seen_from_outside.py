"""Everything that the outside sees, as it was at the last release: a file for each subject in ``tests/golden/outside``.

A difference is a mistake unless it was meant. Where it was meant (a new command, a new metric):

    python -m tests.golden.test_seen_from_outside

writes all the files anew; read ``git diff tests/golden/outside``, commit it with the change, and say why. A name that goes
also goes through CHANGELOG.md. But for what ``import pumice`` gives, no identifier and no path of a module stands in these
files, so that a move or a renamed class, function or parameter leaves them as they are. A script that renames words leaves out
``tests/golden/outside`` and ``tests/golden/last_release``.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import tempfile
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kit import command_pages, metric_pages
from kit.command_line import call
from kit.region_files import Proc, region_bytes, write
from prometheus_client.parser import text_string_to_metric_families
from tests.golden import outside_words
from tests.golden.test_screens import programs

import pumice
from pumice.adapters.load import Got
from pumice.apps.doctor.cluster.facts import ClusterFacts
from pumice.cli import main
from pumice.cli.diagnosis import report_cluster
from pumice.cli.explain import app as explain_app
from pumice.cli.fits import app as fits_app
from pumice.cli.flags import Command
from pumice.cli.local_view import as_json as share_json
from pumice.cli.output import Output
from pumice.cli.replay import app as replay_app
from pumice.cli.vgpu import app as vgpu_app
from pumice.devices.convert import Converted
from pumice.devices.device_type import CardRow
from pumice.devices.lint import Finding
from pumice.model.cards import ContainerDevice
from pumice.model.refusal import CardFitError, FitError
from pumice.scheduler.explaining.queues import QueueView
from pumice.scheduler.explaining.what_if import PreemptionView
from pumice.scheduler.explaining.workloads import GroupView, WaitingPods, WorkloadView
from pumice.wire.scheduler_conf import ACTIONS, PLUGIN_ARGUMENTS, SWITCHES, TOP
from pumice_jobs.cli.short_forms import APPS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "outside"
CASE = Path(__file__).parent / "last_release/dump.json"


# ---- commands


def commands() -> Iterator[str]:
    """Every option and argument with its type, default, variable and range, also those that help does not show."""
    groups = {f"pumice {name}": main.load(name) for name in main.COMMANDS}
    for words, app in {**groups, **APPS}.items():
        yield from _command(words, app.build())


def _command(words: str, command: Command) -> Iterator[str]:
    marks = ["unknown words pass"] * command.lenient + ["a program follows"] * command.program
    yield " ".join([words, *(f"({mark})" for mark in marks)])
    for sentence in re.findall(r"[^.]*[Ee]xit codes?[^.]*", " ".join(command.help.split())):
        yield f"    {sentence.strip()}"
    for one in command.parameters:
        default = one.default.value if isinstance(one.default, Enum) else one.default
        facts = [one.written, f"default {default!s}" if default not in (None, "", [], ()) and not one.required else "",
                 f"env {' '.join(one.spec.envvars)}" if one.spec.envvars else "", "required" if one.required else "",
                 one.range if (one.spec.least, one.spec.most) != (None, None) else "",
                 f"choices {' '.join(one.choices)}" if one.choices else "", "hidden" if one.spec.hidden else "",
                 "may stand alone" if one.spec.bare else ""]  # fmt: skip
        yield f"    {'; '.join(filter(None, facts))}"
    for name, below in command.below.items():
        yield from _command(f"{words} {name}", below)


def entry_points() -> Iterator[str]:
    """The programs that an installation has, and its extras. Where they begin in our sources is our own affair."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield from (f"program {name}" for name in sorted(project["scripts"]))
    yield from (f"extra {name}" for name in sorted(project["optional-dependencies"]))
    yield from sorted(f"man page {name}" for name in command_pages.man_pages())


def python() -> Iterator[str]:
    """What ``import pumice`` gives: calls with their parameters, values with their fields. Here the names are the outside's."""
    for name in sorted(pumice.__all__):
        value = getattr(pumice, name)
        if is_dataclass(value):
            yield from (f"{name}.{field.name}: {field.type}" for field in fields(value))
        else:
            yield f"{name}{'' if isinstance(value, type) else inspect.signature(value)}"


# ---- what is printed as JSON


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """The places of a document, each once; items of a list are one place."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}.{key}".lstrip(".")
            yield from keys_of(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from keys_of(one, f"{path}[]")


def keys_of_type(kind: Any, path: str = "") -> Iterator[str]:
    """The same of everything that a value of this type is written as."""
    if typing.get_origin(kind) is not None:
        mark = ".*" if issubclass(typing.get_origin(kind), typing.Mapping) else "[]"  # type: ignore[arg-type]
        for one in typing.get_args(kind):
            yield from keys_of_type(one, f"{path}{mark}") if isinstance(one, type) or typing.get_origin(one) else ()
    elif is_dataclass(kind) or issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        names = getattr(kind, "__struct_fields__", None) or tuple(kind.__dataclass_fields__)
        for name, key in zip(names, getattr(kind, "__struct_encode_fields__", names), strict=True):
            yield f"{path}.{key}".lstrip(".")
            yield from keys_of_type(hints[name], f"{path}.{key}")


def json_keys() -> Iterator[str]:
    """By command. What a command prints of a sample, or all that the type of what it prints can hold."""
    explained, fitting = requested(explain_app, "pod", "both"), requested(fits_app, "-f", "{pod}")
    with tempfile.TemporaryDirectory() as folder:
        region = write(Path(folder) / "r/vgpu.cache", region_bytes(procs=(Proc(7, {0: (1, 2, 3, 6)}),)))
        looked = json.loads(call(vgpu_app, ["status", str(region), "-o", "json"]).stdout)
        machine = {words[0]: machine_said(folder, *words) for words in MACHINE}
    with redirect_stdout(io.StringIO()) as out:
        report_cluster(ClusterFacts(), Output.JSON)
    samples = {
        "ps": [share_json(share) for share in programs()], "explain pod": explained, "fits": fitting,
        "replay": requested(replay_app), "vgpu status": looked, "doctor cluster": json.loads(out.getvalue()),
        **{f"machine {name}": said for name, said in machine.items()},
    }  # fmt: skip
    for name, sample in samples.items():
        yield from (f"{name}: {place}" for place in dict.fromkeys(keys_of(sample)))
    kinds: dict[str, type] = {
        "explain pod cards": ContainerDevice, "explain pod misfits": FitError, "explain pod misfits cards": CardFitError,
        "explain pod --preempt": PreemptionView, "explain queue": QueueView,
        "explain podgroup": GroupView, "explain job": WorkloadView,
        "explain waiting": WaitingPods, "lint": Finding, "convert": Converted, "burn": Got, "status cards": CardRow,
    }  # fmt: skip
    for name, kind in kinds.items():
        yield from (f"{name}: {place}" for place in keys_of_type(kind))


MACHINE = (
    ("create", "--cards", "2xL4"), ("faults", "--call", "cuMemAlloc_v2", "--error", "2", "--delay-ms", "1"),
    ("npus", "--make", "310P3"),
)  # fmt: skip
"""What is asked of an emulated machine, in this order."""


def machine_said(folder: str, name: str, *words: str) -> Any:
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
        main.main(["machine", name, f"{folder}/{'n' if name == 'npus' else 'm'}", *words, "-o", "json"])
    return json.loads(out.getvalue())


def requested(app: Any, *words: str) -> Any:
    """What a command says of the dump of the last release."""
    with tempfile.TemporaryDirectory() as folder:
        pod = Path(folder, "pod.yaml")
        limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 99000}
        pod.write_text(yaml.safe_dump({"kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "schedulerName": "volcano", "containers": [{"name": "c", "resources": {"limits": limits}}]}}))  # fmt: skip
        given = [word.format(pod=pod) for word in words]
        source = [str(CASE)] if app is replay_app else ["--from", str(CASE)]
        return json.loads(call(app, [*given, *source, "-o", "json"]).stdout)


# ---- metrics, configuration, manifests


def metrics() -> Iterator[str]:
    """By page: every family with its type, and every series with its labels."""
    for page, text in metric_pages.pages().items():
        for family in sorted(text_string_to_metric_families(text), key=lambda one: one.name):
            yield f"{page}: {family.name} {family.type}"
            series = {(sample.name, ",".join(sorted(sample.labels))) for sample in family.samples}
            yield from (f"{page}:     {name}{{{labels}}}" for name, labels in sorted(series))


def metric_names() -> list[str]:
    """Strings that look like the name of a metric, also of those that the pages' samples do not show."""
    name = re.compile(r"(?:volcano|pumice|hami|vgpu|vnpu|npu|nvidia|process|go|python)_[a-z0-9_]+")
    return sorted(text for text in outside_words.strings() if name.fullmatch(text))


def scheduler_conf() -> Iterator[str]:
    yield from (f"key {key}" for key in TOP)
    yield from (f"action {action}" for action in sorted(ACTIONS))
    yield from (f"switch {switch}" for switch in SWITCHES)
    yield from (f"{plugin}: {argument}" for plugin, arguments in PLUGIN_ARGUMENTS.items() for argument in arguments or ("",))


def chart_values() -> Iterator[str]:
    """Every value with its default, and what its schema says."""
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text("utf-8"))
    yield from _leaves(values, "value ")
    schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text("utf-8"))
    yield from _leaves(_without(schema, "description"), "schema ")


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if not path.endswith(" ") else f"{path}{key}")
    else:
        yield f"{path} = {json.dumps(value)}"


def _without(value: Any, key: str) -> Any:
    """Without the texts for people that stand under ``key``."""
    if isinstance(value, dict):
        return {name: _without(one, key) for name, one in value.items() if name != key or not isinstance(one, str)}
    return value


def manifests() -> Iterator[str]:
    """The objects of what is shipped, with the variables, flags and ports of their containers, the columns of their kinds."""
    for path in sorted((ROOT / "deploy/manifests").glob("**/*.y*ml")):
        for obj in filter(None, yaml.safe_load_all(path.read_text("utf-8"))):
            meta = obj["metadata"]
            yield f"{path.name}: {obj['kind']} {meta.get('namespace', '')}/{meta['name']}"
            runs = obj["kind"] in ("Deployment", "DaemonSet", "Job")
            pod = obj["spec"]["template"]["spec"] if runs else {}
            for one in (*pod.get("initContainers", ()), *pod.get("containers", ())):
                words = [*one.get("command", ()), *one.get("args", ()), *(f"${var['name']}" for var in one.get("env", ()))]
                yield f"{path.name}:     {one['name']}: {' '.join(map(str, words))}"


# ---- the files


SUBJECTS: dict[str, Callable[[], Iterable[str]]] = {
    "commands": commands, "python": python, "entry_points": entry_points, "json_keys": json_keys, "metrics": metrics,
    "metric_names": metric_names, "scheduler_conf": scheduler_conf, "chart_values": chart_values, "manifests": manifests,
    "log_keys": outside_words.log_keys, "choices": outside_words.choices,
    **{form: (lambda form=form: outside_words.of_form(form)) for form in outside_words.FORMS},  # type: ignore[misc]
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    """The trees of all sources are not kept for the collector of garbage to look through in every later test."""
    yield
    outside_words.trees.cache_clear()


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_the_outside_sees_is_what_it_was(subject: str) -> None:
    """``python -m tests.golden.test_seen_from_outside`` where a difference is meant."""
    was, now = (HERE / f"{subject}.txt").read_text("utf-8").splitlines(), list(SUBJECTS[subject]())
    gone, new = [line for line in was if line not in set(now)], [line for line in now if line not in set(was)]
    assert (gone, new) == ([], [])


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for subject, collect in SUBJECTS.items():
        (HERE / f"{subject}.txt").write_text("".join(f"{line}\n" for line in collect()), "utf-8")
