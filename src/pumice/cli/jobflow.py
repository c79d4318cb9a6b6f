"""``pumice jobflow`` and ``vcctl jobflow``."""

from __future__ import annotations

from pumice.cli.flow_kinds import app_of
from pumice.wire.volcano import JOB_FLOWS

app = app_of("JobFlow", JOB_FLOWS)
