"""Certificates and tokens of the embedded cluster in one directory: its own CA, serving certificates, tokens, a kubeconfig."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEARS = datetime.timedelta(days=3650)
_SKEW = datetime.timedelta(hours=1)


class Pki:
    """``directory`` holds ca.crt, ca.key and what is issued. Everything is made once and found again at the next start.

    ``now`` is Unix seconds, for the certificates' dates.
    """

    def __init__(self, directory: Path, now: float) -> None:
        self.directory = directory
        self._now = datetime.datetime.fromtimestamp(now, datetime.UTC)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.ca.exists() and (directory / "ca.key").exists()):
            self._make_ca()

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def ca_base64(self) -> str:
        return base64.b64encode(self.ca.read_bytes()).decode()

    def serving(self, name: str, hosts: Iterable[str]) -> tuple[Path, Path]:
        """Certificate and key for a server at these host names and addresses; made anew when the hosts have changed."""
        certificate, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        wanted = sorted(set(hosts))
        if not (certificate.exists() and key.exists() and _hosts_of(certificate) == wanted):
            self._issue(name, wanted, certificate, key)
        return certificate, key

    def server_context(self, name: str, hosts: Iterable[str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.serving(name, hosts))
        # HTTP/2 is not spoken here: clients that would prefer it are told so at once.
        context.set_alpn_protocols(["http/1.1"])
        return context

    def token(self, name: str) -> str:
        """A random token, the same at every start."""
        path = self.directory / f"{name}.token"
        if not path.exists():
            _write(path, secrets.token_urlsafe(24).encode())
        return path.read_text("ascii").strip()

    def kubeconfig(self, server: str, user: str, token: str, cluster: str = "pumice") -> str:
        """A kubeconfig as YAML."""
        return (
            "apiVersion: v1\nkind: Config\n"
            f"clusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n"
            f"    certificate-authority-data: {self.ca_base64()}\n"
            f"users:\n- name: {user}\n  user:\n    token: {token}\n"
            f"contexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    user: {user}\n"
            f"current-context: {cluster}\n"
        )

    def _make_ca(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pumice-ca")])
        certificate = (
            self._builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self.directory / "ca.key", _pem(key))
        _write(self.ca, certificate.public_bytes(serialization.Encoding.PEM), 0o644)

    def _issue(self, name: str, hosts: list[str], certificate_path: Path, key_path: Path) -> None:
        ca_key = serialization.load_pem_private_key((self.directory / "ca.key").read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        certificate = (
            self._builder(subject, ca.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        _write(key_path, _pem(key))
        _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + _YEARS)
        )


def _usage(sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=not sign, data_encipherment=False,
        key_agreement=False, key_cert_sign=sign, crl_sign=sign, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts_of(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return sorted(str(name.value) for name in names)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Whole or not at all, and never readable by others for a moment."""
    part = path.with_suffix(path.suffix + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    part.rename(path)
