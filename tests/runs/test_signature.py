"""A shared run that is signed says who vouches, and shows every other file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from emu.errors import DataError
from emu.runs.signature import NAME, sign, signer_of

CONTENTS = {"result.json": b"{}", "setup/result.json": b"[]"}


def key_file(folder: Path, key: object, form: str) -> Path:
    path = folder / "key"
    kind = getattr(serialization.PrivateFormat, form)
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, kind, plain)  # type: ignore[attr-defined]
    path.write_bytes(text)
    return path


def signed(folder: Path, form: str = "OpenSSH") -> Path:
    key = key_file(
        folder, ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32), form
    )
    run = folder / "run"
    (run / "setup").mkdir(parents=True)
    for name, content in {**CONTENTS, NAME: sign(CONTENTS, key)}.items():
        (run / name).write_bytes(content)
    return run


@pytest.mark.parametrize("form", ["OpenSSH", "PKCS8"])
def test_a_signature_names_its_key_as_ssh_keygen_does(
    tmp_path: Path, form: str
) -> None:
    run = signed(tmp_path, form)
    # By `ssh-keygen -lf` of OpenSSH 9.2p1.
    assert signer_of(run) == "SHA256:f25DFML1yZJ1DsYnQuPm2QKYyzlBCImGGodyLY5wIgU"
    (run / NAME).unlink()
    assert not signer_of(run)


@pytest.mark.parametrize("edit", ["other", "more", "less", "key", "cut", "shape"])
def test_every_edit_of_what_was_signed_is_noticed(tmp_path: Path, edit: str) -> None:
    run = signed(tmp_path)
    content = json.loads((run / NAME).read_text())
    if edit == "other":
        (run / "result.json").write_bytes(b"{ }")
    elif edit == "more":
        (run / "training.csv").write_bytes(b"")
    elif edit == "less":
        (run / "setup/result.json").unlink()
    elif edit == "key":
        other = ed25519.Ed25519PrivateKey.from_private_bytes(b"8" * 32)
        content["key"] = other.public_key().public_bytes_raw().hex()
    elif edit == "cut":
        content["signature"] = content["signature"][:-1]
    else:
        content = [content]
    (run / NAME).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"signature\.json"):
        signer_of(run)


def test_what_is_no_key_of_ed25519_is_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path, ec.generate_private_key(ec.SECP256R1()), "PKCS8")
    with pytest.raises(DataError, match=r"key: is no key of Ed25519: ssh-keygen"):
        sign(CONTENTS, path)
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(DataError, match="key: is no key"):
        sign(CONTENTS, path)


def test_a_file_that_is_no_private_key_is_said_to_be_none(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32)
    locked = serialization.BestAvailableEncryption(b"secret")
    texts = {
        b"ssh-ed25519 AAAA": "is no private key: name that beside the .pub",
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
        ): "has a password: ssh-keygen -p",
    }
    file = tmp_path / "key"
    for text, problem in texts.items():
        file.write_bytes(text)
        with pytest.raises(DataError, match=problem):
            sign(CONTENTS, file)
