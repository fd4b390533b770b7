"""The actor that runs the agent of a host for Ray, and how the token gets there.

Ray keeps what an actor is made with, sends the rest in clear, and writes down much. So
the token goes to an actor that runs, encrypted to a key that it has drawn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_LINES = 1000  # of what an agent and its processes print, the last


def _padding() -> padding.OAEP:
    return padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


class Host:
    """The actor of a host: runs its agent."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def public_key(self) -> bytes:
        """Return the key that the token is to be encrypted with."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.DER,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )

    def run(self, sealed: bytes, arguments: list[str]) -> tuple[int, str]:
        """Run the agent to its end; return its exit status and what was printed."""
        token = self._key.decrypt(sealed, _padding()).decode()
        agent = subprocess.Popen(
            [sys.executable, "-m", "emu.launch", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "EMU_TOKEN": token},
            text=True,
            errors="replace",
        )
        said = deque(agent.stdout or (), maxlen=_LINES)
        return agent.wait(), "".join(said)


def sealed(token: str, key: bytes) -> bytes:
    """Return the token as only the actor of this key can read it.

    Raises
    ------
    TypeError
        When the key is none of an actor.
    """
    public = serialization.load_der_public_key(key)
    if not isinstance(public, rsa.RSAPublicKey):
        raise TypeError("an actor has sent another kind of key")
    return public.encrypt(token.encode(), _padding())
