"""Which columns of a table are the ends of edges: by names, else by all of its rows.

Without names the first two columns are the ends, as in SNAP's lists, unless another
pair is as plausible: its ids have more in common, or the first column only counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from emu.graph_data.readers.columns import TEXT, Column, count_common, is_number

_PAIRS = """
source target, source destination, source dest, source dst, source sink, src dst,
src dest, src target, src tgt, src trg, from to, u v, head tail, citing cited,
follower followee, sender receiver, parent child, i j, row col, row column, start end,
subject object
"""
#: Names of the two ends of an edge; an earlier pair goes before a later one.
_ENDS = [pair.split() for pair in _PAIRS.split(",")]
_KINDS = """
u user reviewer rater customer author person actor member reader
i item movie product book paper business asin track song artist group game event film \
article shop
id ids node nodes vertex vertices idx index key
"""
#: Kinds of vertices on the two sides of a bipartite list, and words that say no more
#: than that a column has vertices.
_LEFT, _RIGHT, _PLAIN = ({*line.split()} for line in _KINDS.strip().splitlines())
#: Ids in common by which a pair of columns is as plausible as the first two.
_FEW = 2


def words_of(name: str) -> list[str]:
    """Return the words of a column's name: ``fromNodeId`` has from, node and id."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+", name)
    words = [part.lower() for part in parts]
    ends_known = {"node", *_LEFT, *_RIGHT, *(end for pair in _ENDS for end in pair)}
    return [w.removesuffix("id") if w[:-2] in ends_known else w for w in words]


def is_id(name: str) -> bool:
    """Return True where the name of a column is that of ids: id, node_id, paperId."""
    words = words_of(name)
    kinds = _PLAIN | (_LEFT | _RIGHT) - {"i", "u"}
    return bool(words) and (words[-1] == "id" or {*words} <= kinds)


def named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns whose names say that they are ends; None if none do."""
    words = [words_of(name) for name in names]
    bare = [[word for word in each if word not in _PLAIN] or each for each in words]
    for left, right in _ENDS:
        for is_exact in (True, False):
            ends = _only_pair(bare, {left}, {right}, is_exact=is_exact)
            if ends:
                return ends

    sides = _only_pair(bare, _LEFT, _RIGHT, is_exact=True)
    return sides or _alike(names, words)


def _only_pair(
    words: Sequence[Sequence[str]], left: set[str], right: set[str], *, is_exact: bool
) -> tuple[int, int] | None:
    """Return the one column with a word of either side, if there is one of each."""
    fitting = [c for c, each in enumerate(words) if len(each) == 1 or not is_exact]
    lefts = [c for c in fitting if left & {*words[c]}]
    rights = [c for c in fitting if right & {*words[c]}]
    is_pair = len(lefts) == len(rights) == 1 and lefts != rights
    return (lefts[0], rights[0]) if is_pair else None


def _alike(
    names: Sequence[str], words: Sequence[Sequence[str]]
) -> tuple[int, int] | None:
    """Return the one pair of columns that are called alike, as node1 and node2."""
    pairs = [*combinations(range(len(names)), 2)]
    same = [(a, b) for a, b in pairs if names[a] == names[b] and is_id(names[a])]
    if len(same) == 1:  # LDBC's Person.id|Person.id, geom-gcn's node_id, node_id
        return same[0]

    numbered = [*map(_numbered, names)]
    alike = [(a, b) for a, b in pairs if numbered[a] == numbered[b] != ""]
    # Of a table of vertices, id,f1,f2, these are features.
    is_of_vertices = any(each and {*each} <= _PLAIN for each in words)
    return alike[0] if len(alike) == 1 and not is_of_vertices else None


def _numbered(name: str) -> str:
    """Return what node1, node2, id_a, id_b have in common; "" of other names."""
    match = re.fullmatch(r"(.*?)[ _.-]?([012]|(?<![A-Za-z0-9])[abAB])", name)
    return f"{match[1]}-" if match and not is_number(name) else ""


def are_two_kinds(names: Sequence[str]) -> bool | None:
    """Return whether two names are of kinds that differ; None if they do not say."""
    words = [{*words_of(name)} - _PLAIN for name in names]
    for left, right in _ENDS:
        if left in words[0] and right in words[1]:
            rest = words[0] - {left}, words[1] - {right}
            return None if all(rest) and rest[0] != rest[1] else False

    numbered = _numbered(names[0])
    if names[0] == names[1] or (numbered and numbered == _numbered(names[1])):
        return False
    return True if words[0] & _LEFT and words[1] & _RIGHT else None


@dataclass(frozen=True)
class Pair:
    """Two columns that may be the ends."""

    ends: tuple[int, int]
    left: int
    """Distinct ids of the first column."""
    right: int
    """Distinct ids of the second."""
    common: int
    """Distinct ids that both have."""

    @property
    def vertices(self) -> int:
        """Distinct ids of both."""
        return self.left + self.right - self.common

    @property
    def overlap(self) -> float:
        """Share of the ids that both have."""
        return self.common / max(self.vertices, 1)


def pairs_of_ids(columns: Mapping[int, Column]) -> list[Pair]:
    """Return the pairs of columns that may be ends: both numbers, or both words."""
    pairs = []
    for ends in combinations(sorted(columns), 2):
        left, right = (columns[end] for end in ends)
        if left.is_id and right.is_id and left.main_kind == right.main_kind:
            common = count_common(left, right)
            sizes = len(left.distinct), len(right.distinct)
            pairs.append(Pair(ends, sizes[0], sizes[1], common))
    return pairs


def plausible_pairs(columns: Mapping[int, Column]) -> list[Pair]:
    """Return the pairs that may be the ends of a table without names, likely first.

    One pair alone is none to ask about.
    """
    pairs = sorted(pairs_of_ids(columns), key=lambda pair: -pair.overlap)
    first = next((pair for pair in pairs if pair.ends == (0, 1)), None)
    if first is None:
        return pairs

    least = _least_common(columns[0], first)
    rivals = [
        pair
        for pair in pairs
        if pair.overlap >= first.overlap and pair.common >= least and pair != first
    ]
    return [first, *rivals]


def _least_common(column: Column, first: Pair) -> int:
    """Return how many ids other columns need in common to be as plausible."""
    if column.rows > 1 and column.grows:
        return 0  # the first column may be an index, or a time
    if column.main_kind == TEXT:
        return min(first.common, 1)  # a relation may stand between
    return _FEW
