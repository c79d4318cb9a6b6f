"""A real Prometheus takes our rules, fires them when it should and only then, reads our pages, and answers every query."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kit.dashboards import DASHBOARDS, FOLDER
from kit.metric_pages import pages, program

from pumice.metrics.text import CONTENT_TYPE
from pumice_lab.free_ports import free_port

RULES = FOLDER.parent / "rules.yml"
MIB = 1 << 20
POD = 'podnamespace="a", podname="p", ctrname="c", deviceuuid="GPU-1"'
FIRES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    # alert: series, a sample a minute, on which it stands after 40 minutes; and those on which it does not
    "PumiceMemoryLimitNear": (
        {f"vGPU_device_memory_usage_in_bytes{{{POD}}}": "97x40", f"vGPU_device_memory_limit_in_bytes{{{POD}}}": "100x40"},
        {f"vGPU_device_memory_usage_in_bytes{{{POD}}}": "97x40", f"vGPU_device_memory_limit_in_bytes{{{POD}}}": "0x40"}),
    "PumiceBindingsFail": ({'volcano_schedule_attempts_total{result="error"}': "0+1x40"},
                           {'volcano_schedule_attempts_total{result="scheduled"}': "0+9x40"}),
    "PumiceAdmissionRefuses": ({'pumice_webhook_answers_total{path="/jobs/validate", outcome="refused"}': "0+3x40"},
                               {'pumice_webhook_answers_total{path="/jobs/validate", outcome="allowed"}': "0+9x40"}),
    "PumiceQueueStarves": (
        {'pumice_pending_pods{queue_name="q", reason="unschedulable"}': "3x40", 'volcano_queue_share{queue_name="q"}': "0.2x40"},
        {'pumice_pending_pods{queue_name="q", reason="unschedulable"}': "3x40", 'volcano_queue_share{queue_name="q"}': "1x40"}),
    "PumiceConfigurationRefused": ({'pumice_configuration_refused{what="configuration"}': "1x40"},
                                   {'pumice_configuration_refused{what="configuration"}': "0x40"}),
    "PumiceObjectsSetAside": ({"pumice_objects_set_aside": "2x40"}, {"pumice_objects_set_aside": "0x40"}),
    "PumicePluginGone": ({'up{job="kube-system/volcano-device-plugin", instance="n1"}': "0x40"},
                         {'up{job="volcano-device-plugin", instance="n1"}': "1x40"}),
    "PumiceCardsGone": (
        {'volcano_vgpu_device_memory_limit{devID="a", NodeName="n"}': "1x40",
         'volcano_vgpu_device_memory_limit{devID="b", NodeName="n"}': "1x30 stale", 'up{job="volcano-scheduler"}': "1x40"},
        {'volcano_vgpu_device_memory_limit{devID="a", NodeName="n"}': "1x40", 'up{job="volcano-scheduler"}': "1x40"}),
    "PumiceMonitorGone": ({'up{job="volcano-vgpu-monitor", instance="n1"}': "0x40"}, {'up{job="volcano-vgpu-monitor"}': "1x40"}),
    "PumiceSchedulerGone": ({'up{job="volcano-scheduler"}': "0x40"}, {'up{job="volcano-scheduler"}': "1x40"}),
    "PumiceDriverSilent": ({'pumice_monitor_driver_silent_seconds{instance="n1"}': "90x40"},
                           {'pumice_monitor_driver_silent_seconds{instance="n1"}': "2x40"}),
    "PumiceTampering": ({f'pumice_region_suspect{{{POD}, sign="gone"}}': "1x40"}, {f'pumice_region_suspect{{{POD}}}': "0x40"}),
    "PumiceMemoryUnaccounted": ({f"pumice_card_unaccounted_bytes{{{POD}}}": f"{2048 * MIB}x40"},
                                {f"pumice_card_unaccounted_bytes{{{POD}}}": f"{MIB}x40"}),
}  # fmt: skip


def test_promtool_takes_the_rules() -> None:
    done = subprocess.run([program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_stands_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    promtool = program("promtool")
    alerts = [rule["alert"] for part in yaml.safe_load(RULES.read_text())["groups"] for rule in part["rules"] if "alert" in rule]
    assert sorted(alerts) == sorted(FIRES)
    tests = [scene(alert, on, stands=True) for alert, (on, _) in FIRES.items()]
    tests += [scene(alert, off, stands=False) for alert, (_, off) in FIRES.items()]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def scene(alert: str, series: dict[str, str], *, stands: bool) -> dict[str, Any]:
    """Counted, for what an alert says of itself is its own affair."""
    samples = [{"value": 1, "labels": "{}"}] if stands else []
    given = [{"series": name, "values": values} for name, values in series.items()]
    requested = {"eval_time": "40m", "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})', "exp_samples": samples}
    return {"interval": "1m", "name": alert, "input_series": given, "promql_expr_test": [requested]}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that has scraped every daemon's page several times, under the names of our way of finding them."""
    folder, listen = tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{free_port()}"
    binary = program("prometheus")
    with pages_served() as where:
        jobs = [{"job_name": job, "honor_labels": True, "metrics_path": f"/{job}", "static_configs": [
            {"targets": [where], "labels": {"node": "n1"}}]} for job in pages()]  # fmt: skip
        often = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": often, "rule_files": [str(RULES)], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        run = subprocess.Popen([binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                f"--web.listen-address={listen}"], stderr=(folder / "log").open("w"))  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while len(answer(listen, "count by (job) (count_over_time(up[1m]) > 3)")) < len(pages()):
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            yield listen
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(30)


@contextmanager
def pages_served() -> Iterator[str]:
    """Every daemon's page at its name."""
    loop, port = asyncio.new_event_loop(), free_port()

    async def page(request: web.Request) -> web.Response:
        text = pages()[request.path.strip("/")]
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def start() -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get("/{job}", page)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    pages()
    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def answer(where: str, query: str) -> list[Any]:
    """The samples; none while nobody answers."""
    try:
        words = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://{where}/api/v1/query?{words}", timeout=10) as found:
            reported = json.load(found)
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it listens, and has not read its rules yet
            return []
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except OSError:
        return []
    assert reported["status"] == "success"
    return list(reported["data"]["result"])


QUERIES = {f"{name}: {panel.title}: {legend}": query for name, board in DASHBOARDS.items() for panel in board.panels
           for legend, query in panel.queries.items()}  # fmt: skip


@pytest.mark.parametrize("which", QUERIES)
def test_every_query_of_a_dashboard_is_answered_from_our_pages(prometheus: str, which: str) -> None:
    query = re.sub(r"\$(node|queue|namespace|pod)\b", ".*", QUERIES[which])
    found = answer(prometheus, query)
    assert found, query
    legend = which.rpartition(": ")[2]
    assert set(re.findall(r"{{(\w+)}}", legend)) <= set().union(*(sample["metric"] for sample in found))
