"""Classes of vertices as numbers from 0, whatever a file has them as."""

from __future__ import annotations

import numpy as np

from emu.array_types import Array, Mask, SmallInts
from emu.errors import DataError


def class_numbers(
    stated: Array,
    origin: str,
    ids: Array | None = None,
) -> tuple[SmallInts, int, tuple[str, ...]]:
    """Return the class of every vertex, -1 for none, their number, and their words.

    Numbers that begin above 0 (1 to 7, years) are words of classes; ``ids`` are what
    the user calls vertices. Raises DataError when they are not one class per vertex, as
    a number, a text, or a one-hot row.
    """
    one_hot = _are_one_hot(stated)
    if one_hot:
        # A row of zeros has no class; argmax would give it the first.
        has_class = stated.any(1)
        first_class = stated.argmax(1)
        stated = np.where(has_class, first_class, -1)

    labels = _one_per_vertex(stated, origin)
    kind = labels.dtype.kind
    are_words = kind in "US"
    no_label = labels.dtype.type() if are_words else -1
    has_label = labels != no_label
    if kind == "f":
        is_missing = np.isnan(labels)
        has_label &= ~is_missing
    if not has_label.any():
        raise DataError("no vertex has a label", path=origin)

    classes = labels[has_label]
    names_classes = are_words
    if not are_words and not one_hot:
        names_classes = _begin_above_zero(classes)
    if names_classes:
        return _number_names(classes, has_label)

    labels = np.where(has_label, labels, -1)
    # Numbers of classes make layers of a model: one label of a billion must not.
    limit = max(len(labels), 2)
    is_below = labels < -1
    is_beyond = labels >= limit
    is_broken = np.floor(labels) != labels
    is_wrong = is_below | is_beyond | is_broken
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        name = first if ids is None else ids[first]
        raise DataError(
            f"vertex {name} has label {labels[first]}, classes count from 0 and "
            "-1 stands for none",
            path=origin,
        )
    highest = int(labels.max())
    numbers = labels.astype(np.int32)
    return numbers, highest + 1, ()


def _number_names(
    classes: Array,
    has_label: Mask,
) -> tuple[SmallInts, int, tuple[str, ...]]:
    """Return `class_numbers` of names, in their order: words, or whole numbers."""
    names, codes = np.unique(classes, return_inverse=True)
    if names.dtype.kind not in "US":
        names = names.astype(np.int64)

    numbers = np.full(len(has_label), -1, np.int32)
    numbers[has_label] = codes
    words = map(str, names.tolist())
    return numbers, len(names), tuple(words)


def _are_one_hot(labels: Array) -> bool:
    """Return True for rows with a column per class: at most one 1, else 0."""
    has_columns = labels.ndim == 2 and labels.shape[1] >= 2
    is_numeric = labels.dtype.kind in "biuf"
    if not has_columns or not is_numeric:
        return False
    is_binary = (labels == 0) | (labels == 1)
    if not is_binary.all():
        return False
    # Two ones in a row are several classes, which no loss here takes.
    ones = labels.sum(1)
    has_one_at_most = ones <= 1
    return bool(has_one_at_most.all())


def _one_per_vertex(stated: Array, origin: str) -> Array:
    """Return labels as one number or text per vertex; DataError for others."""
    labels = stated.reshape(-1)
    if len(labels) != len(stated):
        several = ""
        if stated.ndim == 2:
            several = " (several classes per vertex)"
        raise DataError(
            f"labels have shape {stated.shape}{several}, one class per vertex is "
            "needed: name a file of them with --labels",
            path=origin,
        )

    kind = labels.dtype.kind
    if kind not in "iufbUS":
        problem = f"labels are {labels.dtype}, numbers or texts are needed"
        raise DataError(problem, path=origin)
    # Truth values cannot hold the -1 of no label.
    if kind == "b":
        return labels.astype(np.int8)
    return labels


def _begin_above_zero(classes: Array) -> bool:
    """Return True for whole numbers above 0 that float64 holds exactly."""
    is_above_zero = classes.min() > 0
    is_exact = classes.max() < 1 << 53
    is_whole = np.floor(classes) == classes
    return bool(is_above_zero and is_exact and is_whole.all())
