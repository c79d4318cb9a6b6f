"""ResourceQuota: its status names the limits of its spec. What is used the API server itself counts."""

from __future__ import annotations

from pumice.wire.kinds import RESOURCE_QUOTAS
from pumice_lab.controllers.actions import Action, View
from pumice_lab.controllers.common import is_deleting, status_patch


def reconcile(quota: View) -> list[Action]:
    hard = quota["spec"].get("hard") or {}
    there = (quota.get("status") or {}).get("hard") or {}
    if is_deleting(quota) or hard == there:
        return []
    return [*status_patch(RESOURCE_QUOTAS, quota, {"hard": dict.fromkeys(there) | hard})]
