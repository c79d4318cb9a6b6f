"""Grafana's dashboards as a table of panels, of which deploy/observability/dashboards is made: ``python -m kit.dashboards``.

A variable stands in a query as ``$name``; what Grafana puts there may be a regular expression of several values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "deploy" / "observability" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PAGE = "http://127.0.0.1:8001/api/v1/namespaces/volcano-system/services/http:pumice-web:page/proxy"
"""Where `pumice web` answers behind `kubectl proxy`; a field at the top of each dashboard takes another address."""
WIDE, COLUMNS = 24, 3
HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Panel:
    """``queries``: legend and expression of each line. ``why``: what a look at it tells."""

    title: str
    unit: str
    why: str
    queries: dict[str, str]
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``variables``: by name the query of Grafana's that lists their values. ``view``: of `pumice web`, to which it links."""

    title: str
    panels: list[Panel]
    variables: dict[str, str] = field(default_factory=dict)
    view: str = ""


GIVEN, LIMIT = "volcano_vgpu_device_allocated_memory", "volcano_vgpu_device_memory_limit"
OF_NODE = 'on (deviceuuid) group_left (NodeName) pumice:card_node:info{NodeName=~"$node"}'
TENANT = '{podnamespace=~"$namespace", podname=~"$pod"}'
PENDING = "Pods that wait, by why"
CARD = "{{NodeName}} {{devID}}"
USED_CARD = "{{NodeName}} {{deviceuuid}}"
CONTAINER = "{{podnamespace}}/{{podname}} {{ctrname}}"


def p95(histogram: str, labels: str = "") -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate({histogram}_bucket{labels}[5m])))"


