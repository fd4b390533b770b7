"""Text that people bring: read as the file declares, or refused with the option.

Each file here is of a kind that some site or program writes.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.imported import import_graph, imports_home
from emu.graph_data.readers.text_table import TableOptions

pytestmark = pytest.mark.usefixtures("read_here")

MADE_UP: dict[str, Any] = {"feature_length": 3, "classes": 1}


def bring(text: str | bytes, folder: Path, name: str = "g.txt", **options: Any) -> Any:
    """Return ids by vertex, edges between them, and the facts of an import."""
    content = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(content)
    table = TableOptions(**{k: options.pop(k) for k in [*options] if k in FIELDS})
    kept = import_graph(folder / name, "own", table=table, **{**MADE_UP, **options})
    ids = np.arange(kept.facts["vertices"])
    ids = kept.array("ids") if kept.holds("ids") else ids
    names = [*map(str, ids.tolist())]
    indptr, indices = kept.array("indptr"), kept.array("indices")
    pairs = {
        frozenset((names[v], names[u]))
        for v in range(len(names))
        for u in indices[indptr[v] : indptr[v + 1]]
    }
    return names, {"-".join(sorted(pair)) for pair in pairs}, kept


FIELDS = TableOptions.__dataclass_fields__
#: What, text, options, ids in order, edges.
READ: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("SNAP", ("# Directed graph\n# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n"
     "30\t1412\n30\t3352\n"), {}, "30 1412 3352", "1412-30 30-3352"),
    ("SNAP, signed", "# FromNodeId ToNodeId Sign\n0 1 -1\n1 2 1\n", {}, "0 1 2",
     "0-1 1-2"),
    ("MUSAE of SNAP", "id_1,id_2\n0,3\n3,5\n", {}, "0 3 5", "0-3 3-5"),
    ("twitch of SNAP", "numeric_id_1,numeric_id_2\n0,3\n3,5\n", {}, "0 3 5", "0-3 3-5"),
    ("lastfm of SNAP", "node_1,node_2\n0,3\n3,1\n", {}, "0 1 3", "0-3 1-3"),
    ("reddit of SNAP", ("SOURCE_SUBREDDIT\tTARGET_SUBREDDIT\tPOST_ID\n"
     "art\tpics\t1a\npics\tmusic\t2b\n"), {}, "art music pics", "art-pics music-pics"),
    ("KONECT", "% asym unweighted\n% 3 4 4\n1 2\n2 4\n2 1\n", {}, "1 2 3 4", "1-2 2-4"),
    ("KONECT with weights and times", "% sym weighted\n1 2 3 99\n2 3 1 98\n", {},
     "1 2 3", "1-2 2-3"),
    ("KONECT, bipartite", "% bip unweighted\n% 2 3 2\n1\t1\n3\t2\n", {},
     "left:1 left:2 left:3 right:1 right:2", "left:1-right:1 left:3-right:2"),
    ("networkrepository mtx", ("%%MatrixMarket matrix coordinate pattern symmetric\n"
     "4 4 2\n2 1\n3 1\n"), {}, "1 2 3 4", "1-2 1-3"),
    ("mtx, real", ("%%MatrixMarket matrix coordinate real general\n%\n\n3 3 2\n"
     "1 2 0.5e-3\n 3  1  -2\n"), {}, "1 2 3", "1-2 1-3"),
    ("mtx, skew", ("%%MatrixMarket MATRIX Coordinate Integer Skew-Symmetric\n3 3 1\n"
     "2 1 7\n"), {}, "1 2 3", "1-2"),
    ("mtx, rectangular", ("%%MatrixMarket matrix coordinate integer general\n2 3 2\n"
     "1 1 4\n2 3 4\n"), {}, "row:1 row:2 column:1 column:2 column:3",
     "column:1-row:1 column:3-row:2"),
    ("networkrepository edges", "% sym unweighted\n1 2\n2 3\n", {}, "1 2 3", "1-2 2-3"),
    ("pandas", ",source,target\n0,5,7\n1,7,9\n", {}, "5 7 9", "5-7 7-9"),
    ("pandas, weight first", "weight,source,target\n0.5,5,7\n1,7,9\n", {}, "5 7 9",
     "5-7 7-9"),
    ("pandas with a blank", " src dst\n0 5 7\n1 7 9\n", {}, "5 7 9", "5-7 7-9"),
    ("pandas with floats", "src,dst\n5.0,7.0\n7.0,9.0\n", {}, "5 7 9", "5-7 7-9"),
    ("R", '"from" "to"\n"1" 5 7\n"2" 7 9\n', {}, "5 7 9", "5-7 7-9"),
    ("Gephi", ("Source,Target,Type,Id,Label,Weight\n5,7,Directed,0,,1.0\n"
     '7,9,Directed,1,"a, b",1.0\n'), {}, "5 7 9", "5-7 7-9"),
    ("Gephi, semicolons", "Source;Target;Type;Weight\n5;7;Mixed;1,5\n7;9;Mixed;1\n",
     {}, "5 7 9", "5-7 7-9"),
    ("Neo4j", ":START_ID,role,:END_ID,:TYPE\nkeanu,Neo,tt1,A\ncarrie,T,tt1,A\n", {},
     "carrie keanu tt1", "keanu-tt1 carrie-tt1"),
    ("Neo4j, two kinds apart", ":START_ID(Person),:END_ID(Movie)\n1,10\n2,10\n", {},
     "1 2 10", "1-10 10-2"),
    ("JODIE", "user_id,item_id,timestamp,state_label,f\n0,0,0.0,0,1\n1,0,2.0,0,2\n", {},
     "user_id:0 user_id:1 item_id:0", "item_id:0-user_id:0 item_id:0-user_id:1"),
    ("TGN", ",u,i,ts,label,idx\n0,1,4,0.0,0.0,1\n1,2,4,36.0,0.0,2\n", {}, "1 2 4",
     "1-4 2-4"),
    ("MovieLens", "userId,movieId,rating,timestamp\n1,1,4.0,96\n1,3,4.0,97\n", {},
     "userId:1 movieId:1 movieId:3", "movieId:1-userId:1 movieId:3-userId:1"),
    ("MovieLens 1M", "1::1193::5\n1::661::3\n", {}, "1 661 1193", "1-661 1-1193"),
    ("cora.cites", "35\t1033\n35\t103482\n103482\t1033\n", {}, "35 1033 103482",
     "1033-35 103482-35 1033-103482"),
    ("citeseer.cites", "100157\tbrad99\nbrad99\tac\n", {"words": True},
     "100157 ac brad99", "100157-brad99 ac-brad99"),
    ("networkx", ("#/usr/bin/env python\n# GMT Thu\n#\n0 1 {'weight': 3, 'b': 1}\n"
     "1 2 {}\n"), {}, "0 1 2", "0-1 1-2"),
    ("igraph ncol, words", "alice bob 2\nbob carol 1\ncarol alice 1\n", {},
     "alice bob carol", "alice-bob bob-carol alice-carol"),
    ("OGB", "0,1\n1,2\n", {}, "0 1 2", "0-1 1-2"),
    ("words that are named", "from,to\nalice,bob\nbob,carol\n", {}, "alice bob carol",
     "alice-bob bob-carol"),
    ("quoted commas", 'from,to\n"Doe, J",bob\nbob,"Roe, R"\n', {}, "Doe, J|Roe, R|bob",
     "Doe, J-bob|Roe, R-bob"),
    ("hex", "0x1f 0x2a\n0x2a 0x1f\n0x2a 0xff\n", {"header": False}, "0x1f 0x2a 0xff",
     "0x1f-0x2a 0x2a-0xff"),
    ("beyond int64", "src,dst\n18446744073709551616,1\n1,18446744073709551617\n", {},
     "1 18446744073709551616 18446744073709551617",
     "1-18446744073709551616 1-18446744073709551617"),
    ("CRLF", "src,dst\r\n5,7\r\n7,9\r\n", {}, "5 7 9", "5-7 7-9"),
    ("BOM and CR LF", "\ufeffsource;target\r\n5;7\r\n", {}, "5 7", "5-7"),
    ("METIS", "3 2\n2\n1 3\n2\n", {}, "1 2 3", "1-2 2-3"),
    ("METIS, weights of all", "% a\n3 2 111 2\n1 9 9 2 5\n1 9 9 1 5 3 6\n1 9 9 2 6\n",
     {}, "1 2 3", "1-2 2-3"),
    ("METIS, weights of vertices", "3 2 10\n4 2\n4 1 3\n4 2\n", {}, "1 2 3", "1-2 2-3"),
    ("METIS, an empty line", "4 2 1\n\n3 5\n2 5 4 6\n3 6\n", {}, "1 2 3 4", "2-3 3-4"),
    ("columns by option", "a,b,c\n1,5,7\n2,7,9\n",
     {"columns": ("b", "c"), "bipartite": False}, "5 7 9",
     "5-7 7-9"),
    ("a year among names of words", "source,target,2010\nal,bo,x\nbo,cy,y\n", {},
     "al bo cy", "al-bo bo-cy"),
    ("by number", "0 5 7\n1 7 9\n", {"columns": ("2", "3")}, "5 7 9", "5-7 7-9"),
    ("sizes first", "3 2\n1 2\n2 3\n", {"header": True}, "1 2 3", "1-2 2-3"),
    ("no sizes", "3 2\n1 2\n2 3\n", {"header": False}, "1 2 3", "2-3 1-2"),
    ("two kinds by option", "author,venue\n1,1\n2,1\n",
     {"columns": ("author", "venue"), "bipartite": True},
     "author:1 author:2 venue:1", "author:1-venue:1 author:2-venue:1"),
    ("kinds of users", "from_user,to_user\n1,2\n2,3\n", {}, "1 2 3", "1-2 2-3"),
    ("camels", "w,sourceNode,targetNode\n1,5,7\n1,7,9\n", {}, "5 7 9", "5-7 7-9"),
    ("pipes", "5|7\n7|9\n", {}, "5 7 9", "5-7 7-9"),
    ("ends in a comment", "# weight source target\n1 5 7\n2 7 9\n", {}, "5 7 9",
     "5-7 7-9"),
]  # fmt: skip


def split(text: str) -> list[str]:
    return text.split("|" if "|" in text else " ")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", READ, ids=[case[0] for case in READ])
def test_a_file_of_this_kind_is_read(
    case: tuple[str, str, dict[str, Any], str, str], tmp_path: Path, *, packed: bool
) -> None:
    _, text, options, ids, edges = case
    content = gzip.compress(text.encode()) if packed else text.encode()
    names, pairs, _ = bring(content, tmp_path, **options)

    assert names == split(ids)
    assert pairs == {"-".join(sorted(e.split("-"))) for e in split(edges)}


#: What, text, options, the error.
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("no names that say so", "a,c,d\n5,0,1\n7,1,2\n", {}, "--columns a,c"),
    ("kinds unknown", "venue,year\n1,1\n2,1\n", {}, "--columns venue,year"),
    ("kinds that overlap", "venue,year\n1,1\n2,1\n", {"columns": ("venue", "year")},
     "--bipartite;.*--no-bipartite"),
    ("Neo4j, two kinds", ":START_ID(Person),:END_ID(Movie)\n1,1\n2,1\n", {},
     "--bipartite;.*--no-bipartite"),
    ("a time first", "90 5 7\n91 7 9\n95 5 7\n", {}, "--columns 2,3"),
    ("a time last", "follower,followed,since\n1,2,9\n2,3,9\n", {},
     "--columns follower,followed"),
    ("vertices", "id,f1,f2\n0,1,2\n1,2,0\n", {}, "--columns f1,f2"),
    ("an index without a name", "0,5,7\n1,7,9\n2,9,5\n", {}, "--columns 2,3"),
    ("sizes first", "3 2\n1 2\n2 3\n", {}, "--header;.*--no-header"),
    ("sizes of a matrix", "3 3 2\n1 2 1\n2 3 1\n", {}, "--header;.*--no-header"),
    ("words above words", "x y\nalice bob\nbob carol\n", {}, "--header;.*--no-header"),
    ("an adjacency list", "0 1 2 3\n1 2\n2 3\n", {}, "line 2 is '1 2'"),
    ("an adjacency list, longer below", "0 1\n1 2 3\n", {}, "line 2 is '1 2 3'"),
    ("longer below, of three", "5 1 2\n6 1 2 3\n", {}, "line 2 is '6 1 2 3'"),
    ("edge_index", "0 1 2 3 4\n1 2 3 4 0\n", {}, "may be a matrix"),
    ("an adjacency matrix", "0 1 0\n1 0 1\n0 1 0\n", {}, "may be a matrix"),
    ("one column", "1\n2\n", {}, "has one column.*an edge has two ends"),
    ("one in line 2", "1,2\n3\n4,5,6\n", {}, "has one column, '3'; an edge has two"),
    ("braces first", "# a\n{x}\n1 2\n", {}, "line 2 is .*which has no column"),
    ("braces below", "1 2\n\n{'a': 1}\n", {}, "line 3 is .*which has no column"),
    ("empty", "", {}, "holds no line"),
    ("comments alone", "# a\n\n", {}, "holds no line"),
    ("a header alone", "source,target\n", {}, "holds no line below its header"),
    ("negative", "0 1\n-1 2\n", {}, "line 2 is '-1 2'"),
    ("fractions", "0 1\n1.5 2\n", {}, "line 2 is '1.5 2'"),
    ("words below numbers", "0 1\n1 b\n", {}, "line 2 is '1 b'.*--words"),
    ("words in the only column", "src,dst\n1,\n2,3\n", {}, "line 2 is '1 '"),
    ("no such column", "src,dst\n1,2\n", {"columns": ("src", "to")}, "names 'to'.*src"),
    ("twice", "src,dst\n1,2\n", {"columns": ("1", "1")}, "names two columns"),
    ("a damaged first line", "x,1\n1,2\n", {}, "--no-header"),
    ("GML", "graph [\n  node [ id 0 ]\n]\n", {}, "is GML"),
    ("GraphML", '<?xml version="1.0"?>\n<graphml/>\n', {}, "is GraphML"),
    ("Pajek", "*Vertices 3\n1 a\n*Edges\n1 2\n", {}, "is Pajek"),
    ("JSON", '{"nodes": [], "links": []}\n', {}, "is a node-link graph"),
    ("DIMACS", "p edge 3 2\ne 1 2\n", {}, "is DIMACS"),
    ("GDF", "nodedef>name VARCHAR\n1\n", {}, "is GDF"),
    ("mtx, dense", "%%MatrixMarket matrix array real general\n2 1\n1\n2\n", {},
     "matrix coordinate is read"),
    ("mtx, an index of 0", ("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n"
     "1 2\n0 1\n"), {}, "line 4 is '0 1', it needs row and column from 1 to 3"),
    ("mtx, too few", ("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n"
     "1 2\n"), {}, "states 2 entries and holds 1"),
    ("mtx, no values", "%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2\n",
     {}, "has 2 columns of 3 of real"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_a_file_that_does_not_say_is_refused_with_the_option(
    case: tuple[str, str, dict[str, Any], str], tmp_path: Path
) -> None:
    _, text, options, problem = case
    with pytest.raises(DataError, match=problem) as caught:
        bring(text, tmp_path, **options)
    assert "\n" not in str(caught.value)
    assert not (imports_home() / "own").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3 2\n2\n1 3\n", "1 neighbours|3 neighbours stand for 2"),
        ("3 2 1\n2\n1 3\n2\n", "has no weight"),
        ("0 1\n1 2\n", "states 0 vertices"),
        ("3 2\n2\n1\n2\n", "3 neighbours stand for 2 edges"),
        ("2 1\n2\n1\n1\n", "more than 2 lines"),
        ("3 2\n2\n3 2\n2\n", "the vertex itself"),
        ("3 2\n2 3\n1\n2\n", "at one of its ends only"),
    ],
)
def test_a_damaged_metis_file_is_called_so(
    text: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"is no METIS: .*({problem})"):
        bring(text, tmp_path, "g.graph")


EDGES = "10 20\n20 40\n40 30\n"
PLAIN = "0 1\n1 2\n2 3\n"


def tables(folder: Path, edges: str, **files: Any) -> Any:
    """Return the import of edges with tables beside; what is no table is an option."""
    beside: dict[str, Any] = {}
    for kind in ("features", "labels", "splits"):
        if kind in files:
            beside[kind] = folder / f"{kind}.csv"
            beside[kind].write_bytes(files.pop(kind).encode(files.get("code", "utf-8")))
    files.pop("code", None)
    made = {k: v for k, v in MADE_UP.items() if k[:5] not in " ".join(beside)}
    made = {
        k: v for k, v in made.items() if not (k == "classes" and "labels" in beside)
    }
    (folder / "e.txt").write_text(edges)
    return import_graph(folder / "e.txt", "own", table=TableOptions(**files), **beside,
                        **made)  # fmt: skip


#: What, edges, tables and options; classes by vertex in order of ids.
LABELS: list[tuple[str, str, dict[str, Any], list[int]]] = [
    ("blanks", PLAIN, {"labels": "3 1\n1 0\n0 1\n2 0\n"}, [1, 0, 0, 1]),
    ("words", EDGES, {"labels": "40\tcat\n10\tdog\n20\tcat\n30\tdog\n"}, [1, 0, 1, 0]),
    ("a vertex without", EDGES, {"labels": "40,1\n10,0\n20,0\n"}, [0, 0, -1, 1]),
    ("isolated", EDGES, {"labels": "id,label\n5,1\n10,0\n20,0\n30,0\n40,0"},
     [1, 0, 0, 0, 0]),
    ("empty", EDGES, {"labels": "id,y\n10,\n20,nan\n30,1\n40,0\n"}, [-1, -1, 1, 0]),
    ("a named class", PLAIN,
     {"labels": "node,d,label,w\n3,9,1,4\n2,8,0,4\n1,7,0,4\n0,6,1,4"}, [1, 0, 0, 1]),
    ("class first", PLAIN, {"labels": "label,id\n1,3\n0,2\n0,1\n1,0\n"}, [1, 0, 0, 1]),
    ("cora.content", "35 1033\n1033 40\n",
     {"labels": "35 0 1 Neural\n1033 1 1 Rule\n40 1 0 Rule\n"}, [0, 1, 1]),
    ("one column with gaps", PLAIN, {"labels": "cat\n\ndog\ncat\n"}, [0, -1, 1, 0]),
    ("a header alone", PLAIN, {"labels": "label\n1\n1\n0\n0\n"}, [1, 1, 0, 0]),
    ("an index", PLAIN, {"labels": ",label\n0,a\n1,b\n2,a\n3,a\n"}, [0, 1, 0, 0]),
    ("numbers from 1", PLAIN, {"labels": "1\n2\n2\n1\n"}, [0, 1, 1, 0]),
    ("years", PLAIN, {"labels": "0,2010\n1,2020\n2,2010\n3,2010\n"}, [0, 1, 0, 0]),
    ("Gephi", PLAIN, {"labels": "Id,Label,part\n0,ann,1\n1,bob,0\n2,cy,0\n3,di,0\n",
                      "label_column": "part"}, [1, 0, 0, 0]),
    ("words in quotes", 'from,to\n"a, b",c\nc,d\n',
     {"labels": 'id,label\nd,"x, y"\nc,z\n"a, b",z\n'}, [1, 1, 0]),
    ("Latin-1", PLAIN, {"labels": "id,catégorie,label\n0,é,1\n1,é,0\n2,é,0\n3,é,0\n",
                        "code": "latin-1"}, [1, 0, 0, 0]),
    ("rows in order, by option", PLAIN, {"labels": "name,label\na,1\nb,0\nc,0\nd,1\n",
                                         "ids": False}, [1, 0, 0, 1]),
    ("numbers as words", "007 7\n7 8\n", {"labels": "id,label\n7,1\n007,0\n8,0\n",
                                          "words": True, "header": False}, [0, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize("case", LABELS, ids=[case[0] for case in LABELS])
def test_labels_come_to_their_vertices(
    case: tuple[str, str, dict[str, Any], list[int]], tmp_path: Path
) -> None:
    _, edges, options, classes = case
    kept = tables(tmp_path, edges, **{**options, "code": options.get("code", "utf-8")})

    assert kept.array("labels").tolist() == classes


#: What, edges, features and options; their rows in order of ids.
FEATURES: list[tuple[str, str, dict[str, Any], list[list[float]]]] = [
    ("by id", PLAIN, {"features": "id,f1,f2\n3,3,4\n2,2,3\n1,1,2\n0,0,1\n"},
     [[0, 1], [1, 2], [2, 3], [3, 4]]),
    ("id last", EDGES, {"features": "f1,nodeId\n3,30\n2,20\n1,10\n4,40\n"},
     [[1], [2], [3], [4]]),
    ("names that are numbers", EDGES, {"features": "id,2010\n30,3\n20,2\n10,1\n40,4\n"},
     [[1], [2], [3], [4]]),
    ("cora.content", EDGES, {"features": "30 0 1 a\n20 1 1 b\n10 1 0 a\n40 0 0 b\n"},
     [[1, 0], [1, 1], [0, 1], [0, 0]]),
    ("a class beside", PLAIN, {"features": "id,label,f\n3,1,3\n2,0,2\n1,0,1\n0,1,0\n"},
     [[0], [1], [2], [3]]),
    ("in order", PLAIN, {"features": "0.5 1\n0.5 2\n0.5 3\n0.5 4\n"},
     [[0.5, 1], [0.5, 2], [0.5, 3], [0.5, 4]]),
    ("a header without ids", PLAIN, {"features": "a,b\n0,1\n1,2\n2,3\n3,4\n"},
     [[0, 1], [1, 2], [2, 3], [3, 4]]),
    ("ids by option", PLAIN, {"features": "3 4\n2 3\n1 2\n0 1\n", "ids": True},
     [[1], [2], [3], [4]]),
    ("no ids by option", PLAIN, {"features": "3 4\n2 3\n1 2\n0 1\n", "ids": False},
     [[3, 4], [2, 3], [1, 2], [0, 1]]),
    ("no ids can be", PLAIN, {"features": "9 4\n9 3\n7 2\n6 1\n"},
     [[9, 4], [9, 3], [7, 2], [6, 1]]),
]  # fmt: skip


@pytest.mark.parametrize("case", FEATURES, ids=[case[0] for case in FEATURES])
def test_features_come_to_their_vertices(
    case: tuple[str, str, dict[str, Any], list[list[float]]], tmp_path: Path
) -> None:
    _, edges, options, rows = case

    assert tables(tmp_path, edges, **options).array("features").tolist() == rows


@pytest.mark.parametrize(
    ("edges", "options", "problem"),
    [
        (PLAIN, {"features": "3 4\n2 3\n1 2\n0 1\n"}, "--ids or --no-ids"),
        (PLAIN, {"labels": ",label\n3,a\n1,b\n2,a\n0,a\n"}, "--ids or --no-ids"),
        (PLAIN, {"labels": "name,label\na,1\nb,0\n"}, "--ids or --no-ids"),
        (PLAIN, {"labels": "0 1 0\n1 0 0\n2 0 1\n3 1 1\n"}, "--label-column"),
        (PLAIN, {"labels": "Id,Label\n0,ann\n1,bob\n2,cy\n3,di\n"}, "--label-column"),
        (PLAIN, {"labels": "1 0\n0 1\n1 1\n0 3\n"}, "names vertex 0 2 times"),
        (EDGES, {"labels": "0\n1\n1\n0\n"}, "an edge names 40: .*--ids"),
        (EDGES, {"labels": "1,0\n2,1\n3,1\n4,0\n"}, "names no vertex that has an edge"),
        (EDGES, {"features": "id,f\n10,1\n20,1\n30,1\n"}, "no features of vertex 40"),
        (EDGES, {"features": "id,f\n10,1\n20,1\n20,1\n"}, "names vertex 20 2 times"),
        (EDGES, {"features": "id,f\n10,1\n20,x\n30,1\n"}, "line 3 is '20 x'"),
        (EDGES, {"features": "id,f\n10,1\n20,inf\n30,1\n"}, "line 3 is '20 inf'"),
        (EDGES, {"features": "id,f\n10,1\n20\n30,1\n"}, "line 3 is '20'"),
        (EDGES, {"labels": "a 1\nb 0\nc 1\n"}, "names no vertex that has an edge"),
        (PLAIN, {"splits": "id,split\n0,train\n0,val\n1,test\n"}, "vertex 0 2 times"),
        (PLAIN, {"splits": "id,split\n0,train\n1,maybe\n"}, "a part 'maybe'"),
        (PLAIN, {"labels": "4 2\n0 1\n1 0\n2 1\n3 0\n"}, "begins with sizes"),
        (PLAIN, {"splits": "train\nval\ntest\n"}, "are 3 rows in order"),
        (PLAIN, {"features": "%%MatrixMarket matrix array real general\n4 1 1\n1 1 9"},
         "is MatrixMarket"),
    ],
)  # fmt: skip
def test_tables_that_do_not_say_or_fit_are_refused(
    edges: str, options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=problem):
        tables(tmp_path, edges, **options)


def test_a_split_may_be_a_folder_of_lists(tmp_path: Path) -> None:
    (tmp_path / "split").mkdir()
    for name, text in (("train", "40\n10\n"), ("val", "20\n"), ("test", "30\n")):
        (tmp_path / "split" / f"{name}.txt").write_text(text)
    (tmp_path / "e.txt").write_text(EDGES)
    kept = import_graph(tmp_path / "e.txt", "own", splits=tmp_path / "split", **MADE_UP)

    assert [kept.array(p).tolist() for p in ("train", "valid", "test")] == [
        [0, 3],
        [1],
        [2],
    ]
    assert kept.facts["split_origin"] == "split"
    (tmp_path / "split" / "val.txt").write_text("20\n10\n")
    with pytest.raises(DataError, match="vertex 10 is in the train and in the valid"):
        import_graph(tmp_path / "e.txt", "two", splits=tmp_path / "split", **MADE_UP)
