"""Kinds of payload: what tensors of a name are, for guards and tables of bytes."""

from __future__ import annotations

from functools import lru_cache

#: Of a tensor whose name says nothing: seeded bytes, or what an own program sends.
OPAQUE = "opaque"
FEATURES = "features"

_KINDS = {
    "structure": (
        "vertices", "frontier", "source", "destination", "outputs", "inputs",
        "ends", "ids", "version",
    ),
    FEATURES: ("features",),
    "labels": ("labels", "targets"),
    "activations": (
        "partial", "rows", "ghosts", "ah", "z", "h", "scores", "sources",
        "destinations", "attention", "codes", "scales",
    ),
    "gradients": ("gradient", "of_sum", "part", "of_sources", "of_own"),
    "parameters": ("parameters", "weights"),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}


@lru_cache(maxsize=1024)  # a peer names its tensors as it likes
def payload_kind(tensor: str) -> str:
    """Return the kind of a tensor; a number at the end of its name does not count."""
    return _KIND_OF.get(tensor.rstrip("0123456789").rstrip("._"), OPAQUE)
