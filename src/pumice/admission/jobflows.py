"""JobFlows: every Job that a flow waits for is one of the flow, and none waits for itself."""

from __future__ import annotations

from pumice.admission.review import Answer, Request, Settings, View


def validate(request: Request, view: View, settings: Settings) -> Answer:
    flows = (request.object.get("spec") or {}).get("flows") or ()
    needs = {str(flow.get("name")): set((flow.get("dependsOn") or {}).get("targets") or ()) for flow in flows}
    if len(needs) < len(flows):
        return Answer("duplicated name in the flows of a JobFlow")
    for name, targets in needs.items():
        if missing := sorted(targets - needs.keys()):
            return Answer(f"vertex is not defined: {missing[0]}, for which {name} waits")
    while free := [name for name, targets in needs.items() if not targets]:
        for name in free:
            del needs[name]
        for targets in needs.values():
            targets.difference_update(free)
    return Answer(f"jobflow Flow is not DAG: {', '.join(sorted(needs))} wait for each other" if needs else "")
