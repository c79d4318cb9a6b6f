"""The webhooks, a row each: what they look at, and what decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pumice.ports.cluster import Resource
from pumice.wire.batch import CRON_JOBS
from pumice.wire.kinds import PODS
from pumice.wire.volcano import HYPER_NODES, JOB_FLOWS, JOBS, POD_GROUPS, QUEUES
from pumice_jobs.admission import claims, cronjobs, jobs, pods, queues, tenants
from pumice_jobs.admission.review import CREATE, DELETE, UPDATE, Answer, Request, Settings, View

Decide = Callable[[Request, View, Settings], Answer]


@dataclass(frozen=True, slots=True)
class Rule:
    """``default``: whether it is registered where nothing is said. ``changes``: what of a stored object, as the API server names
    the part, is looked at when it is changed."""

    path: str
    resource: Resource
    operations: tuple[str, ...]
    decide: Decide
    default: bool = True
    changes: str = ""

    @property
    def mutates(self) -> bool:
        return self.path.endswith("/mutate")

    @property
    def word(self) -> str:
        """``jobs`` of ``/jobs/mutate``."""
        return self.path.split("/")[1]


RULES: Final = (
    Rule("/jobs/mutate", JOBS, (CREATE,), jobs.mutate),
    Rule("/jobs/validate", JOBS, (CREATE, UPDATE), jobs.validate),
    Rule("/podgroups/mutate", POD_GROUPS, (CREATE,), queues.mutate_group, default=False),
    Rule("/podgroups/validate", POD_GROUPS, (CREATE,), queues.validate_group),
    Rule("/pods/mutate", PODS, (CREATE,), pods.mutate, default=False),
    Rule("/pods/validate", PODS, (CREATE,), pods.validate, default=False),
    Rule("/tenants/mutate", PODS, (CREATE,), tenants.mutate, default=False, changes="ephemeralcontainers"),
    Rule("/tenants/validate", PODS, (CREATE,), tenants.validate, default=False, changes="ephemeralcontainers"),
    Rule("/claims/mutate", PODS, (CREATE, UPDATE), claims.mutate, default=False),
    Rule("/jobclaims/mutate", JOBS, (CREATE, UPDATE), claims.mutate_job, default=False),
    Rule("/queues/mutate", QUEUES, (CREATE,), queues.mutate),
    Rule("/queues/validate", QUEUES, (CREATE, UPDATE, DELETE), queues.validate),
    Rule("/hypernodes/validate", HYPER_NODES, (CREATE, UPDATE), queues.validate_hypernode),
    Rule("/cronjobs/validate", CRON_JOBS, (CREATE, UPDATE), cronjobs.validate),
    Rule("/jobflows/validate", JOB_FLOWS, (CREATE, UPDATE), cronjobs.validate_flow, default=False),
)
BY_PATH: Final = {rule.path: rule for rule in RULES}
SHARES_TO_CLAIMS: Final = ("/claims/mutate", "/jobclaims/mutate")
"""The webhooks that ``--share-claims`` adds."""
DEFAULT_PATHS: Final = tuple(rule.path for rule in RULES if rule.default)
