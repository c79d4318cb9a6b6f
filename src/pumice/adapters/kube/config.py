"""Address of the API server and our credentials: kubeconfig files and the in-cluster service account.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/. Supported are certificate
authorities, bearer tokens (inline or file), client certificates (inline or file), ``insecure-skip-tls-verify``,
``tls-server-name`` and exec credential plugins; anything else is refused by name.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.model.errors import BadInput
from pumice.wire.document import read_document

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_KEPT = 10.0


@dataclass(frozen=True, slots=True)
class Access:
    """One API server and the identity used with it. ``token`` is asked before each request, so it may be rotated."""

    server: str
    ssl: ssl.SSLContext | None
    token: Callable[[], str]
    server_name: str | None = None


class TokenFile:
    """The token in a file that somebody rotates (the kubelet does), looked at every ``TOKEN_KEPT`` seconds and not at every
    request. A file that cannot be read for a while leaves the token as it was. Raises BadInput when it never could be."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path, self._monotonic = path, monotonic
        try:
            self._token, self._read = path.read_text().strip(), monotonic()
        except OSError as error:
            raise BadInput(f"token file {path}: {error.strerror}") from error

    def __call__(self) -> str:
        if (now := self._monotonic()) - self._read >= TOKEN_KEPT:
            self._read = now
            with contextlib.suppress(OSError):
                self._token = self._path.read_text().strip() or self._token
        return self._token


def load_kubeconfig(path: str | os.PathLike[str] = "") -> Access:
    """The access that a kubeconfig file describes; an empty path means $KUBECONFIG, then ~/.kube/config.

    Raises BadInput with file and key when the file is missing, broken or names what it does not hold.
    """
    file = Path(path or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    try:
        text = file.read_bytes()
    except OSError as error:
        raise BadInput(f"kubeconfig {file}: {error.strerror}; name another with --kubeconfig") from error
    config = read_document(text, file=f"kubeconfig {file}").value
    if not isinstance(config, dict):
        raise BadInput(f"kubeconfig {file}: expected a mapping with clusters, users and contexts")
    chosen = str(config.get("current-context") or "")
    link = _named(config, "contexts", "context", chosen, file)
    cluster = _named(config, "clusters", "cluster", str(link.get("cluster", "")), file)
    user = _named(config, "users", "user", str(link["user"]), file) if link.get("user") else {}
    server = str(cluster.get("server") or "")
    if not server:
        raise BadInput(f"kubeconfig {file}: cluster {link.get('cluster')!r} has no server")
    try:
        tls = _ssl_context(cluster, user, file) if server.startswith("https") else None
    except (OSError, ValueError) as error:  # a file that is not there, or something that is no certificate
        raise BadInput(f"kubeconfig {file}: certificates of {link.get('cluster')!r}: {error}") from error
    return Access(
        server=server.rstrip("/"),
        ssl=tls,
        token=_token_source(user, file),
        server_name=cluster.get("tls-server-name"),
    )


def in_cluster(environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Access:
    """The access of a pod's service account. Raises BadInput outside a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (directory / "token").exists():
        raise BadInput("no --kubeconfig given and not inside a pod (KUBERNETES_SERVICE_HOST or the token is missing)")
    host = f"[{host}]" if ":" in host else host
    authority = directory / "ca.crt"
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise BadInput(f"the service account's authority {authority}: {error.strerror or error}") from error
    return Access(
        server=f"https://{host}:{port}",
        ssl=tls,
        token=TokenFile(directory / "token"),
    )


def _named(config: Mapping[str, Any], many: str, one: str, name: str, file: Path) -> dict[str, Any]:
    entries = {str(e.get("name")): e.get(one) or {} for e in config.get(many) or [] if isinstance(e, dict)}
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise BadInput(f"kubeconfig {file}: no {one} named {name!r} (there are: {known})")
    return dict(entries[name])


def _ssl_context(cluster: Mapping[str, Any], user: Mapping[str, Any], file: Path) -> ssl.SSLContext:
    # An authority that is named is the only one trusted, as by client-go.
    if cluster.get("certificate-authority-data"):
        context = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority-data", file).decode())
    elif cluster.get("certificate-authority"):
        context = ssl.create_default_context(cafile=str(file.parent / str(cluster["certificate-authority"])))
    else:
        context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate-data") and user.get("client-key-data"):
        # The ssl module reads certificates from files only; the folder is private and gone when the context has them.
        with tempfile.TemporaryDirectory(prefix="pumice-client-") as folder:
            certificate, key = Path(folder, "crt"), Path(folder, "key")
            certificate.write_bytes(_decoded(user, "client-certificate-data", file))
            key.touch(mode=0o600)
            key.write_bytes(_decoded(user, "client-key-data", file))
            context.load_cert_chain(certificate, key)
    elif user.get("client-certificate") and user.get("client-key"):
        context.load_cert_chain(file.parent / user["client-certificate"], file.parent / user["client-key"])
    return context


def _decoded(holder: Mapping[str, Any], key: str, file: Path) -> bytes:
    try:
        return base64.b64decode(str(holder[key]), validate=True)
    except ValueError as error:
        raise BadInput(f"kubeconfig {file}: {key} is not base64") from error


def _token_source(user: Mapping[str, Any], file: Path) -> Callable[[], str]:
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    if user.get("tokenFile"):
        return TokenFile(file.parent / str(user["tokenFile"]))
    if user.get("exec"):
        token = _exec_token(user["exec"], file)
        return lambda: token
    unsupported = sorted(set(user) & {"auth-provider", "username", "password"})
    if unsupported:
        raise BadInput(f"kubeconfig {file}: {unsupported[0]} is not supported; use a token, a certificate or exec")
    return lambda: ""


def _exec_token(plugin: Mapping[str, Any], file: Path) -> str:
    """Run an exec credential plugin (client.authentication.k8s.io) and take its token."""
    command = [str(plugin.get("command", "")), *map(str, plugin.get("args") or [])]
    environ = {**os.environ, **{str(e["name"]): str(e["value"]) for e in plugin.get("env") or []}}
    try:
        answer = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=True)
        return str(json.loads(answer.stdout)["status"]["token"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise BadInput(f"kubeconfig {file}: the credential plugin {command[0]!r} gave no token: {error}") from error