DASHBOARDS = {
    "cluster": Dashboard("Pumice: cluster", [
        Panel("Cards", "none", "cards that the scheduler knows", {"cards": f"count({LIMIT})"}, "stat"),
        Panel("Memory given away", "percent", "of all cards, in their units", {
            "given": f"100 * sum({GIVEN}) / sum({LIMIT})"}, "stat"),
        Panel("Time given away", "percent", "of all cards", {
            "given": f"sum(volcano_vgpu_device_allocated_cores) / count({LIMIT})"}, "stat"),
        Panel(PENDING, "none", "unschedulable: no node has room; queue, gang, gated: something else comes first", {
            "{{reason}}": "sum by (reason) (pumice_pending_pods)"}),
        Panel("Placing attempts", "ops", "error: a Binding came to nothing", {
            "{{result}}": "sum by (result) (rate(volcano_schedule_attempts_total[5m]))"}),
        Panel("From a pod's creation to its Binding", "ms", "nineteen in twenty are faster", {
            "p95": p95("volcano_task_scheduling_latency_milliseconds", '{stage="Bound"}')}),
        Panel("A scheduling cycle", "ms", "nineteen in twenty are shorter", {
            "p95": p95("volcano_e2e_scheduling_latency_milliseconds")}),
        Panel("Evictions", "ops", "pods sent away to make room, by the action that did it", {
            "{{action}}": "sum by (action) (rate(volcano_eviction_transactions_total[5m]))"}),
        Panel("Answers of admission", "ops", "refused: an object that makes no sense", {
            "{{path}} {{outcome}}": "sum by (path, outcome) (rate(pumice_webhook_answers_total[5m]))"}),
        Panel("Gangs by phase", "none", "Inqueue: admitted, waits for room", {
            phase: f"sum(volcano_queue_pod_group_{phase}_count)" for phase in ("pending", "inqueue", "running", "unknown")}),
        Panel("Refused configurations and objects", "none", "1 or more: somebody's words are not followed", {
            "{{what}}": "max by (what) (pumice_configuration_refused)", "objects": "max(pumice_objects_set_aside)"}),
        Panel("Memory of the daemons", "bytes", "by what they are scraped as", {
            "{{job}}": "max by (job) (process_resident_memory_bytes)"}),
    ]),
    "node": Dashboard("Pumice: node and card", [
        Panel("Memory given away", "percent", "of each card, by the scheduler's books", {
            CARD: f'100 * {GIVEN}{{NodeName=~"$node"}} / {LIMIT}{{NodeName=~"$node"}}'}),
        Panel("Time given away", "percent", "of each card", {CARD: 'volcano_vgpu_device_allocated_cores{NodeName=~"$node"}'}),
        Panel("Shares in use", "none", "pods of each card", {CARD: 'volcano_vgpu_device_shared_number{NodeName=~"$node"}'}),
        Panel("Memory in use", "bytes", "by the driver, whoever uses it", {USED_CARD: f"HostGPUMemoryUsage * {OF_NODE}"}),
        Panel("Utilization", "percent", "by the driver", {USED_CARD: f"HostCoreUtilization * {OF_NODE}"}),
        Panel("Programs", "none", "that compute on each card", {USED_CARD: f"pumice_card_processes * {OF_NODE}"}),
        Panel("Memory in no account", "bytes", "no limit holds for it; without a name: programs outside of pods", {
            "{{deviceuuid}} {{podnamespace}}/{{podname}}": f"pumice_card_unaccounted_bytes * {OF_NODE}"}),
        Panel("Slices", "none", "of cards in MIG mode, by profile", {
            f"{CARD} {{{{template}}}}": 'pumice_vgpu_device_slices{NodeName=~"$node"}'}),
        Panel("Memory of slices", "bytes", "by the driver", {
            "{{profile}} {{miguuid}}": f"pumice_mig_memory_used_bytes * {OF_NODE}"}),
        Panel("Slices of NPUs", "percent", "how busy their AI cores are", {
            "{{namespace}}/{{pod_name}} {{v_dev_id}}": "vnpu_pod_aicore_utilization"}),
        Panel("Silent drivers", "s", "for how long a driver owes the monitor an answer", {
            "{{instance}}": "pumice_monitor_driver_silent_seconds"}),
        Panel("Unreadable regions", "none", "of containers, at this scrape", {"{{instance}}": "pumice_monitor_bad_regions"}),
    ], {"node": f"label_values({LIMIT}, NodeName)"}),
    "queue": Dashboard("Pumice: queue", [
        Panel(PENDING, "none", "of each queue", {
            "{{queue_name}} {{reason}}": 'pumice_pending_pods{queue_name=~"$queue"}'}),
        Panel("Share", "percentunit", "part of what it deserves that a queue uses", {
            "{{queue_name}}": 'volcano_queue_share{queue_name=~"$queue"}'}),
        Panel("Overused", "none", "1: the queue uses all that it deserves and holds or wants more, others come first", {
            "{{queue_name}}": 'volcano_queue_overused{queue_name=~"$queue"}'}),
        Panel("Processors", "none", "thousandths: what the queue has, wants and deserves", {
            f"{{{{queue_name}}}} {part}": f'volcano_queue_{part}_milli_cpu{{queue_name=~"$queue"}}'
            for part in ("allocated", "request", "deserved")}),
        Panel("Memory", "bytes", "the same", {
            f"{{{{queue_name}}}} {part}": f'volcano_queue_{part}_memory_bytes{{queue_name=~"$queue"}}'
            for part in ("allocated", "request", "deserved")}),
        Panel("Cards and other resources", "none", "the same, thousandths", {
            f"{{{{queue_name}}}} {{{{resource}}}} {part}": f'volcano_queue_{part}_scalar_resources{{queue_name=~"$queue"}}'
            for part in ("allocated", "request", "capacity")}),
        Panel("Gangs by phase", "none", "of each queue", {
            f"{{{{queue_name}}}} {phase}": f'volcano_queue_pod_group_{phase}_count{{queue_name=~"$queue"}}'
            for phase in ("pending", "inqueue", "running")}),
        Panel("Jobs that failed", "none", "within an hour", {
            "{{job_name}}": 'increase(volcano_job_failed_phase_count{queue_name=~"$queue"}[1h])'}),
        Panel("Until a gang stood", "ms", "from its creation", {
            "{{job_namespace}}/{{job_name}}": 'volcano_e2e_job_scheduling_duration{queue=~"$queue"}'}),
    ], {"queue": "label_values(volcano_queue_weight, queue_name)"}, view="queues"),
    "tenant": Dashboard("Pumice: tenant", [
        Panel("Memory in use", "bytes", "of each card of each container", {
            CONTAINER: f"vGPU_device_memory_usage_in_bytes{TENANT}"}),
        Panel("Memory limit", "bytes", "what the container was given", {CONTAINER: f"vGPU_device_memory_limit_in_bytes{TENANT}"}),
        Panel("Of the limit", "percent", "at 100 an allocation fails", {
            CONTAINER: f"100 * vGPU_device_memory_usage_in_bytes{TENANT} / (vGPU_device_memory_limit_in_bytes{TENANT} > 0)"}),
        Panel("Utilization", "percent", "of the card's time", {CONTAINER: f"Device_utilization_desc_of_container{TENANT}"}),
        Panel("Since the last kernel", "s", "an idle container holds its card for nobody", {
            CONTAINER: f"Device_last_kernel_of_container{TENANT}"}),
        Panel("Memory charged", "none", "units of each card, by the scheduler's books", {
            "{{podNamespace}}/{{podName}}": 'pumice_vgpu_device_pod_memory{podNamespace=~"$namespace", podName=~"$pod"}'}),
        Panel("Time charged", "percent", "of each card", {
            "{{podNamespace}}/{{podName}}": 'pumice_vgpu_device_pod_cores{podNamespace=~"$namespace", podName=~"$pod"}'}),
        Panel("Regions that are not as they were given", "none", "somebody, or something, wrote in them", {
            f"{CONTAINER} {{{{sign}}}}": f"pumice_region_suspect{TENANT}"}),
        Panel("Memory in no account", "bytes", "of programs that the library does not see", {
            CONTAINER: f"pumice_card_unaccounted_bytes{TENANT}"}),
    ], {"namespace": "label_values(vGPU_device_memory_limit_in_bytes, podnamespace)",
        "pod": 'label_values(vGPU_device_memory_limit_in_bytes{podnamespace=~"$namespace"}, podname)'}, view="pods"),
}  # fmt: skip


