"""Keys of a custom job that change nothing, or are hardly meant: sentences on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches

from emu.problem.workloads.all_reduce import NamedEdge

#: Kinds of task that windows, shares of time and placements know.
_KNOWN_KINDS = ("graph_store", "sampler", "worker", "parameter_server")
#: Likeness of words of which one may be the other, misspelt.
_LIKE = 0.8


def idle_flows(edges: Iterable[NamedEdge], rounds: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence per flow that never goes; ``rounds``: iterations by task."""
    for edge in edges:
        iterations = rounds[edge.destination]
        # With one iteration parameters never come back: that is no slip.
        if edge.lag > 1 and iterations <= edge.lag:
            yield (
                f"flow {edge.source}->{edge.destination}: with lag {edge.lag} "
                f"nothing is sent in {iterations} iterations"
            )


def idle_values(stated: Iterable[tuple[str, object, int]]) -> Iterator[str]:
    """Yield a sentence on lists of more values than their task has iterations.

    ``stated``: key and name, values, and iterations of each.
    """
    sentences = []
    for key, values, iterations in stated:
        if isinstance(values, tuple) and len(values) > iterations:
            sentence = f"{key}: of {len(values)} values the first {iterations} count"
            sentences.append(sentence)

    for sentence in sentences[:1]:
        count = len(sentences) - 1
        addition = f" (and {count} more such lists)" if count else ""
        yield f"{sentence}, as many as there are iterations{addition}"


def odd_kinds(kinds: Iterable[str]) -> Iterator[str]:
    """Yield a sentence per kind of task that may be a known one, misspelt."""
    for kind in dict.fromkeys(kinds):
        if kind in _KNOWN_KINDS:
            continue
        for known_kind in get_close_matches(kind, _KNOWN_KINDS, n=1, cutoff=_LIKE):
            if _is_slip(kind, known_kind):
                yield f"kind {kind} is a word of its own: did you mean {known_kind!r}?"


def _is_slip(kind: str, known_kind: str) -> bool:
    """Return True where single letters differ; worker1 and resampler are meant."""
    if kind.startswith(known_kind):
        addition = kind.removeprefix(known_kind)
        if addition.isdigit() or addition.startswith("_"):
            return False

    changes = SequenceMatcher(None, kind, known_kind).get_opcodes()
    lengths = [
        max(end - begin, known_end - known_begin)
        for tag, begin, end, known_begin, known_end in changes
        if tag != "equal"
    ]
    return max(lengths) == 1
