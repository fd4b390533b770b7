"""TLS between hosts: certificates that are made for one run, and that nobody signs.

Every run has a token already, and an authority would be one more thing to keep. So the
proofs of the handshake cover the certificate that each side has before it
(``tls-server-end-point`` of RFC 5929), and who ends TLS with another can give none.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import ssl

#: Subject and issuer of every certificate; who it belongs to is for the proofs to say.
_NAME = "emu"
_VALID = dt.timedelta(days=30)


def draw_certificate() -> bytes:
    """Return a new private key (Ed25519) and a certificate of it, in PEM."""
    # 60 ms, for nothing on loopback.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)  # whatever the other host's clock says
        .not_valid_after(now + _VALID)
        .sign(key, None)
    )
    pem = serialization.Encoding.PEM
    return key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(pem)


class ServerTls:
    """TLS context of a listening port: its certificate as `ssl` wants it.

    Parameters
    ----------
    pem
        As from `draw_certificate`.
    """

    def __init__(self, pem: bytes) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0  # nobody resumes: a run connects once
        _load(self.context, pem)
        certificate = pem[pem.index(b"-----BEGIN CERTIFICATE") :].decode()
        self.fingerprint = _fingerprint(ssl.PEM_cert_to_DER_cert(certificate))


def client_context() -> ssl.SSLContext:
    """Return the settings of who connects: `peer_fingerprint` is for the proofs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def peer_fingerprint(tls: ssl.SSLObject) -> bytes:
    """Return the fingerprint of the certificate at the other end of an SSL object."""
    return _fingerprint(tls.getpeercert(binary_form=True) or b"")


def is_loopback(host: str) -> bool:
    """Return True where only this host can be at such an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _fingerprint(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Hand over what `ssl` takes from files only, without a name in any folder."""
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
