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
_KIND_LINES = _KINDS.strip().splitlines()
_LEFT, _RIGHT, _PLAIN = (set(line.split()) for line in _KIND_LINES)
#: Words of ids; u and i are names of ends as well.
_ID_WORDS = _PLAIN | (_LEFT | _RIGHT) - {"i", "u"}
#: Words that ``id`` may follow without a mark between: nodeid, sourceid.
_BEFORE_ID = {"node", *_LEFT, *_RIGHT}.union(*_ENDS)
#: Words of a name in camel case, with marks between, or in capitals.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
#: A stem with 0, 1, 2, a or b behind it.
_NUMBERED = re.compile(r"(.*?)[ _.-]?([012]|(?<![A-Za-z0-9])[abAB])")
#: Ids in common by which a pair of columns is as plausible as the first two.
_FEW = 2


def words_of(name: str) -> list[str]:
    """Return the words of a column's name: ``fromNodeId`` has from, node and id."""
    words = []
    for part in _WORD.findall(name):
        word = part.lower()
        stem = word.removesuffix("id")
        if stem in _BEFORE_ID:
            word = stem
        words.append(word)
    return words


def is_id(name: str) -> bool:
    """Return True where the name of a column is that of ids: id, node_id, paperId."""
    words = words_of(name)
    if not words:
        return False
    return words[-1] == "id" or _ID_WORDS.issuperset(words)


def named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns whose names say that they are ends; None if none do."""
    words = [words_of(name) for name in names]
    # Words that say more than that a column has vertices, if there are some.
    telling_words = []
    for of_name in words:
        telling = [word for word in of_name if word not in _PLAIN]
        telling_words.append(telling or of_name)
    for source, target in _ENDS:
        # A column called by the word alone goes before one that has it among others.
        for is_exact in (True, False):
            ends = _only_pair(telling_words, {source}, {target}, is_exact=is_exact)
            if ends:
                return ends

    # Names of kinds are weaker: a table of users may well have an item.
    sides = _only_pair(telling_words, _LEFT, _RIGHT, is_exact=True)
    return sides or _pair_called_alike(names, words)


def _only_pair(
    words: Sequence[Sequence[str]],
    left: set[str],
    right: set[str],
    *,
    is_exact: bool,
) -> tuple[int, int] | None:
    """Return the one column with a word of either side, if there is one of each."""
    lefts = []
    rights = []
    for column, of_name in enumerate(words):
        if is_exact and len(of_name) != 1:
            continue
        if not left.isdisjoint(of_name):
            lefts.append(column)
        if not right.isdisjoint(of_name):
            rights.append(column)

    # With two candidates on a side nothing says which it is.
    is_pair = len(lefts) == len(rights) == 1 and lefts != rights
    if not is_pair:
        return None
    return lefts[0], rights[0]


def _pair_called_alike(
    names: Sequence[str],
    words: Sequence[Sequence[str]],
) -> tuple[int, int] | None:
    """Return the one pair of columns that are called alike, as node1 and node2."""
    same = []
    pairs = []
    columns = range(len(names))
    for place, other in combinations(columns, 2):
        first = names[place]
        second = names[other]
        if first == second and is_id(first):
            same.append((place, other))
        stem = _stem(first)
        if stem and stem == _stem(second):
            pairs.append((place, other))

    if len(same) == 1:  # LDBC's Person.id|Person.id, geom-gcn's node_id, node_id
        return same[0]
    # Of a table of vertices, id,f1,f2, these are features.
    is_of_vertices = any(of_name and _PLAIN.issuperset(of_name) for of_name in words)
    if is_of_vertices or len(pairs) != 1:
        return None
    return pairs[0]


def _stem(name: str) -> str:
    """Return what node1, node2, id_a, id_b have in common; "" of other names."""
    match = _NUMBERED.fullmatch(name)
    # The mark keeps an empty stem from reading as none: a and b are alike.
    if match is None or is_number(name):
        return ""
    return f"{match[1]}-"


def are_two_kinds(names: Sequence[str]) -> bool | None:
    """Return whether two names are of kinds that differ; None if they do not say."""
    left_words, right_words = (set(words_of(name)) - _PLAIN for name in names)
    for left, right in _ENDS:
        if left in left_words and right in right_words:
            left_kind = left_words - {left}
            right_kind = right_words - {right}
            differ = left_kind and right_kind and left_kind != right_kind
            # Source and target of two kinds may still be one space of ids: that is
            # asked.
            return None if differ else False

    left_stem, right_stem = map(_stem, names)
    have_one_stem = left_stem and left_stem == right_stem
    if names[0] == names[1] or have_one_stem:
        return False
    if left_words & _LEFT and right_words & _RIGHT:
        return True
    return None


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
        vertices = max(self.vertices, 1)
        return self.common / vertices


def pairs_of_ids(columns: Mapping[int, Column]) -> list[Pair]:
    """Return the pairs of columns that may be ends: both numbers, or both words."""
    pairs = []
    places = [place for place in sorted(columns) if columns[place].is_id]

    for ends in combinations(places, 2):
        left, right = (columns[end] for end in ends)
        # An edge between a number and a word would be one of two kinds at best.
        if left.main_kind == right.main_kind:
            pair = Pair(
                ends=ends,
                left=len(left.distinct),
                right=len(right.distinct),
                common=count_common(left, right),
            )
            pairs.append(pair)
    return pairs


def plausible_pairs(columns: Mapping[int, Column]) -> list[Pair]:
    """Return the pairs that may be the ends of a table without names, likely first.

    One pair alone is none to ask about.
    """
    # Ends of one kind of vertices share ids; other columns rarely do.
    all_pairs = pairs_of_ids(columns)
    pairs = sorted(all_pairs, key=lambda pair: -pair.overlap)
    first = next((pair for pair in pairs if pair.ends == (0, 1)), None)
    # The first two are no ids: nothing speaks for one pair but its ids.
    if first is None:
        return pairs

    least = _least_common(columns[0], first)
    plausible = [first]
    for pair in pairs:
        is_rival = pair.overlap >= first.overlap and pair.common >= least
        if is_rival and pair != first:
            plausible.append(pair)
    return plausible


def _least_common(column: Column, first: Pair) -> int:
    """Return how many ids other columns need in common to be as plausible."""
    if column.rows > 1 and column.grows:
        return 0  # the first column may be an index, or a time
    if column.main_kind == TEXT:
        return min(first.common, 1)  # a relation may stand between
    # One id in common is soon there by chance, as of years and small counts.
    return _FEW
