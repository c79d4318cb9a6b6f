"""Certificates and tokens of a cluster: one authority per data dir, made once and kept."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumice.adapters.certificates import Pair, make_authority, make_server, new_key
from pumice.adapters.regular_files import replace_file

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
        replace_file(token_file, secrets.token_urlsafe(24).encode(), 0o600, durable=False)
    pki = Pki(directory, token_file.read_text())
    if not pki.ca.exists():
        _make_authority(pki, now)
    issue(pki, "server", addresses, now)
    if not pki.service_account_key.exists():
        replace_file(pki.service_account_key, new_key(), 0o600, durable=False)
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
    replace_file(pki.ca_key, made.key, 0o600, durable=False)
    pki.ca.write_bytes(made.certificate)


def _make_server(pki: Pki, certificate_file: Path, key_file: Path, addresses: Sequence[str],
                 now: datetime.datetime) -> None:
    authority = Pair(pki.ca.read_bytes(), pki.ca_key.read_bytes())
    made = make_server(authority, "pumice-cluster", addresses, now, VALID)
    replace_file(key_file, made.key, 0o600, durable=False)
    certificate_file.write_bytes(made.certificate)
