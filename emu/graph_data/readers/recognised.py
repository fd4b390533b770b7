"""Formats of graphs that are not read here, by how they begin, and the way to one.

The fields of a row are named as those of the recogniser of `emu.interchange`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from emu.errors import DataError

#: Lines at the beginning of a text that are looked at.
LINES = 12
_TABLE = "write a table (csv); features and labels may be npy, npz or json"
_UNPACK = "unpack it first"
_NETWORKX = (
    "python -c \"import networkx as n; n.write_edgelist(n.{}, 'edges.txt', "
    'data=False, delimiter=chr(9))", then emu import edges.txt'
)
_IGRAPH = (
    "python -c \"import igraph as i; i.Graph.Read('FILE', format='{}').write("
    "'edges.txt', format='edgelist')\", then emu import edges.txt --no-header"
)
_AWK = "awk '$1==\"{}\" {{print $2, $3}}' FILE > edges.txt, then emu import edges.txt"


@dataclass(frozen=True)
class GraphFormat:
    """A format of files that is known by how it begins."""

    name: str
    """As in "is GML"."""
    pattern: str
    """Regular expression at the beginning of the text, without case."""
    conversion: str = _TABLE
    """Command or line of Python that makes of it what is read."""


GRAPH_FORMATS = (
    GraphFormat("GML", r"(#.*\n|creator .*\n|version .*\n|comment .*\n)*graph\s*\[",
                _NETWORKX.format("read_gml('FILE', label='id')")),
    GraphFormat("RDF (N-Triples, Turtle)", r"<http|@prefix"),
    GraphFormat("XML (GraphML, GEXF)", r"<",
                _NETWORKX.format("read_graphml('FILE')") + " (or read_gexf)"),
    GraphFormat("Pajek", r"(%.*\n)*\*(network|vertices|arcs|edges)",
                _NETWORKX.format("read_pajek('FILE')")),
    GraphFormat("UCINET DL", r"dl\b", _IGRAPH.format("dl")),
    GraphFormat("GDF", r"nodedef>"),
    GraphFormat("DOT", r"(strict\s+)?(di)?graph\b[^\[]*\{",
                _NETWORKX.format("nx_pydot.read_dot('FILE')")),
    GraphFormat("DIMACS of roads", r"(c.*\n)*p\s+(sp|max)\b", _AWK.format("a")),
    GraphFormat("DIMACS", r"(c.*\n)*p\s+(edge|col)\b", _AWK.format("e")),
    GraphFormat("graph6 or sparse6", r">>(graph|sparse)6<<",
                _NETWORKX.format("read_graph6('FILE')")),
    GraphFormat("TGF", r"(?!#)(.*\n){1,10}?#[ \t]*(\n|$)",
                "sed '1,/^#/d' FILE > edges.txt, then emu import edges.txt"),
    GraphFormat("JSON", r"[{\[]",
                _NETWORKX.format("node_link_graph(__import__('json').load(open("
                                 "'FILE')))")),
    GraphFormat("Parquet", r"par1",
                "pandas.read_parquet('FILE').to_csv('edges.csv', index=False)"),
    GraphFormat("Arrow", r"arrow1",
                "pandas.read_feather('FILE').to_csv('edges.csv', index=False)"),
    GraphFormat("HDF5", "\x89hdf"), GraphFormat("npy", "\x93numpy"),
    GraphFormat("SQLite", "sqlite format 3"), GraphFormat("ORC", "orc"),
    GraphFormat("zip (npz, pt, xlsx)", "pk\x03\x04", _UNPACK + ", or " + _TABLE),
    GraphFormat("bzip2", "bzh", _UNPACK), GraphFormat("xz", "\xfd7zxz", _UNPACK),
    GraphFormat("zstd", "(\xb5/\xfd".replace("(", r"\("), _UNPACK),
    GraphFormat("MATLAB", "matlab"), GraphFormat("pickle", "\x80"),
    GraphFormat("tar or another binary file", "(.|\n)*\0", _UNPACK),
)  # fmt: skip


def refuse(path: Path, head: str) -> None:
    """Refuse a text of another format; DataError with its name, and the way."""
    for row in GRAPH_FORMATS:
        if re.match(row.pattern, head, re.IGNORECASE):
            way = row.conversion.replace("FILE", path.name)
            problem = f"is {row.name}, which is not read here: {way}"
            raise DataError(problem, path=str(path))
