"""Rules per kind."""

from __future__ import annotations

from collections.abc import Mapping

from pumice_lab.apiserver.strategies.base import Strategy

DEFAULT = Strategy()


def builtin_strategies() -> Mapping[tuple[str, str], Strategy]:
    """Group and kind -> rules; a kind that is not named follows ``DEFAULT``."""
    from pumice_lab.apiserver.crd.strategy import DefinitionStrategy
    from pumice_lab.apiserver.strategies import claims, core, expressions, storage, workloads
    from pumice_lab.apiserver.strategies.pods import PodStrategy
    from pumice_lab.apiserver.strategies.resource_quota import LimitRangeStrategy, ResourceQuotaStrategy
    from pumice_lab.apiserver.strategies.storage import NodeStrategy

    definition = ("apiextensions.k8s.io", "CustomResourceDefinition")
    return {
        definition: DefinitionStrategy(),
        ("", "LimitRange"): LimitRangeStrategy(),
        ("", "Pod"): PodStrategy(),
        ("", "ResourceQuota"): ResourceQuotaStrategy(),
        ("", "Node"): NodeStrategy(),
        **claims.STRATEGIES,
        **core.STRATEGIES,
        **storage.STRATEGIES,
        **workloads.STRATEGIES,
        **expressions.STRATEGIES,
    }
