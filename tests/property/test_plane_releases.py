"""The last release's own daemons among today's, in one cluster: plugins and schedulers of either are exchanged for the other's
over running pods. The random plane does so amid faults; here are the three orders of an upgrade, each as one short story.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from random import Random

import pytest
from kit import objects
from kit.release import LAST, NEWEST, ROOT, version
from tests.property.history.registry import Op
from tests.property.history.runner import History, replay
from tests.property.plane import last_release
from tests.property.plane.door import PlaneDoor
from tests.property.plane.kinds import MODE, NODES
from tests.property.plane.loop import virtually
from tests.property.plane.releases import PLUGINS, SCHEDULERS, known
from tests.property.test_histories import quiet

__all__ = ["quiet"]
CONF = "making room by importance"


@pytest.fixture(autouse=True)
def there() -> None:
    if why := last_release.missing():
        if "PUMICE_CI" in os.environ and last_release.must_be_there():
            pytest.fail(why)
        pytest.skip(why)


def pod(name: str, mib: int, *, slices: bool = False) -> Op:
    made = objects.pod(name, mib=mib, cores=None if slices else 25, annotations={MODE: "mig"} if slices else None)
    made["metadata"] = {key: made["metadata"][key] for key in ("name", "namespace", "annotations", "labels")}
    made["spec"]["terminationGracePeriodSeconds"] = 0
    del made["status"]
    return {"do": "create", "resource": "pods", "object": made}


def come(name: str) -> list[Op]:
    """A few pods of each sort, so that each node has some."""
    return [*(pod(f"{name}-{at}", 3000) for at in range(6)), *(pod(f"{name}-s{at}", size, slices=True)
                                                               for at, size in enumerate((3000, 9000)))]  # fmt: skip


def of(last: bool, *processes: str) -> list[Op]:
    return [{"do": "release", "process": name, "last": last, "killed": False} for name in processes]


def gone(*names: str) -> list[Op]:
    return [{"do": "delete", "kind": "Pod", "key": f"default/{name}", "now": False} for name in names]


def wait(seconds: float) -> list[Op]:
    return [{"do": "wait", "seconds": seconds}]


class Watched(PlaneDoor):
    """Remembers how many pods ran after each step, and of which release each process was."""

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self.ran: list[int] = []
        STORIES.append(self)

    async def look(self) -> None:
        await super().look()
        self.ran.append(sum(len(node.running) for node in self.nodes.values()))


STORIES: list[Watched] = []


def told(*steps: list[Op]) -> Watched:
    """Play the steps and rest; nothing may break, and everybody is served at the end."""
    STORIES.clear()
    found = replay(History(7, CONF, tuple((f"step {at}", ops) for at, ops in enumerate(steps))), Watched, drive=virtually)
    assert not found.complaints, found.text()
    return STORIES[0]


@pytest.mark.usefixtures("quiet")
def test_plugins_are_upgraded_over_running_pods_and_rolled_back() -> None:
    """Each takes over what the other has served: journal, book of what was handed out, limits pages and CDI files."""
    story = told(of(True, *PLUGINS), [*come("old"), *wait(20)],
                 [*of(False, *PLUGINS), *wait(12), *come("new"), *wait(20)],
                 [*gone("old-0", "old-s0", "new-1"), *wait(15), *of(True, *PLUGINS), *wait(12), *come("back"), *wait(20)],
                 [{"do": "reboot", "node": name} for name in NODES] + wait(20))  # fmt: skip
    assert story.ran[1] == 8
    assert story.ran[2] == 16
    assert story.ran[3] >= 20
    assert story.ran[4] == story.ran[3] - 3, "what began under either release begins again after a boot, but for slices"


@pytest.mark.usefixtures("quiet")
def test_a_standby_of_the_other_release_takes_over_and_gives_nothing_away_twice() -> None:
    leads: list[Op] = [{"do": "end", "process": "scheduler a"}, *wait(25)]
    killed: Op = {"do": "kill", "process": "scheduler b", "writes": 0, "done": False, "only": "", "at once": True}
    follows: list[Op] = [killed, *wait(25)]
    story = told(of(True, SCHEDULERS[0]), [*come("first"), *wait(5)], [*leads, *come("second"), *wait(5)],
                 [*follows, *come("third"), *wait(10)])  # fmt: skip
    assert story.struck["upgraded", "scheduler"] == story.struck["rolled back", "scheduler"] == 0
    assert story.ran[1] == 8
    assert story.ran[2] == 16
    assert story.ran[3] >= 20


@pytest.mark.usefixtures("quiet")
def test_schedulers_are_upgraded_one_after_the_other_and_rolled_back_before_plugins() -> None:
    story = told(of(True, *SCHEDULERS, *PLUGINS), [*come("old"), *wait(20)],
                 [*of(False, "scheduler a"), *come("amid"), *wait(20), *of(False, "scheduler b"), *wait(20)],
                 [*of(True, "scheduler b"), *wait(5), *of(True, "scheduler a"), *wait(20), *gone("old-1", "old-s1"),
                  *come("back"), *wait(20)])  # fmt: skip
    assert story.struck["upgraded", "scheduler"] == story.struck["rolled back", "scheduler"] == 2
    assert story.ran[2] == 16
    assert story.ran[3] >= 20


def test_the_last_release_is_played_by_its_own_code_alone() -> None:
    """But for the seams none of its modules is today's, and none of them has today's within it."""
    its = last_release.module("apps.scheduler.daemon")
    assert its is not last_release.code("apps.scheduler.daemon", last=False)
    assert f'__version__ = "{NEWEST.version}"' in Path(str(last_release.module("model").__file__)).parents[1].joinpath(
        "__init__.py").read_text("utf-8")  # fmt: skip
    strangers = {name for name, module in sys.modules.items() if name.startswith(f"{last_release.NAME}.")
                 and not str(getattr(module, "__file__", "")).startswith(str(last_release.FOLDER))}  # fmt: skip
    assert strangers == {f"{last_release.NAME}.{name}" for name in last_release.SEAMS}
    for path in last_release.FOLDER.rglob("*.py"):
        assert not re.search(r"(?m)^\s*(from|import) pumice[. ]", path.read_text("utf-8")), path


def test_what_is_not_played_of_it_is_mended_by_the_changelog() -> None:
    text = " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").split())
    rows = [*known("left_out"), *known("excused")]
    assert [row["mended"] for row in rows if f"- {row['mended']}" not in text] == []


def test_the_release_that_is_played_is_this_one_or_the_last() -> None:
    """Who raises the version, or makes a release, says so in `kit/release.py`."""
    assert NEWEST.version in (version(), LAST.version)
