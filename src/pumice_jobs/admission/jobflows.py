"""JobFlows: every Job that a flow waits for is one of the flow, and none waits for itself."""

from __future__ import annotations

from typing import Final

from pumice_jobs.admission.review import Answer, Request, Settings, View
from pumice_jobs.controllers.jobflow import steps

NO_DAG: Final = "jobflow Flow is not DAG"
TWICE: Final = "two flows have one name: they are one Job, as the first of them says"


def validate(request: Request, view: View, settings: Settings) -> Answer:
    spec = request.object.get("spec") or {}
    needs = {str(flow.get("name")): set((flow.get("dependsOn") or {}).get("targets") or ()) for flow in steps(spec)}
    warnings = (TWICE,) if len(needs) < len(spec.get("flows") or ()) else ()
    for targets in needs.values():
        if missing := sorted(targets - needs.keys()):
            return Answer(f"{NO_DAG}: vertex is not defined: {missing[0]}")
    while free := [name for name, targets in needs.items() if not targets]:
        for name in free:
            del needs[name]
        for targets in needs.values():
            targets.difference_update(free)
    return Answer(f"{NO_DAG}: {', '.join(sorted(needs))} wait for each other" if needs else "", warnings=warnings)
