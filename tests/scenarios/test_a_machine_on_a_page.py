"""`pumice web` of one machine without a cluster shows what `pumice ps` and `pumice top` say."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request

import pytest
from kit.one_machine import MIB, PUMICE, OneMachine

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import words_of


def read(address: str, path: str) -> str:
    base, _, token = address.partition("?token=")
    asked = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as answer:
        return words_of(answer.read().decode())


def test_the_page_says_what_ps_and_top_say_and_forgets_a_program_that_has_ended(here: OneMachine) -> None:
    one = here.burn("--memory", "3000", "--cores", "50", memory=1000)
    here.burn("--memory", "2000", "--gpu", "1", memory=500)
    command = [*PUMICE, "web", "--emulated", str(here.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here.environment) as page:
        try:
            assert page.stdout is not None
            address = next(word for word in page.stdout.readline().split() if word.startswith("http://"))
            first, listed, shares = read(address, ""), read(address, "programs"), here.ps()
            assert len(shares) == 2
            for share in shares:
                own = read(address, f"program?id={share['id']}")
                assert " ".join(share["command"]) in own
                assert f"Pid {share['pid']}" in own
                for card in share["cards"]:
                    figures = f"{card['memoryLimitMiB']} MiB {-(-card['memoryUsedBytes'] // MIB)} MiB"
                    assert figures in own, (figures, own)
                    assert f"{-(-card['memoryUsedBytes'] // MIB)} MiB of {card['memoryLimitMiB']} MiB" in listed
                    assert card["uuid"] in own
                    limit = card["coresLimitPercent"]
                    assert (f"{limit} %" if limit else "no limit") in own
            done = here.pumice("top", "--tab", "cards", "-o", "json", "--emulated", str(here.directory))
            assert done.returncode == 0, done.stderr
            for card in json.loads(done.stdout)["cards"]:
                used, total = -(-card["memoryUsedBytes"] // MIB), card["memoryTotalBytes"] // MIB
                assert f"Card {card['card']}: {card['model']}" in first
                assert f"In use: {used} MiB of {total} MiB" in first
            one.kill()
            one.wait(60)
            deadline = time.monotonic() + 60
            while str(one.pid) in read(address, "programs"):
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            page.terminate()
            assert page.wait(60) == 0
