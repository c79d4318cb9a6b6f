"""Key pairs of SSH."""

from __future__ import annotations


def rsa_pair() -> tuple[str, str]:
    """A fresh RSA key of 2048 bits: PKCS#1 PEM, and the line of the public half. Takes a tenth of a second."""
    from cryptography.hazmat.primitives import serialization  # here: who needs no key does not wait for it
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()}\n"
