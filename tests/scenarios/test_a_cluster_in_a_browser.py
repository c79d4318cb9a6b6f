"""`pumice web` on a cluster of `pumice up`: it shows what `pumice explain` and the objects say, in a real browser, too."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from kit.local_cluster import PUMICE, LocalCluster, local_cluster, phase, pumice, vgpu_pod

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import words_of

from pumice.adapters.kube import KubeClient
from pumice.wire.kinds import PODS

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("browser"), "--nodes", "1", "--cards", "2") as built:

        async def fill(kube: KubeClient) -> None:
            for made in (vgpu_pod("a", 3000, 30), vgpu_pod("b", 7000), vgpu_pod("c", 9000), vgpu_pod("late", 6000)):
                await kube.create(PODS, made, "default")

        async def stands(kube: KubeClient) -> bool:
            late = await kube.get(PODS, "late", "default")
            told = any(c["type"] == "PodScheduled" for c in late["status"].get("conditions", ()))
            return told and all([await phase(kube, name) == "Running" for name in "abc"])

        built.ask(fill)
        built.wait(stands)
        yield built


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> Iterator[str]:
    """As the command prints it, with the token."""
    command = [*PUMICE, "web", "--kubeconfig", str(cluster.data.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            found = next(word for word in page.stdout.readline().split() if word.startswith("http://"))
            deadline = time.monotonic() + 60
            while "Not complete yet" in read(found, "") and time.monotonic() < deadline:
                time.sleep(0.1)
            yield found
        finally:
            page.terminate()
            assert page.wait(60) == 0


def read(address: str, path: str) -> str:
    base, _, token = address.partition("?token=")
    asked = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as answer:
        return str(answer.read().decode())


def explained(cluster: LocalCluster, name: str) -> Any:
    done = pumice("explain", "pod", name, "-o", "json", "--kubeconfig", str(cluster.data.kubeconfig))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["a", "b", "c", "late"])
def test_a_pods_page_says_what_explain_and_its_object_say(cluster: LocalCluster, address: str, name: str) -> None:
    words, told = words_of(read(address, f"pod?namespace=default&name={name}")), explained(cluster, name)
    obj = cluster.ask(lambda kube: kube.get(PODS, name, "default"))
    assert told["summary"] in words
    for card in told["cards"]:
        assert f"{card['uuid']} " in words
        assert f"{card['asked']} MiB {card['memory']} MiB {card['cores']} %" in words
    for change in told["changes"]:
        assert change["text"] in words
    for misfit in told["misfits"]:
        assert all(part in words for part in (misfit["node"], misfit["text"], *(card["detail"] for card in misfit["cards"])))
    assert f"Status {obj['status']['phase']}" in words
    assert f"Node {obj['spec'].get('nodeName', 'none')}" in words
    for condition in obj["status"]["conditions"]:
        assert " ".join(filter(None, (condition.get(k, "") for k in ("type", "status", "reason")))) in words
        assert " ".join(condition.get("message", "").split()) in words
    for resource, amount in obj["spec"]["containers"][0]["resources"]["limits"].items():
        assert f"{resource} {amount}" in words


def test_the_cluster_page_counts_what_pumice_top_counts(cluster: LocalCluster, address: str) -> None:
    done = pumice("top", "-o", "json", "--tab", "pods", "--data-dir", str(cluster.data.root))
    assert done.returncode == 0, done.stderr
    text = unescape(read(address, ""))
    for row in json.loads(done.stdout)["pods"]:
        assert f"{row['memory']}/{row['total']} MiB, {row['cores']} %, {len(row['holders'])}/10 shares" in text
        for holder in row["holders"]:
            assert f"{holder['pod']}: {holder['memory']} MiB" in text


def test_the_pages_pass_axe_and_work_by_keyboard_in_the_dark_and_on_a_phone(address: str) -> None:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    axe = pytest.importorskip("axe_core_python", reason="axe-core's rules are not there (pip install axe-core-python)")
    rules = (Path(axe.__file__).parent / "axe.min.js").read_text("utf-8")
    base = address.partition("?")[0]
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for dark, width in ((False, 1280), (True, 390)):
            context = browser.new_context(bypass_csp=True, color_scheme="dark" if dark else "light",
                                          viewport={"width": width, "height": 800})  # fmt: skip
            page = context.new_page()
            faults: list[str] = []
            page.on("pageerror", lambda error, faults=faults: faults.append(str(error)))
            page.on("request", lambda request, faults=faults: faults.extend([request.url] * (not request.url.startswith(base))))
            page.goto(address, timeout=60_000)
            assert "token" not in page.url
            assert page.evaluate("document.cookie") == ""
            for path in ("", "pods", "pod?namespace=default&name=late", "waiting", "queues", "queue?name=default", "jobs",
                         "changes", "search?q=a", "node?name=node-1", "nope"):  # fmt: skip
                page.goto(base + path, timeout=60_000)
                page.evaluate(rules)
                found = page.evaluate("axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'] })")["violations"]
                assert [(path, v["id"], [n["html"][:120] for n in v["nodes"][:2]]) for v in found] == []
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, wide)
            page.goto(base, timeout=60_000)
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.className") == "skip"
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "main"
            page.wait_for_function("document.getElementById('live').textContent === 'Live.'", timeout=60_000)
            assert faults == []
            context.close()
        browser.close()


def test_addresses_of_others_are_refused_in_one_line() -> None:
    for words, said in (
        (["--listen-address", "0.0.0.0:0"], "others could read the token"), (["--listen-address", "x"], "ADDRESS:PORT"),
        (["--kubeconfig", "/nonexistent"], "/nonexistent"),
    ):  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "pumice", "web", *words], capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout, done.stderr.count("\n"), said in done.stderr) == (2, "", 1, True), done.stderr