def render(name: str) -> str:
    board = DASHBOARDS[name]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    page = {"name": "page", "type": "textbox", "label": "Address of pumice web", "query": PAGE,
            "current": {"text": PAGE, "value": PAGE}}  # fmt: skip
    return json.dumps({
        "uid": f"pumice-{name}", "title": board.title, "tags": ["pumice"], "schemaVersion": 39, "version": 1, "editable": True,
        "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *(_variable(*one) for one in board.variables.items()), page]},
        "links": [{"title": "pumice web", "type": "link", "url": f"${{page}}/{board.view}", "targetBlank": True}],
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }, indent=1) + "\n"  # fmt: skip


def _variable(name: str, query: str) -> dict[str, Any]:
    requested = {"query": query, "refId": name}
    return {"name": name, "type": "query", "label": name.capitalize(), "datasource": SOURCE, "query": requested,
            "multi": True, "includeAll": True, "allValue": ".*", "refresh": 2, "sort": 1,
            "current": {"text": "All", "value": "$__all"}}  # fmt: skip


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    width = WIDE // COLUMNS
    place = {"x": number % COLUMNS * width, "y": number // COLUMNS * HEIGHT, "w": width, "h": HEIGHT}
    targets = [{"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": SOURCE}
               for at, (legend, query) in enumerate(panel.queries.items())]  # fmt: skip
    return {"id": number + 1, "type": panel.kind, "title": panel.title, "description": panel.why, "datasource": SOURCE,
            "gridPos": place, "targets": targets,
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []}}  # fmt: skip


if __name__ == "__main__":
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(render(name), "utf-8")
