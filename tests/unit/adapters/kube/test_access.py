"""Service account tokens that are rotated while a daemon runs."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path

import pytest

from pumice.adapters.certificates import make_authority
from pumice.adapters.kube import in_cluster, load_kubeconfig
from pumice.adapters.kube.config import TOKEN_KEPT, TokenFile
from pumice.model.errors import BadInput


def test_a_rotated_token_is_seen_in_time_and_a_file_that_is_away_changes_nothing(tmp_path: Path) -> None:
    now = 100.0
    file = tmp_path / "token"
    file.write_text("first\n")
    token = TokenFile(file, lambda: now)
    file.write_text("second\n")
    assert token() == "first"
    now += TOKEN_KEPT
    assert token() == "second"
    file.unlink()
    now += TOKEN_KEPT
    assert token() == "second"
    file.write_text("")  # half written
    now += TOKEN_KEPT
    assert token() == "second"


def test_a_token_file_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("""
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {tokenFile: nowhere}}]
""")
    with pytest.raises(BadInput, match="nowhere"):
        load_kubeconfig(config)


@pytest.mark.parametrize("inline", [True, False])
def test_an_authority_that_is_named_is_the_only_one_that_is_trusted(inline: bool, tmp_path: Path) -> None:
    made = make_authority("ours", datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)).certificate
    (tmp_path / "ca.crt").write_bytes(made)
    named = f"certificate-authority-data: {base64.b64encode(made).decode()}" if inline else "certificate-authority: ca.crt"
    config = tmp_path / "config"
    config.write_text(f"""
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "https://127.0.0.1:1", {named}}}}}]
users: [{{name: u, user: {{token: t}}}}]
""")
    tls = load_kubeconfig(config).ssl
    assert tls is not None
    assert [dict(word for words in each["subject"] for word in words)["commonName"] for each in tls.get_ca_certs()] == ["ours"]


def test_inside_a_pod_nothing_is_asked_without_the_clusters_authority(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with pytest.raises(BadInput, match="not inside a pod"):
        in_cluster({}, tmp_path)
    with pytest.raises(BadInput, match="authority"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)


@pytest.mark.parametrize("cluster", [
    "certificate-authority: nowhere.crt", "certificate-authority-data: aGVsbG8=", "certificate-authority-data: '%%'",
])  # fmt: skip
def test_certificates_that_are_none_are_refused_with_the_file_that_names_them(cluster: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"""
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "https://127.0.0.1:1", {cluster}}}}}]
users: [{{name: u, user: {{token: t}}}}]
""")
    with pytest.raises(BadInput, match="config"):
        load_kubeconfig(config)
