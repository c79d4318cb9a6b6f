"""Certificates and keys as PEM: an authority of our own, and servers that it vouches for.

Keys are ECDSA P-256: making them takes milliseconds, and every client of Kubernetes accepts them.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = datetime.timedelta(hours=1)
"""For clients whose clock is behind."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: bytes
    key: bytes


def new_key() -> bytes:
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def make_authority(name: str, now: datetime.datetime, valid: datetime.timedelta) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    certificate = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED).not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def make_server(authority: Pair, name: str, addresses: Sequence[str], now: datetime.datetime,
                valid: datetime.timedelta) -> Pair:  # fmt: skip
    """For these names and IPs. Raises ValueError where the authority is none."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not ECDSA")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder().subject_name(_named(name)).issuer_name(issuer.subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED).not_valid_after(now + valid)
        .add_extension(x509.SubjectAlternativeName([_general_name(a) for a in addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )  # fmt: skip
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def serves(pair: Pair, authority: bytes, addresses: Sequence[str], until: datetime.datetime) -> bool:
    """Return whether a server may go on with a certificate until then: it is for these addresses, and vouched for by the
    authority."""
    try:
        certificate, issuer = (x509.load_pem_x509_certificate(pem) for pem in (pair.certificate, authority))
        certificate.verify_directly_issued_by(issuer)
        key = serialization.load_pem_private_key(pair.key, None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # whatever stands in a Secret that others may write: it is no certificate of ours
        return False
    return (
        key.public_key() == certificate.public_key()
        and {_general_name(address) for address in addresses} <= set(names)
        and min(certificate.not_valid_after_utc, issuer.not_valid_after_utc) > until
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, key_cert_sign=sign_certificates,
                         crl_sign=sign_certificates, encipher_only=False, decipher_only=False)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # kube-apiserver reads service account keys in the traditional form only.
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
                             serialization.NoEncryption())


# -- Key pairs of SSH ------------------------------------------------------------------------------------------------


def rsa_pair() -> tuple[str, str]:
    """A fresh RSA key of 2048 bits: PKCS#1 PEM, and the line of the public half. Takes a tenth of a second."""
    from cryptography.hazmat.primitives import serialization  # here: who needs no key does not wait for it
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()}\n"
