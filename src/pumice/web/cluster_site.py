"""The site of a cluster: its views, and what stands on each of its pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.web.following import Following
from pumice.web.views import Query, Shown, Views

NAVIGATION = (("", "Cluster"), ("pods", "Pods"), ("waiting", "Waiting"), ("queues", "Queues"), ("jobs", "Jobs"),
              ("changes", "Changes"))  # fmt: skip
OF_LISTS = {
    "nodes": "nodes and their cards are unknown", "pods": "who holds what is unknown", "queues": "queues are unknown",
    "podgroups": "jobs and gangs are unknown",
}  # fmt: skip
NOT_TOLD = "The scheduler's configuration is remarkable; who may list everything sees here why."
ABSENT = "404 "
"""Beginning of the answer for a kind that the cluster does not have; but for the lists above that is nothing to speak of."""


@dataclass(slots=True)
class ClusterSite:
    """The site of a cluster. ``limits``: what of the cluster whoever looks does not see. ``quotes``: he may read the
    configuration, of whose text remarks quote a part."""

    following: Following
    pages: Views
    limits: tuple[str, ...] = ()
    quotes: bool = True

    @property
    def views(self) -> Mapping[str, Callable[[Query], Awaitable[Shown]]]:
        return self.pages.views

    @property
    def version(self) -> int:
        return self.following.version

    def state(self) -> Mapping[str, Any]:
        following = self.following
        lacks = [
            (name, OF_LISTS.get(name, "answers are given without them"), answer)
            for name, answer in sorted(following.lacking.items())
            if name in OF_LISTS or not answer.startswith(ABSENT)
        ]  # fmt: skip
        remarks = following.remarks if self.quotes or not following.remarks else (NOT_TOLD,)
        return {
            "navigation": NAVIGATION, "place": "cluster", "silent_since": following.answered if following.silent else 0.0,
            "unsynced": sorted(following.unsynced), "lacks": lacks, "remarks": (*self.limits, *remarks),
            "figures_of": following.answered,
        }  # fmt: skip
