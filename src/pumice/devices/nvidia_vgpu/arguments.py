"""The arguments of plugin ``deviceshare`` that vGPU alone reads."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.devices.settings import Rule, Section, argument

MIG_POLICIES = ("listed", "tightest", "expected")


@dataclass(frozen=True, slots=True)
class VgpuArguments(Section):
    """The arguments of vGPU alone; the ``pumice.`` ones are ours."""

    rules: tuple[Rule, ...] = argument("deviceshare.GPUExclusiveRules", ())
    mig_policy: str = argument("pumice.MigPolicy", "tightest", one_of=MIG_POLICIES)
    mig_catalogue: bool = argument("pumice.MigCatalogue", True)
    mig_off_group: bool = argument("pumice.MigOffGroup", False)
    short_entries: bool = argument("pumice.AcceptShortRegister", False)
    partial_requests: bool = argument("pumice.PartialRequests", False)
    unadvertised_nodes: bool = argument("pumice.AcceptUnadvertisedNodes", False)
