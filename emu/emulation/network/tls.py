"""TLS between hosts: certificates that are made for one run, signed by no authority.

Every run has a token already, and an authority would be one more thing to keep. So the
proofs of the handshake cover the certificate that each side has before it
(``tls-server-end-point`` of RFC 5929), and who ends TLS with another can give none.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from typing import cast

from emu.emulation.network.rx_timestamps import ArrivalReader
from emu.errors import RunError

#: Subject and issuer of every certificate; who it belongs to is for the proofs to say.
_NAME = "emu"
_VALID = dt.timedelta(days=30)
#: Bytes that one call encrypts, or takes from the kernel, at most.
_AT_ONCE = 1 << 18


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
    private = key.private_bytes(
        encoding=serialization.Encoding.PEM,
        format=serialization.PrivateFormat.PKCS8,
        encryption_algorithm=serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


class ServerTls:
    """TLS context of a listening port: its certificate as `ssl` wants it."""

    def __init__(self, pem: bytes) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0  # a run connects once: nothing resumes

        descriptor = os.memfd_create("certificate")  # `ssl` takes it from files only
        try:
            os.write(descriptor, pem)
            self.context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            raise RunError("cannot encrypt: /proc is not there, or hidden") from None
        finally:
            os.close(descriptor)

        certificate = pem[pem.index(b"-----BEGIN CERTIFICATE") :].decode()
        der = ssl.PEM_cert_to_DER_cert(certificate)
        self.fingerprint = hashlib.sha256(der).digest()


def client_context() -> ssl.SSLContext:
    """Return the settings of who connects: `peer_fingerprint` is for the proofs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def peer_fingerprint(tls: ssl.SSLObject) -> bytes:
    """Return the fingerprint of the certificate at the other end of an SSL object."""
    return hashlib.sha256(tls.getpeercert(binary_form=True) or b"").digest()


def is_loopback(host: str) -> bool:
    """Return True where only this host can be at such an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# A data connection under TLS: the calls of a socket, and when bytes came.
#
# Records are made and opened in memory. `ssl.SSLSocket` would take two calls of the
# kernel per record of 16 KB, and has no way to the note of when the last byte came.


class TlsSocket:
    """Speaks TLS over a connected, non-blocking socket, which it closes.

    The handshake is made by whichever calls receive. What `socket.socket` would raise
    is raised: an `ssl.SSLError` is an `OSError`.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server: bool,
    ) -> None:
        self._sock = sock
        self._arrivals = ArrivalReader(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._taken = memoryview(bytearray(_AT_ONCE))
        self._wall = 0.0
        self._met = False
        self._left = memoryview(b"")  # encrypted, and not yet with the kernel
        self._owed = 0  # payload bytes that these are of

    @property
    def pending(self) -> bool:
        """True where more can be read without the kernel."""
        return self._incoming.pending > 0 or self.tls.pending() > 0

    def take_waits(self) -> tuple[float, float]:
        """Return as `ArrivalReader.take_waits` does."""
        return self._arrivals.take_waits()

    def meet(self) -> None:
        """Go on with the handshake; the first call of who connects begins it.

        Raises OSError: `BlockingIOError` as long as it is the peer's turn, any other
        when it has failed.
        """
        while not self._met:
            try:
                self.tls.do_handshake()
                self._met = True
            except ssl.SSLWantReadError:
                self._flush()
                self._take()
        self._flush()

    def receive(self, view: memoryview) -> tuple[int, float]:
        """Return as `ArrivalReader.receive` does, of what was encrypted."""
        if not self.pending and self._take() == 0:
            return 0, self._wall
        self.meet()
        try:
            # Typeshed lacks that it is a count where a buffer is given.
            count = cast("int", self.tls.read(len(view), view))
        except ssl.SSLZeroReturnError:
            return 0, self._wall
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        return count, self._wall

    def recv_into(self, view: memoryview) -> int:
        """Receive; 0 bytes are the end of the stream."""
        return self.receive(view)[0]

    def recv(self, count: int) -> bytes:
        """Receive up to so many bytes."""
        view = memoryview(bytearray(count))
        size = self.recv_into(view)
        return bytes(view[:size])

    def send(self, view: memoryview | bytes) -> int:
        """Send some of it; return how much, once the kernel has taken all of that.

        Bytes that were encrypted cannot be taken back: the call after one that raised
        `BlockingIOError` goes on with what that one began.
        """
        if not self._left:
            self._owed = self.tls.write(memoryview(view)[:_AT_ONCE])
        self._flush()
        return self._owed

    def sendmsg(self, views: Sequence[memoryview]) -> int:
        """Send some of the first."""
        return self.send(views[0])

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close at once; the peer takes a frame that is cut off for what it is."""
        self._sock.close()

    def _take(self) -> int:
        count, self._wall = self._arrivals.receive(self._taken)
        self._incoming.write(self._taken[:count])
        if not count:
            self._incoming.write_eof()
        return count

    def _flush(self) -> None:
        if not self._left:
            self._left = memoryview(self._outgoing.read())
        while self._left:
            count = self._sock.send(self._left)
            self._left = self._left[count:]
