"""conformance: system pods are nobody's victims (spec volcano-core 11.3). Nothing is evicted yet for whom it could speak."""

from __future__ import annotations

from pumice.engine.plugins.contract import Plugin


class Conformance(Plugin):
    name = "conformance"
