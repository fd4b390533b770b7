"""Which vertices are for training: masks, lists of ids and codes, by names of arrays.

``train_mask`` holds true or false per vertex, ``train_idx`` ids; ``train`` alone is
either, by its type; ``split`` a code per vertex. Where name and content leave it open,
the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emu.array_types import Array, Ints, Mask, SmallInts
from emu.errors import DataError

#: Parts of a split, in the order of codes and of ``--overlap``.
SPLIT = ("train", "valid", "test")

#: Names of arrays with a code per vertex; the last is that of dgl's Reddit.
CODES = ("split", "splits", "role", "roles", "node_types")
#: Codes that a question lists.
_SHOWN = 6
#: Names of dictionaries of splits, as ogb's get_idx_split gives one.
NESTED = ("split_idx", "idx_split", "split_dict", "splits", "split")
#: Names of a part and of a form, in either order, with the spellings that are met.
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
    split_codes: tuple[str, ...] = ()
    """Codes of train, valid and test, where an array has a code per vertex."""
    overlap: str = ""
    """``first`` or ``last``: the part that keeps a vertex of several parts."""
    split_option: str = "--split-number "
    """Text before that number where a user is asked for it."""

    def choose_graph(self, count: int, origin: str) -> int:
        """Return the number of the graph to read.

        Raises DataError when there are several and none is chosen, or one beyond.
        """
        return _choose(
            "--graph ",
            count=count,
            chosen=self.graph,
            problem=f"holds {count} graphs",
            origin=origin,
        )


NO_CHOICES = Choices()


def _choose(
    option: str,
    count: int,
    chosen: int | None,
    problem: str,
    origin: str,
) -> int:
    if chosen is None and count == 1:
        return 0
    if chosen is None or not 0 <= chosen < count:
        if count:
            last = count - 1
            problem += f": {option}0 to {option}{last} chooses one"
        raise DataError(problem, path=origin)
    return chosen


def split_part(name: str) -> str | None:
    """Return the part of a split that an array of this name states, or None."""
    if not _NAME.fullmatch(name):
        return None
    stem = re.search(r"(?:^|_)(tr|te|ts|va|de)", name)
    parts = {
        "tr": "train",
        "te": "test",
        "ts": "test",
    }
    # Of the stems only tr, te and ts are told apart: va and de are both valid.
    letters = stem[1] if stem else ""
    return parts.get(letters, "valid")


def split_names(arrays: Iterable[str], choices: Choices) -> list[str]:
    """Return the names of arrays that state a split: its parts, or else its codes."""
    parts = [name for name in arrays if split_part(name) is not None]
    # dgl's Reddit alone calls its codes types, which are types elsewhere.
    code_names = CODES if choices.split_codes else CODES[:-1]
    codes = [name for name in code_names if name in arrays]
    # Arrays per part go before one of codes, which may be something else.
    return parts or codes[:1]


def sort_splits(
    arrays: Mapping[str, Array], choices: Choices, origin: str
) -> dict[str, Array]:
    """Return masks, of truth values, and lists of ids, by part.

    Raises DataError when two arrays state one part, it is open which of several splits
    is meant, or whether an array holds a mask, ids or codes.
    """
    splits: dict[str, Array] = {}
    for name in split_names(arrays, choices):
        array = arrays[name]
        part = split_part(name)
        if part is None:
            # One array has all parts.
            masks, _ = parts_of_codes(
                array,
                codes=choices.split_codes,
                name=name,
                origin=origin,
            )
            masks_of_parts = zip(SPLIT, masks.T, strict=True)
            return dict(masks_of_parts)
        if part in splits:
            raise DataError(f"states the {part} split twice: {name}", path=origin)

        members = _choose_split(
            array,
            name=name,
            choices=choices,
            origin=origin,
        )
        is_mask = _is_mask(
            name,
            array=members,
            choices=choices,
            origin=origin,
        )
        if is_mask:
            # As truth values, which tell a mask from ids from here on.
            members = members != 0
        splits[part] = members
    return splits


def _choose_split(
    array: Array,
    name: str,
    choices: Choices,
    origin: str,
) -> Array:
    """Return the one split of an array that is chosen; the longer axis is vertices."""
    # Nothing says which axis of a square array is that of vertices.
    is_square = False
    if array.ndim == 2:
        height, width = array.shape
        is_square = height == width > 1
    if is_square or array.ndim > 2:
        problem = f"{name} has shape {array.shape}, an entry per vertex is needed"
        raise DataError(problem, path=origin)

    rows = array
    if array.ndim < 2:
        rows = array.reshape(1, -1)
    # There are far fewer splits than vertices.
    if array.ndim == 2 and len(rows) > rows.shape[1]:
        rows = rows.T
    number = _choose(
        choices.split_option,
        count=len(rows),
        chosen=choices.split_number,
        problem=f"{name} holds {len(rows)} splits",
        origin=origin,
    )
    return np.asarray(rows[number])


def parts_of_codes(
    values: Array,
    codes: Sequence[str],
    name: str,
    origin: str,
) -> tuple[Mask, str]:
    """Return whether each vertex is in each part, by codes, and what is in none.

    Raises DataError where nothing says which code is which part.
    """
    if values.ndim != 1 and values.size != len(values):
        problem = f"{name} has shape {values.shape}, a code per vertex is needed"
        raise DataError(problem, path=origin)
    flat = values.reshape(-1)
    words = flat.astype(str)
    distinct, counts = np.unique(words, return_counts=True)
    shown = zip(distinct[:_SHOWN], counts, strict=False)
    shown_codes = [f"{word} ({count:,})" for word, count in shown]
    examples = ", ".join(shown_codes)
    text = f"{name} holds codes {examples}".lstrip()
    # Each data set has codes of its own: a default would train on what is to test.
    distinct_codes = set(codes)
    are_different = len(distinct_codes) == len(codes)
    are_enough = 1 < len(codes) <= len(SPLIT)
    if not are_enough or not are_different:
        option = "--split-codes TRAIN,VALID,TEST, such as --split-codes 0,1,2"
        raise DataError(f"{text}: which is which? {option}", path=origin)
    if codes[0] not in distinct:
        problem = f"{text}: no vertex has {codes[0]!r}, by --split-codes that of train"
        raise DataError(problem, path=origin)

    # A part without a code is empty.
    masks = np.zeros((len(words), len(SPLIT)), np.bool_)
    for place, code in enumerate(codes):
        masks[:, place] = words == code
    rest = [word for word in distinct.tolist() if word not in codes]
    if not rest:
        return masks, ""
    is_in_part = masks.any(1)
    in_parts = int(is_in_part.sum())
    left_out = len(words) - in_parts
    rest_text = ", ".join(rest)
    return masks, f"; {left_out:,} vertices of {rest_text} are in no part"


def _is_mask(
    name: str,
    array: Array,
    choices: Choices,
    origin: str,
) -> bool:
    """Return True for a mask, False for ids: by type, name, and values."""
    if array.dtype.kind not in "biu":
        problem = f"{name} is {array.dtype}: a mask or whole numbers are needed"
        raise DataError(problem, path=origin)
    if array.dtype.kind == "b":
        return True

    is_bit = (array == 0) | (array == 1)
    is_binary = bool(is_bit.all())
    if choices.split_arrays == "masks" and not is_binary:
        problem = f"{name} holds other values than 0 and 1: no mask"
        raise DataError(problem, path=origin)
    if choices.split_arrays:
        return choices.split_arrays == "masks"
    # Types of a byte are those of masks; ids of that type reach 255 vertices.
    is_called_mask = "mask" in name
    has_bytes = array.dtype.itemsize == 1
    if is_called_mask and is_binary and has_bytes:
        return True
    may_be_mask = is_binary and len(array) > 2
    if is_called_mask or may_be_mask:
        raise DataError(
            f"{name} holds {len(array)} whole numbers ({array.dtype}), index array or "
            "mask? --split-arrays ids or --split-arrays masks says which",
            path=origin,
        )
    return False


def check_splits(
    splits: Mapping[str, Array],
    vertices: int,
    origin: str,
    overlap: str = "",
    ids: Array | None = None,
) -> dict[str, Ints]:
    """Return the sorted ids of every part; all empty where no part is stated.

    Of a vertex in several parts ``overlap`` says which keeps it; ``ids`` are what the
    user calls vertices. Raises DataError when
    a mask has another length, an id is no vertex, a vertex is named twice, or none is
    for training.
    """
    parts = {
        part: _members(
            part,
            splits=splits,
            vertices=vertices,
            origin=origin,
        )
        for part in SPLIT
    }
    # A vertex belongs to the last part that claims it, unless that is refused.
    owner = np.full(vertices, -1, np.int8)
    for number, part in enumerate(SPLIT):
        members = parts[part]
        is_common = owner[members] >= 0
        if is_common.any() and not overlap:
            common = members[is_common]
            first = common[0]
            name = first if ids is None else ids[first]
            earlier_part = SPLIT[owner[first]]
            raise DataError(
                f"vertex {name} is in the {earlier_part} and in the {part} split"
                f"{_as_others(len(common))}: --overlap first or --overlap last says "
                "which of train, valid, test keeps them",
                path=origin,
            )
        if overlap == "first":
            members = members[~is_common]
        owner[members] = number

    for number, part in enumerate(SPLIT):
        parts[part] = np.flatnonzero(owner == number)
    if splits and not len(parts["train"]):
        raise DataError("its train split is empty or missing", path=origin)
    return parts


def check_labelled_splits(
    splits: Mapping[str, Array],
    labels: SmallInts,
    origin: str,
    label_origin: str,
    overlap: str = "",
    ids: Array | None = None,
) -> dict[str, Ints]:
    """Return the parts as `check_splits`; raises DataError as that and `check_labels`.

    ``labels``: the class of every vertex, -1 for none; ``label_origin``: their file.
    """
    parts = check_splits(
        splits,
        vertices=len(labels),
        origin=origin,
        overlap=overlap,
        ids=ids,
    )
    check_labels(parts, labels=labels, origin=label_origin, ids=ids)
    return parts


def check_labels(
    parts: Mapping[str, Ints],
    labels: SmallInts,
    origin: str,
    ids: Array | None = None,
) -> None:
    """Refuse parts with vertices that have no class; the arguments as `check_splits`.

    Raises DataError, which names the first of them.
    """
    for part, members in parts.items():
        has_no_label = labels[members] < 0
        if has_no_label.any():
            without = members[has_no_label]
            first = without[0]
            name = first if ids is None else ids[first]
            raise DataError(
                f"vertex {name} is in the {part} split and has no label"
                f"{_as_others(len(without))}: take it out of the split, or give it a "
                "class",
                path=origin,
            )


def _as_others(count: int) -> str:
    """Return the words for all but the first of so many vertices."""
    rest = count - 1
    if not rest:
        return ""
    if rest == 1:
        return ", as is another"
    return f", as are {rest:,} others"


def _members(
    part: str,
    splits: Mapping[str, Array],
    vertices: int,
    origin: str,
) -> Ints:
    """Return the vertices of a part, sorted."""
    no_ids = np.empty(0, np.int64)
    ids = splits.get(part, no_ids)
    if ids.dtype == bool:
        if ids.shape != (vertices,):
            problem = f"the {part} mask has {len(ids)} entries for {vertices} vertices"
            raise DataError(problem, path=origin)
        ids = np.flatnonzero(ids)

    members = np.sort(ids)
    # Sorted: the first and the last bound all others.
    beyond = None
    if len(members):
        lowest = members[0]
        highest = members[-1]
        if lowest < 0:
            beyond = lowest
        elif highest >= vertices:
            beyond = highest
    if beyond is not None:
        last = vertices - 1
        raise DataError(
            f"the {part} split names vertex {beyond}, there are only 0..{last}",
            path=origin,
        )

    later = members[1:]
    is_double = later == members[:-1]
    doubles = later[is_double]
    if len(doubles):
        problem = f"the {part} split names vertex {doubles[0]} twice"
        raise DataError(problem, path=origin)
    return members.astype(np.int64)
