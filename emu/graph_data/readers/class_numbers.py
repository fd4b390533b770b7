"""Classes of vertices as numbers from 0, whatever a file has them as."""

from __future__ import annotations

import numpy as np

from emu.errors import DataError
from emu.graph_data.array_types import Array, SmallInts


def class_numbers(stated: Array, origin: str) -> tuple[SmallInts, int, tuple[str, ...]]:
    """Return the class of every vertex, -1 for none, their number, and their words.

    Numbers that begin above 0 (1 to 7, years) are words of classes. Raises DataError
    when they are not one class per vertex, as a number, a text, or a one-hot row.
    """
    one_hot = _are_one_hot(stated)
    if one_hot:
        # A row of zeros has no class; argmax would give it the first.
        has_class = stated.any(1)
        stated = np.where(has_class, stated.argmax(1), -1)
    labels = _one_per_vertex(stated, origin)
    are_words = labels.dtype.kind in "US"
    no_label = labels.dtype.type() if are_words else -1
    has_label = labels != no_label
    if labels.dtype.kind == "f":
        has_label &= ~np.isnan(labels)
    if not has_label.any():
        raise DataError("no vertex has a label", path=origin)

    classes = labels[has_label]
    names_classes = are_words or (not one_hot and _begin_above_zero(classes))
    if names_classes:
        names, codes = np.unique(classes, return_inverse=True)
        if not are_words:
            names = names.astype(np.int64)
        numbers = np.full(len(labels), -1, np.int32)
        numbers[has_label] = codes
        words = map(str, names.tolist())
        return numbers, len(names), tuple(words)

    labels = np.where(has_label, labels, -1)
    # Numbers of classes make layers of a model: one label of a billion must not.
    limit = max(len(labels), 2)
    is_outside = (labels < -1) | (labels >= limit)
    is_wrong = is_outside | (np.floor(labels) != labels)
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        raise DataError(
            f"vertex {first} has label {labels[first]}, classes count from 0 and "
            "-1 stands for none",
            path=origin,
        )
    count = int(labels.max()) + 1
    return labels.astype(np.int32), count, ()


def _are_one_hot(labels: Array) -> bool:
    """Return True for rows with a column per class: at most one 1, else 0."""
    has_columns = labels.ndim == 2 and labels.shape[1] >= 2
    if not has_columns or labels.dtype.kind not in "biuf":
        return False
    is_binary = (labels == 0) | (labels == 1)
    if not is_binary.all():
        return False
    # Two ones in a row are several classes, which no loss here takes.
    has_one_at_most = labels.sum(1) <= 1
    return bool(has_one_at_most.all())


def _one_per_vertex(stated: Array, origin: str) -> Array:
    """Return labels as one number or text per vertex; DataError for others."""
    labels = stated.reshape(-1)
    if len(labels) != len(stated):
        several = " (several classes per vertex)" if stated.ndim == 2 else ""
        raise DataError(
            f"labels have shape {stated.shape}{several}, one class per vertex is "
            "needed: name a file of them with --labels",
            path=origin,
        )
    if labels.dtype.kind not in "iufbUS":
        problem = f"labels are {labels.dtype}, numbers or texts are needed"
        raise DataError(problem, path=origin)
    # Truth values cannot hold the -1 of no label.
    if labels.dtype.kind == "b":
        return labels.astype(np.int8)
    return labels


def _begin_above_zero(classes: Array) -> bool:
    """Return True for whole numbers above 0 that float64 holds exactly."""
    is_inside = classes.min() > 0 and classes.max() < 1 << 53
    is_whole = np.floor(classes) == classes
    return bool(is_inside and is_whole.all())
