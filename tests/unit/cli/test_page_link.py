"""At a terminal ``pumice explain`` names the page of ``pumice web`` that shows the same, where it knows one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pumice.cli.explain import _view_of
from pumice.cli.page_link import page_link, print_page_link
from pumice.web.views import Views


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUMICE_WEB_URL", raising=False)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a cluster of `pumice up` with its page."""
    (tmp_path / "cluster.json").write_text(json.dumps({"web": "127.0.0.1:8090"}))
    (tmp_path / "web-token").write_text("secret\n")
    return tmp_path / "kubeconfig"


def test_a_cluster_of_pumice_up_has_its_own_page_with_the_token_of_its_owner(kubeconfig: Path) -> None:
    address = page_link(kubeconfig, "pod", namespace="research", name="trainer-0")
    assert address == "http://127.0.0.1:8090/pod?namespace=research&name=trainer-0&token=secret"
    (kubeconfig.parent / "web-token").unlink()
    assert page_link(kubeconfig, "waiting") == "http://127.0.0.1:8090/waiting"


def test_the_address_that_a_user_names_comes_first_and_gets_no_token(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_WEB_URL", "https://gpus.example/page/")
    assert page_link(kubeconfig, "queue", name="a b&c") == "https://gpus.example/page/queue?name=a+b%26c"
    assert page_link(None, "waiting") == "https://gpus.example/page/waiting"


@pytest.mark.parametrize("facts", [b"", b"{", b"[]", b"null", b'"a"', b"{}", b'{"web": null}', b"\xff"])
def test_facts_that_are_damaged_or_name_no_page_give_no_link(kubeconfig: Path, facts: bytes) -> None:
    (kubeconfig.parent / "cluster.json").write_bytes(facts)
    assert page_link(kubeconfig, "pod", name="a") == ""


def test_other_clusters_and_none_give_no_link(tmp_path: Path) -> None:
    assert [page_link(None, "waiting"), page_link(tmp_path / "config", "waiting")] == ["", ""]


def test_scripts_read_no_link(kubeconfig: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_page_link(kubeconfig, "waiting")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_page_link(kubeconfig, "waiting")
    assert capsys.readouterr().out == "in a browser: http://127.0.0.1:8090/waiting?token=secret\n"


def test_what_is_explained_has_a_view_that_is_there() -> None:
    found = {meant: _view_of(meant, "team", "a")[0] for meant in ("pod", "podgroup", "queue", "job", "deployment", "waiting")}
    assert found == {"pod": "pod", "podgroup": "job", "queue": "queue", "job": "search", "deployment": "search",
                     "waiting": "waiting"}  # fmt: skip
    assert set(found.values()) <= Views(None, None).views.keys()  # type: ignore[arg-type]
