"""``pumice jobtemplate`` and ``vcctl jobtemplate``."""

from __future__ import annotations

from pumice.cli.flow_kinds import app_of
from pumice.wire.batch import JOB_TEMPLATES

app = app_of("JobTemplate", JOB_TEMPLATES)
