"""Certificates and tokens of a cluster: one authority per data dir, made once and kept.

Keys are ECDSA P-256: making them takes milliseconds, and every client of Kubernetes accepts them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
        _write_private(pki.service_account_key, _pem_key(ec.generate_private_key(ec.SECP256R1())))
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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pumice-cluster-ca")])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    _write_private(pki.ca_key, _pem_key(key))
    pki.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _make_server(pki: Pki, certificate_file: Path, key_file: Path, addresses: Sequence[str],
                 now: datetime.datetime) -> None:
    authority = x509.load_pem_x509_certificate(pki.ca.read_bytes())
    authority_key = serialization.load_pem_private_key(pki.ca_key.read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pumice-cluster")]))
        .issuer_name(authority.subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([_general_name(a) for a in addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )  # fmt: skip
    _write_private(key_file, _pem_key(key))
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, key_cert_sign=sign_certificates,
                         crl_sign=sign_certificates, encipher_only=False, decipher_only=False)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    # kube-apiserver reads service account keys in the traditional form only.
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
                             serialization.NoEncryption())


def _write_private(path: Path, content: bytes) -> None:
    """Write a secret so that it is never readable by others, nor half there after a crash."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.rename(path)
