"""Ways from one project's names to another's, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pumice.wire import elsewhere, names
from pumice.wire.elsewhere import To
from pumice.wire.programs import HAMI_SCHEDULER


@dataclass(frozen=True, slots=True)
class Way:
    """``renamed``: resources and annotations. ``theirs``, ``ours``: names of one side alone that are always renamed; a file has
    those of one side. ``lost``: what has no name there, and what comes of that; ``lost_keys``: those of the device
    ConfigMap."""

    to: To
    renamed: Mapping[str, str]
    theirs: frozenset[str]
    ours: frozenset[str]
    scheduler: tuple[str, str]
    config_keys: Mapping[str, str]
    lost: Mapping[str, str]
    lost_keys: Mapping[str, str]

    @property
    def count(self) -> str:
        """The resource that counts cards, as it is called where this leads to."""
        return names.WHOLE_GPU if self.to is To.HAMI else names.VGPU_NUMBER


_HAMIS: Final = {**elsewhere.RESOURCES, **elsewhere.ANNOTATIONS}
_OURS: Final = {ours: theirs for theirs, ours in _HAMIS.items()}
_THEIRS: Final = frozenset(name for name, ours in _HAMIS.items() if ours not in elsewhere.VALUES) - {names.WHOLE_GPU}
"""``nvidia.com/gpu`` alone may be NVIDIA's own plugin's."""
_HERE: Final = frozenset(ours for ours in _OURS if ours not in elsewhere.VALUES)
_NO_POLICY: Final = "Volcano knows the cluster's policy alone"
_OURS_ALONE: Final = {names.NODE_POLICY: _NO_POLICY, names.CARD_POLICY: _NO_POLICY}
_AT_VOLCANO: Final = {name: ours for name, ours in _HAMIS.items() if ours not in _OURS_ALONE}
HINTS: Final = frozenset({*_HAMIS, elsewhere.PRIORITY}) - {names.WHOLE_GPU}
"""Names by which a file is HAMi's, and with it the ``nvidia.com/gpu`` in it."""

WAYS: Final[Mapping[To, Way]] = {
    To.PUMICE: Way(To.PUMICE, _HAMIS, _THEIRS, _HERE, (HAMI_SCHEDULER, names.SCHEDULER_NAME), elsewhere.CONFIG_KEYS,
                   elsewhere.LOST, elsewhere.LOST_KEYS),
    To.VOLCANO: Way(To.VOLCANO, _AT_VOLCANO, _THEIRS, _HERE, (HAMI_SCHEDULER, names.SCHEDULER_NAME), elsewhere.CONFIG_KEYS,
                    {**elsewhere.LOST, **dict.fromkeys(_HAMIS.keys() - _AT_VOLCANO.keys(), _NO_POLICY), **_OURS_ALONE},
                    elsewhere.LOST_KEYS_AT_VOLCANO),
    To.HAMI: Way(To.HAMI, _OURS, _HERE, _THEIRS, (names.SCHEDULER_NAME, HAMI_SCHEDULER),
                 {ours: theirs for theirs, ours in elsewhere.CONFIG_KEYS.items()}, elsewhere.LOST_AT_HAMI,
                 elsewhere.LOST_KEYS_AT_HAMI),
}  # fmt: skip
