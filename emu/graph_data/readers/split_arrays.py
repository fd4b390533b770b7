"""Which vertices are for training: masks and lists of ids, by the names of arrays.

``train_mask`` holds true or false per vertex, ``train_idx`` ids; ``train`` alone is
either, by its type. Where name and content leave it open, the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError

SPLIT = ("train", "valid", "test")

#: Names of dictionaries of splits, as ogb's get_idx_split gives one.
NESTED = ("split_idx", "idx_split", "split_dict", "splits", "split")
_PART = r"(?:trai?n(?:ing)?|trn|val(?:id(?:ation)?)?|dev|te?st(?:ing)?)"
_FORM = r"(?:masks?|idxs?|inds?|index|indices|indexes|nids?|ids?|nodes?|set|split)"
_NAME = re.compile(f"(?:split_)?(?:{_PART}|{_PART}_{_FORM}|{_FORM}_{_PART})")


@dataclass(frozen=True)
class Choices:
    """Answers of a user where a file leaves it open."""

    graph: int | None = None
    """Which of several graphs, from 0."""
    flatten: bool = False
    """Several types of vertices become one graph."""
    relation: tuple[str, ...] = ()
    """Take one relation alone: type, name, type."""
    split_number: int | None = None
    """Which of several splits, from 0."""
    split_arrays: str = ""
    """``masks`` or ``ids``: what the arrays of splits hold."""
    split_option: str = "--split-number "
    """Text before that number where a user is asked for it."""

    def choose_graph(self, count: int, origin: str) -> int:
        """Return the number of the graph to read.

        Raises DataError when there are several and none is chosen, or one beyond.
        """
        problem = f"holds {count} graphs"
        return _choose("--graph ", count, self.graph, problem, origin)


NO_CHOICES = Choices()


def _choose(
    option: str, count: int, chosen: int | None, problem: str, origin: str
) -> int:
    if chosen is None and count == 1:
        return 0
    if chosen is None or not 0 <= chosen < count:
        which = f"{option}0 to {option}{count - 1} chooses one"
        raise DataError(f"{problem}: {which}" if count else problem, path=origin)
    return chosen


def split_part(name: str) -> str | None:
    """Return the part of a split that an array of this name states, or None."""
    if not _NAME.fullmatch(name):
        return None
    stem = re.search(r"(?:^|_)(tr|te|ts|va|de)", name)
    parts = {"tr": "train", "te": "test", "ts": "test"}
    return parts.get(stem[1] if stem else "", "valid")


def sort_splits(
    arrays: Mapping[str, NDArray[Any]], choices: Choices, origin: str
) -> dict[str, NDArray[Any]]:
    """Return masks, of truth values, and lists of ids, by part.

    Raises DataError when two arrays state one part, it is open which of several splits
    is meant, or whether an array holds a mask or ids.
    """
    splits: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        part = split_part(name)
        if part is None:
            continue
        if part in splits:
            raise DataError(f"states the {part} split twice: {name}", path=origin)
        square = array.ndim == 2 and array.shape[0] == array.shape[1] > 1
        if array.ndim > 2 or square:
            problem = f"{name} has shape {array.shape}, an entry per vertex is needed"
            raise DataError(problem, path=origin)
        rows = array.reshape(1, -1) if array.ndim < 2 else array
        rows = rows.T if array.ndim == 2 and len(rows) > rows.shape[1] else rows
        problem = f"{name} holds {len(rows)} splits"
        number = _choose(
            choices.split_option, len(rows), choices.split_number, problem, origin
        )
        chosen = rows[number]
        is_mask = _is_mask(name, chosen, choices, origin)
        splits[part] = chosen != 0 if is_mask else chosen
    return splits


def _is_mask(name: str, array: NDArray[Any], choices: Choices, origin: str) -> bool:
    """Return True for a mask, False for ids: by type, name, and values."""
    if array.dtype.kind not in "biu":
        problem = f"{name} is {array.dtype}: a mask or whole numbers are needed"
        raise DataError(problem, path=origin)
    if array.dtype.kind == "b":
        return True
    binary = bool(np.all((array == 0) | (array == 1)))
    if choices.split_arrays == "masks" and not binary:
        problem = f"{name} holds other values than 0 and 1: no mask"
        raise DataError(problem, path=origin)
    if choices.split_arrays:
        return choices.split_arrays == "masks"
    # Types of a byte are those of masks; ids of that type reach 255 vertices.
    if "mask" in name and binary and array.dtype.itemsize == 1:
        return True
    if "mask" in name or (binary and len(array) > 2):
        raise DataError(
            f"{name} holds {len(array)} whole numbers ({array.dtype}), index array or "
            "mask? --split-arrays ids or --split-arrays masks says which",
            path=origin,
        )
    return False


def check_splits(
    splits: Mapping[str, NDArray[Any]], vertices: int, origin: str
) -> dict[str, NDArray[np.int64]]:
    """Return the sorted ids of every part; all empty where no part is stated.

    Raises DataError when a mask has another length, an id is no vertex, a vertex is
    named twice, or none is for training.
    """
    parts: dict[str, NDArray[np.int64]] = {}
    owner = np.full(vertices, -1, np.int8)
    for number, part in enumerate(SPLIT):
        ids = splits.get(part, np.empty(0, np.int64))
        if ids.dtype == bool:
            if ids.shape != (vertices,):
                problem = f"the {part} mask has {len(ids)} entries for {vertices} "
                raise DataError(f"{problem}vertices", path=origin)
            ids = np.flatnonzero(ids)
        members = np.sort(ids)
        if len(members) and not 0 <= members[0] <= members[-1] < vertices:
            beyond = members[0] if members[0] < 0 else members[-1]
            problem = f"the {part} split names vertex {beyond}, there are only "
            raise DataError(f"{problem}0..{vertices - 1}", path=origin)
        members = parts[part] = members.astype(np.int64)
        doubles = members[1:][members[1:] == members[:-1]]
        if len(doubles):
            problem = f"the {part} split names vertex {doubles[0]} twice"
            raise DataError(problem, path=origin)
        overlap = members[owner[members] >= 0]
        if len(overlap):
            other = SPLIT[owner[overlap[0]]]
            problem = f"vertex {overlap[0]} is in the {other} and in the {part} split"
            raise DataError(problem, path=origin)
        owner[members] = number
    if splits and not len(parts["train"]):
        raise DataError("its train split is empty or missing", path=origin)
    return parts
