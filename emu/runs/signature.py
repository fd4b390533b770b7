"""Signature of a shared run: who vouches for what an audit cannot see.

Ed25519 (RFC 8032) over the digests of all files. The name of a key is its fingerprint
as ``ssh-keygen -lf`` prints it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from emu.errors import DataError
from emu.host.input_file import check_shape, one_error, open_input, read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NAME = "signature.json"
_MOST_KEY = 1 << 16


class _Signature(TypedDict):
    """Content of signature.json, both in hexadecimal digits."""

    key: str
    signature: str


def sign(contents: Mapping[str, bytes], key_file: Path) -> bytes:
    """Return the content of signature.json for files by name.

    ``key_file``: a private key of Ed25519 without password, as OpenSSH or OpenSSL
    writes it (PEM). Raises DataError when it is none.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - seldom
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    def refuse(problem: object) -> DataError:
        return DataError(f"is no key: {problem}", path=key_file)

    with one_error(key_file, refuse):
        with open_input(key_file, _MOST_KEY) as file:
            text = file.read()
        if b"PRIVATE KEY-----" not in text:
            problem = "is no private key: name that beside the .pub of ssh-keygen"
            raise DataError(problem, path=key_file)
        load = serialization.load_pem_private_key
        if b"OPENSSH" in text:
            load = serialization.load_ssh_private_key
        try:
            key = load(text, password=None)
        except TypeError as error:  # so the library says it of a password
            problem = "has a password: ssh-keygen -p -f KEY takes it from a copy"
            raise DataError(problem, path=key_file) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        problem = "is no key of Ed25519: ssh-keygen -t ed25519 makes one"
        raise DataError(problem, path=key_file)
    public_key = key.public_key().public_bytes_raw()
    signed_digests = key.sign(_digest(contents))
    signature: _Signature = {
        "key": public_key.hex(),
        "signature": signed_digests.hex(),
    }
    return json.dumps(signature).encode()


def signer_of(run: Path) -> str:
    """Return the fingerprint of the key that has signed a run, empty where none has.

    Raises DataError when its files are others than those that were signed.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - seldom
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    path = run / NAME
    if not path.exists():
        return ""
    content = read_json(path, _MOST_KEY)
    check_shape(content, _Signature, path)
    contents = {}
    for file in run.rglob("*"):
        if file.is_file() and file != path:
            name = str(file.relative_to(run))
            contents[name] = file.read_bytes()
    with one_error(path):
        raw_key = bytes.fromhex(content["key"])
        key = ed25519.Ed25519PublicKey.from_public_bytes(raw_key)
        signature = bytes.fromhex(content["signature"])
    try:
        key.verify(signature, _digest(contents))
    except InvalidSignature as error:
        raise DataError("is of other files than these", path=path) from error
    return _fingerprint(key)


def _digest(contents: Mapping[str, bytes]) -> bytes:
    """Return what is signed: names and digests of all files."""
    digests = {}
    for name, content in contents.items():
        digest = hashlib.sha256(content)
        digests[name] = digest.hexdigest()
    return json.dumps(digests, sort_keys=True).encode()


def _fingerprint(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - seldom

    text = key.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _, encoded_key, *_ = text.split()
    key_bytes = base64.b64decode(encoded_key)
    digest = hashlib.sha256(key_bytes).digest()
    fingerprint = base64.b64encode(digest).decode()
    return f"SHA256:{fingerprint.rstrip('=')}"
