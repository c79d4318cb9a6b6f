"""``pumice jobtemplate`` and ``vcctl jobtemplate``."""

from __future__ import annotations

from pumice.wire.batch import JOB_TEMPLATES
from pumice_jobs.cli.flow_kinds import app_of

app = app_of("JobTemplate", JOB_TEMPLATES)
