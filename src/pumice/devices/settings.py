"""The arguments of plugin ``deviceshare``, with every alias upstream ever wrote (spec deviceshare-nvidia 3, decision 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pumice.devices.card_policies import POLICIES
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.nearest import nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Score = TypeVar("Score", float, "NDArray[np.float64]")
Rule = tuple[tuple[str, str], ...]
"""Label pairs that a pod must all carry to match (section 13)."""

LEXICOGRAPHIC_WEIGHT = 1e9
"""Weight of the device score when no weight is set (decision 2): a policy decides first, other plugins only among nodes that
are equal to it. Their scores are below 1e5, ours differ by at least 1e-6."""
LAST_RESORT = 1000.0
"""Taken from the score of a node that would give a MIG slot to a pod that names no mode: such a score is below 0 (ADR 32)."""
_BEHIND_ALL = 1e12
"""More than all plugins together can give: a last resort comes after every other node, whatever its weight."""

MIG_POLICIES = ("listed", "tightest", "expected")
NPU_POLICIES = ("listed", "expected")
NONE, KEPT, FULLEST = PLANNING = ("none", "kept", "fullest")
"""How pods that wait together are laid out: each by itself; so that nobody loses the place that it would have alone; or, of pods
that stand equal, so that as much memory as can be is used."""
_PREFIX = "deviceshare."
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


@dataclass(frozen=True, slots=True)
class Settings:
    """``weight`` None: not given. ``warnings`` are for the log and for lint, one sentence each."""

    vgpu: bool = False
    gpu_sharing: bool = False
    gpu_number: bool = False
    node_lock: bool = False
    policy: str = ""
    weight: int | None = None
    configmap: str = names.DEVICE_CONFIGMAP
    configmap_namespace: str = names.DEVICE_CONFIG_NAMESPACE
    rules: tuple[Rule, ...] = ()
    mig_policy: str = "tightest"
    mig_catalogue: bool = True
    mig_off_group: bool = False
    short_entries: bool = False
    partial_requests: bool = False
    unadvertised_nodes: bool = False
    ascend_mindcluster: bool = False
    ascend_hami: bool = False
    npu_preset: bool = False
    npu_gathered: bool = True
    npu_self_maintained: bool = True
    npu_avoid_unhealthy: bool = False
    npu_policy: str = "listed"
    plan_pending: str = KEPT
    delete_refused: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def node_weight(self) -> float:
        """What a node's score is multiplied with; 0 means that devices have no say in the choice of node."""
        return LEXICOGRAPHIC_WEIGHT if self.weight is None else float(max(0, self.weight))

    @property
    def policy_first(self) -> bool:
        """Whether a policy decides between nodes before every other plugin."""
        return bool(self.policy) and self.weight is None

    def contribution(self, score: Score) -> Score:
        """What a family's node score (a number or an array) adds to the node's total: upstream's rounding with a given
        weight; unrounded without one, so that ties between nodes of equal card scores are broken too (fit.TIE)."""
        behind = (score < 0) * 1.0
        own = score + behind * LAST_RESORT
        if self.weight is not None:
            own = (own + 0.5) // 1
        return own * self.node_weight - behind * _BEHIND_ALL


ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "deviceshare.VGPUEnable": ("vgpu", "bool"),
    "deviceshare.GPUSharingEnable": ("gpu_sharing", "bool"),
    "deviceshare.GPUNumberEnable": ("gpu_number", "bool"),
    "deviceshare.NodeLockEnable": ("node_lock", "bool"),
    "deviceshare.SchedulePolicy": ("policy", "str"),
    "deviceshare.ScheduleWeight": ("weight", "int"),
    "deviceshare.KnownGeometriesCMName": ("configmap", "str"),
    "deviceshare.KnownGeometriesCMNamespace": ("configmap_namespace", "str"),
    "deviceshare.GPUExclusiveRules": ("rules", "rules"),
    "deviceshare.AscendMindClusterVNPUEnable": ("ascend_mindcluster", "bool"),
    "deviceshare.AscendHAMiVNPUEnable": ("ascend_hami", "bool"),
    "pumice.NpuPolicy": ("npu_policy", "str"),
    "pumice.AvoidUnhealthyHosts": ("npu_avoid_unhealthy", "bool"),
    "pumice.MigPolicy": ("mig_policy", "str"),
    "pumice.MigCatalogue": ("mig_catalogue", "bool"),
    "pumice.MigOffGroup": ("mig_off_group", "bool"),
    "pumice.PlanPendingSet": ("plan_pending", "str"),
    "pumice.DeleteRefusedPods": ("delete_refused", "bool"),
    "pumice.AcceptShortRegister": ("short_entries", "bool"),
    "pumice.PartialRequests": ("partial_requests", "bool"),
    "pumice.AcceptUnadvertisedNodes": ("unadvertised_nodes", "bool"),
}
"""Canonical argument to field and type. The ``pumice.`` ones are ours."""

