"""Rules per kind."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.cluster.apiserver.strategies.base import Strategy

DEFAULT = Strategy()


def builtin_strategies() -> Mapping[tuple[str, str], Strategy]:
    """Group and kind -> rules; a kind that is not named follows ``DEFAULT``."""
    from pumice.cluster.apiserver.crd.strategy import DefinitionStrategy
    from pumice.cluster.apiserver.strategies import core, expressions, storage, workloads
    from pumice.cluster.apiserver.strategies.limit_range import LimitRangeStrategy
    from pumice.cluster.apiserver.strategies.nodes import NodeStrategy
    from pumice.cluster.apiserver.strategies.pods import PodStrategy
    from pumice.cluster.apiserver.strategies.resource_quota import ResourceQuotaStrategy

    definition = ("apiextensions.k8s.io", "CustomResourceDefinition")
    return {
        definition: DefinitionStrategy(),
        ("", "LimitRange"): LimitRangeStrategy(),
        ("", "Pod"): PodStrategy(),
        ("", "ResourceQuota"): ResourceQuotaStrategy(),
        ("", "Node"): NodeStrategy(),
        **core.STRATEGIES,
        **storage.STRATEGIES,
        **workloads.STRATEGIES,
        **expressions.STRATEGIES,
    }
