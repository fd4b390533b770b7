"""Damage to files: of bytes, and within what they are made of.

Changed bytes of an archive end at its checksum, those of JSON mostly at its syntax. So
half of the files are taken apart, changed, and put together again: they are whole, and
say something that cannot be.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from ruamel.yaml import YAML

NASTY = [b"-1", b"1e999", b"9" * 30, b"nan", b"null", b"[]", b"{}", b'"\\u0000"', b"{"]
NASTY += [b"\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"PK\x03\x04", b"..", b"&a"]
_VALUES: list[Any] = [None, True, -1, 0, 1, 7, 0.5, -0.5, 1e308, 10**30, 1 << 40]
_VALUES += [float("nan"), float("inf"), "", "a", "nan", "1e999 s", "-1 s", "\x00", "m0"]
_VALUES += ["../../a", "9" * 30, "x" * 5000, [], {}, [[]], [{}], {"a": 1}, [1, 2]]
_KINDS = ["<i8", ">i8", "u1", "<i4", "<f8", "<f4", "?", "<c16", "<U3", "S2", "<M8[s]"]
_EXTREMES = [-1, 0, 1, 127, -(1 << 62), (1 << 62), 1e300, np.nan, np.inf]


def mutated_file(name: str, data: bytes, rng: Generator) -> bytes:
    """Return the content of a file with one to four changes, of any depth."""
    if rng.random() < 0.5:
        return mutated(data, rng)
    if name.endswith(".gz"):
        inner = mutated_file(name[:-3], gzip.decompress(data), rng)
        return gzip.compress(inner, 1)
    for suffixes, deep in (
        ((".json", ".yaml"), _json),
        ((".jsonl",), _lines),
        ((".npz",), _archive),
        ((".npy",), lambda data, rng: _packed(_array(_unpacked(data), rng))),
    ):
        if name.endswith(suffixes):
            return deep(data, rng)
    return mutated(data, rng)


def mutated(data: bytes, rng: Generator) -> bytes:
    """Return the data with one to four changes."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        begin = int(rng.integers(0, len(changed) + 1))
        end = min(len(changed), begin + int(rng.integers(1, 40)))
        part = bytes(changed[begin:end])
        how = rng.integers(5)
        if how == 0 and part:
            changed[begin] ^= 1 << int(rng.integers(8))
        elif how == 1:
            del changed[begin:end]
        elif how == 2:
            changed[begin:begin] = part
        elif how == 3:
            changed[begin:end] = NASTY[rng.integers(len(NASTY))]
        else:
            place = int(rng.integers(0, len(changed) + 1))
            changed[place : place + len(part)] = part
    return bytes(changed)


def _json(data: bytes, rng: Generator) -> bytes:
    """Change values of JSON; a YAML file is written as the JSON that it also may be."""
    try:
        tree = json.loads(data)
    except ValueError:
        tree = YAML(typ="safe", pure=True).load(data.decode())
    whole = [tree]
    for _ in range(rng.integers(1, 4)):
        _change(whole, rng)
    return json.dumps(whole[0], default=str).encode()


def _change(whole: list[Any], rng: Generator) -> None:
    """Change one value anywhere within."""
    places: list[tuple[Any, Any]] = [(whole, 0)]
    for holder, key in places:
        inner = holder[key]
        if isinstance(inner, dict | list):
            places += [
                (inner, key)
                for key in (inner if isinstance(inner, dict) else range(len(inner)))
            ]
    holder, key = places[rng.integers(len(places))]
    other, at = places[rng.integers(len(places))]
    how = rng.integers(5)
    if how == 0 and holder is not whole:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[str(_VALUES[rng.integers(len(_VALUES))])] = holder.pop(key)
    elif how == 2:
        holder[key] = json.loads(json.dumps(other[at], default=str))
    elif how == 3 and isinstance(holder[key], int | float):
        holder[key] *= float(rng.choice([-1, 0.001, 1000, 1e12]))
    else:
        holder[key] = deepcopy(_VALUES[rng.integers(len(_VALUES))])


def _lines(data: bytes, rng: Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    number = int(rng.integers(len(lines)))
    lines[number] = _json(lines[number], rng) + b"\n"
    return b"".join(lines)


def _archive(data: bytes, rng: Generator) -> bytes:
    """Change members of an npz file: it is whole, with checksums that are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.integers(1, 3)):
        name = [*members][rng.integers(len(members))]
        if rng.random() < 0.1 and len(members) > 1:
            del members[name]
        else:
            members[name] = _packed(_array(_unpacked(members[name]), rng))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _unpacked(data: bytes) -> NDArray[Any]:
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def _packed(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def _array(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    """Return an array of another type, shape or content."""
    how = rng.integers(6)
    if how == 0 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(_KINDS[rng.integers(len(_KINDS))])
    if how == 1:
        shapes: list[Any] = [(-1,), (1, -1), (-1, 1), (*array.shape, 1)]
        return array.reshape(shapes[rng.integers(len(shapes))])
    if how > 3 or not array.ndim:
        return _with_extremes(array, rng)
    lengths = [slice(rng.integers(len(array) + 1)), slice(None, None, -1), slice(0)]
    kept = array[lengths[rng.integers(len(lengths))]]
    return kept if how == 2 else np.concatenate([array, kept])


def _with_extremes(array: NDArray[Any], rng: Generator) -> NDArray[Any]:
    """Return an array of which some values are others."""
    changed = array.copy() if array.size else np.zeros(3, array.dtype)
    flat = changed.reshape(-1)
    field = flat[rng.choice(flat.dtype.names)] if flat.dtype.names else flat
    for at in rng.integers(len(flat), size=int(rng.integers(1, 4))):
        with np.errstate(all="ignore"):
            value = np.array(_EXTREMES[rng.integers(len(_EXTREMES))])
            field[at] = value.astype(field.dtype)
    return changed