PARAMETERS: Mapping[str, tuple[str, str]] = {
    f"{names.INIT_PARAMS}.{key}": (field, "flag")
    for key, field in zip(names.PARAMS_READ, ("npu_preset", "npu_gathered", "npu_self_maintained"), strict=True)
}
"""The same for those that stand in ``init-params``."""

ALIASES: Mapping[str, str] = {
    "deviceshare.KnowGeometriesCMName": "deviceshare.KnownGeometriesCMName",
    "deviceshare.KnowGeometriesCMNamespace": "deviceshare.KnownGeometriesCMNamespace",
    "predicate.VGPUEnable": "deviceshare.VGPUEnable",
    "predicate.GPUSharingEnable": "deviceshare.GPUSharingEnable",
    "predicate.GPUNumberEnable": "deviceshare.GPUNumberEnable",
}
"""Other spellings; the canonical one wins when both are there."""


def settings_from(arguments: Mapping[str, object]) -> Settings | Refusal:
    """Read the arguments. Unknown or unreadable ones are warnings; only an illegal combination is a refusal."""
    warnings: list[str] = []
    values: dict[str, Any] = {}
    for key, value in arguments.items():
        canonical = ALIASES.get(key, key)
        if canonical is not key:
            if canonical in arguments:
                if arguments[canonical] != value:
                    warnings.append(f"{key} is ignored because {canonical} is given too")
                continue
            warnings.append(f"{key} is an old spelling; write {canonical}")
        known = ARGUMENTS.get(canonical) or PARAMETERS.get(canonical)
        if known is None:
            warnings.append(f"unknown argument {key}{nearest(key, (*ARGUMENTS, *ALIASES))}")
            continue
        parsed = _value(known[1], key, value, warnings)
        if parsed is not None:
            values[known[0]] = parsed
    for field, allowed, key in (
        ("policy", POLICIES, "deviceshare.SchedulePolicy"),
        ("mig_policy", MIG_POLICIES, "pumice.MigPolicy"),
        ("npu_policy", NPU_POLICIES, "pumice.NpuPolicy"),
        ("plan_pending", PLANNING, "pumice.PlanPendingSet"),
    ):
        if values.get(field) and values[field] not in allowed:
            hint = f"{nearest(values[field], allowed)} (one of {', '.join(allowed)})"
            warnings.append(f"{key}: {values[field]!r} behaves as unset{hint}")
            del values[field]
    return _legal(replace(Settings(**values), warnings=tuple(warnings)))


def _legal(settings: Settings) -> Settings | Refusal:
    if settings.gpu_sharing and settings.gpu_number:
        return Refusal(
            "deviceshare.GPUNumberEnable",
            "deviceshare.GPUSharingEnable and deviceshare.GPUNumberEnable cannot both be true; keep one of them",
        )
    if settings.ascend_hami and settings.ascend_mindcluster:
        return Refusal(
            "deviceshare.AscendMindClusterVNPUEnable",
            "deviceshare.AscendHAMiVNPUEnable and deviceshare.AscendMindClusterVNPUEnable cannot both be true: they cut the same "
            "chips for two node plugins that do not know of each other; keep one of them",
        )
    if settings.vgpu and (settings.gpu_sharing or settings.gpu_number):
        legacy = "GPUSharingEnable" if settings.gpu_sharing else "GPUNumberEnable"
        return Refusal(
            f"deviceshare.{legacy}",
            f"deviceshare.{legacy} and deviceshare.VGPUEnable cannot both be true; vGPU replaces the legacy sharing",
        )
    return settings


def _value(kind: str, key: str, value: object, warnings: list[str]) -> Any:
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _TRUE | _FALSE:
            return value in _TRUE
        warnings.append(f"{key}: {value!r} is neither true nor false; ignored")
        return None
    if kind == "flag":  # MindCluster's own rule: nothing but this word is true (spec ascend 25)
        if value not in (True, False, "true", "false"):
            warnings.append(f"{key}: {value!r} is neither \"true\" nor \"false\"; it counts as false")
        return value in (True, "true")
    if kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and value.strip().lstrip("-").isdigit() and value.isascii() and len(value) < 12:
            return int(value)  # D-08
        warnings.append(f"{key}: {value!r} is no whole number; ignored")
        return None
    if kind == "rules":
        return _rules(key, value, warnings)
    if isinstance(value, str):
        return value
    warnings.append(f"{key}: {value!r} is no text; ignored")
    return None


def _rules(key: str, value: object, warnings: list[str]) -> tuple[Rule, ...]:
    """Values that are no strings are compared as YAML wrote them (D-37): dropping them would widen the rule."""
    rules = []
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        pairs = item.items() if isinstance(item, dict) else ()
        rule = tuple(sorted((str(label), _label(text)) for label, text in pairs if isinstance(text, str | int | float)))
        if not rule or len(rule) != len(pairs):
            warnings.append(f"{key}[{number}]: {item!r} is no map of pod labels to values; ignored")
            continue
        rules.append(rule)
    return tuple(rules)


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
