"""Certificates and tokens of a cluster: one authority per data dir, made once and kept."""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumice.adapters.certificates import Pair, make_authority, make_server, new_key

VALID = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Pki:
    """Paths below ``D/pki``; ``admin_token`` is the bearer token of the kubeconfig."""

    directory: Path
    admin_token: str

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def server_cert(self) -> Path:
        return self.directory / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.directory / "server.key"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"


def ensure_pki(directory: Path, addresses: Sequence[str], now: datetime.datetime) -> Pki:
    """The certificates of this data dir, made on first use. ``addresses`` are names and IPs the server answers on."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    token_file = directory / "admin.token"
    if not token_file.exists():
        _write_private(token_file, secrets.token_urlsafe(24).encode())
    pki = Pki(directory, token_file.read_text())
    if not pki.ca.exists():
        _make_authority(pki, now)
    issue(pki, "server", addresses, now)
    if not pki.service_account_key.exists():
        _write_private(pki.service_account_key, new_key())
    return pki


def issue(pki: Pki, name: str, addresses: Sequence[str], now: datetime.datetime) -> tuple[Path, Path]:
    """A serving certificate ``name.crt`` and its key for these names and IPs, kept while they stay the same."""
    certificate, key = pki.directory / f"{name}.crt", pki.directory / f"{name}.key"
    kept = pki.directory / f"{name}.names"
    names = "\n".join(sorted(addresses))
    if not certificate.exists() or not kept.exists() or kept.read_text() != names:
        _make_server(pki, certificate, key, addresses, now)
        kept.write_text(names)
    return certificate, key


def _make_authority(pki: Pki, now: datetime.datetime) -> None:
    made = make_authority("pumice-cluster-ca", now, VALID)
    _write_private(pki.ca_key, made.key)
    pki.ca.write_bytes(made.certificate)


def _make_server(pki: Pki, certificate_file: Path, key_file: Path, addresses: Sequence[str],
                 now: datetime.datetime) -> None:
    authority = Pair(pki.ca.read_bytes(), pki.ca_key.read_bytes())
    made = make_server(authority, "pumice-cluster", addresses, now, VALID)
    _write_private(key_file, made.key)
    certificate_file.write_bytes(made.certificate)


def _write_private(path: Path, content: bytes) -> None:
    """Write a secret so that it is never readable by others, nor half there after a crash."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.rename(path)
