"""``pumice jobflow`` and ``vcctl jobflow``."""

from __future__ import annotations

from pumice.wire.volcano import JOB_FLOWS
from pumice_jobs.cli.flow_kinds import app_of

app = app_of("JobFlow", JOB_FLOWS)
