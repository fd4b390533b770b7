"""Files that can be read in two ways are asked about; each answer is read rightly.

Cases are of kinds that sites and programs write: contact lists with times, tables with
two headers, ids with zeros in front, labels one vertex off, splits as codes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from tests.graph_data.test_import_kinds import PATH, UP, Files, bring, npy, npz, summary

pytestmark = pytest.mark.usefixtures("read_here")

TIMES = "".join(
    f"{31220 + 20 * (k // 3)} {k * 7 % 40} {k * 11 % 40}\n" for k in range(60)
)
NEAR = "".join(f"{(k + 1) % 9},{(k + 2) % 9},{(k + 3) % 9}\n" for k in range(9))
FEATURES: dict[str, Any] = {"feature_length": 2}
WORDS = "source,target\nbob,al\nal,cy\n"
BY_WORDS = "id,label\ncy,1\nal,0\nbob,1\n"
MASKS = {
    "edge_index": [[0, 1, 2], [1, 2, 3]],
    "train_mask": np.array([1, 1, 0, 0], bool),
    "val_mask": np.array([0, 0, 1, 1], bool),
    "test_mask": np.array([0, 0, 0, 1], bool),
}

#: What, files, options, what the question has, and facts by each answer.
ASKED: list[tuple[str, Files, dict[str, Any], str, list[Any]]] = [
    ("times with ties", {"t.txt": TIMES}, UP, (r"\(40 vertices, 60 edges\): --columns"
     r" 2,3"),
     [({"columns": ("2", "3")}, {"vertices": 40})]),
    ("neighbours of each", {"k.csv": NEAR}, UP, r"\(18 edges\): --neighbours",
     [({"neighbours": True}, {"vertices": 9}), ({"columns": ("1", "2")}, {"edges":
     9})]),
    ("lines of neighbours", {"a.txt": "0 1 2 3\n1 2\n2\n3\n"}, UP, "or --neighbours",
     [({"neighbours": True}, {"vertices": 4, "edges": 4})]),
    ("edges that may be LGL", {"e.txt": "#nodes:4\n0 1\n1 2\n#half\n2 3\n"}, UP,
     r"to 1\): --columns 1,2; or LGL \(nodes:4 has .* 0 of weight 1\): write .* as 1.0",
     [({"columns": ("1", "2")}, {"vertices": 4, "edges": 3})]),
    ("007 and 7", {"e.csv": "source,target\n007,7\n7,011\n"}, UP,
     r"\(3 vertices, 2 edges\): --words.*\(2 vertices, 2 edges\): --no-words",
     [({"words": True}, {"ids": ["007", "011", "7"]}),
      ({"words": False}, {"ids": ["7", "11"], "loops": 1})]),
    ("two columns of ids", {"e.csv": PATH, "labels.csv": "id,new_id,label\n9,0,1\n8,"
     "1,0\n"
     "1,2,1\n7,3,0\n"}, FEATURES, r"id \(1 of the graph's 4 ids, 3 others\)",
     [({"id_column": "new_id"}, {"labels": [1, 0, 1, 0]}),
      ({"id_column": "id"}, {"vertices": 7})]),
    ("labels one vertex off", {"e.txt": PATH, "labels.csv": "id,label\n1,0\n2,1\n3,0\n"
     "4,1\n"}, FEATURES, "if each were 1 lower.*--no-ids --order rows",
     [({"ids": False, "order": "rows"}, {"labels": [0, 1, 0, 1]}),
      ({"ids": True}, {"labels": [-1, 0, 1, 0, 1]})]),
    ("words that meet in part", {"e.csv": "source,target\na,b\nb,c\n", "labels.csv":
     "id,label\na,1\nb,0\nx,1\n"}, FEATURES, "meet the graph in part.*--id-column",
     [({"ids": True}, {"vertices": 4})]),
    ("ids from 1, rows in order", {"e.txt": "1 2\n2 3\n3 4\n", "labels.txt":
     "0\n1\n0\n1\n"}, FEATURES, "ids 1 to 4 as they are sorted.*--order ids",
     [({"order": "ids"}, {"ids": ["1", "2", "3", "4"], "labels": [0, 1, 0, 1]})]),
    ("ids from 1 that may be rows", {"e.txt": "1 2\n2 3\n", "labels.txt":
     "0\n1\n0\n1\n"}, FEATURES, "vertices 0 to 3 .*--order rows; or ids 1 to 4",
     [({"order": "ids"}, {"ids": ["1", "2", "3", "4"]}),
      ({"order": "rows"}, {"ids": None, "vertices": 4})]),
    ("rows beside words", {"e.csv": WORDS, "labels.csv": BY_WORDS, "features.npy":
     lambda: npy([[1], [2], [3]])}, {}, "--order ids; or .*--order labels",
     [({"order": "labels"}, {"rows": [[2], [3], [1]], "labels": [0, 1, 1]}),
      ({"order": "ids"}, {"rows": [[1], [2], [3]], "labels": [0, 1, 1]})]),
    ("a split as codes", {"e.txt": PATH, "splits.csv": "id,split\n0,0\n1,2\n2,1\n3,0"
     "\n"},
     UP, r"codes 0 \(2\), 1 \(1\), 2 \(1\): which is which\? --split-codes",
     [({"split_codes": ("0", "1", "2")}, {"split": [2, 1, 1]}),
      ({"split_codes": ("1", "0", "2")}, {"split": [1, 2, 1]})]),
    ("codes in npz", {"a.npz": npz(edge_index=MASKS["edge_index"], split=[0, 0, 1, 2])},
     UP, "split holds codes", [({"split_codes": ("0", "1", "2")}, {"split": [2, 1,
     1]})]),
    ("masks that overlap", {"a.npz": npz(**MASKS)}, UP, ("--overlap first or --overla"
     "p last"),
     [({"overlap": "first"}, {"split": [2, 2, 0]}),
      ({"overlap": "last"}, {"split": [2, 1, 1]})]),
]  # fmt: skip


@pytest.mark.parametrize("case", ASKED, ids=[case[0] for case in ASKED])
def test_what_is_open_is_asked_and_each_answer_is_read(
    case: tuple[str, Files, dict[str, Any], str, list[Any]], tmp_path: Path
) -> None:
    _, files, options, question, answers = case
    with pytest.raises(DataError, match=question) as caught:
        bring(files, options, tmp_path)
    assert "\n" not in str(caught.value)

    for answer, facts in answers:
        seen = summary(bring(files, {**options, **answer}, tmp_path))
        assert {name: seen[name] for name in facts} == facts
        assert CliRunner().invoke(app, ["data", "clear", "own"]).exit_code == 0


#: What, files, options, facts.
READ: list[tuple[str, Files, dict[str, Any], dict[str, Any]]] = [
    ("times behind", {"e.txt": "5 7 100\n7 9 100\n9 5 120\n"}, UP, {"vertices": 3}),
    ("zeros in front", {"e.txt": "007 010\n010 011\n"}, UP, {"ids": ["007", "010", (""
     "011")]}),
    ("ids beyond 2^63", {"e.txt": f"{2**64 - 1} 1\n{2**63} 2\n1 2\n"}, UP,
     {"vertices": 4, "edges": 3}),
    ("LGL", {"g.lgl": "# a\nb 1.0\nc 2.0\n# b\nc 0.5\nd 3.0\n# d\ne 1.0\n"}, UP,
     {"ids": [*"abcde"], "edges": 5, "notes": "weights (5)"}),
    ("LGL of proteins", {"g.lgl": "# sp|P1\nsp|P2 0.5\nsp|P3 0.2\n# sp|P2\nsp|P3 1\n"},
     UP, {"ids": ["sp|P1", "sp|P2", "sp|P3"], "edges": 3, "notes": "weights (3)"}),
    ("LGL of numbers", {"g.lgl": "# 0\n1 5\n2 1\n# 1\n2 3\n"}, UP,
     {"vertices": 3, "edges": 3, "notes": "weights (3)"}),
    ("comments of a word", {"e.txt": "#nodes:4\n#edges:3\n1 2\n2 3\n3 4\n"}, UP,
     {"ids": ["1", "2", "3", "4"], "edges": 3}),
    ("the same in a csv", {"e.csv": "#nodes:4\n#edges:3\n1,2\n2,3\n# end\n3,4\n"}, UP,
     {"ids": ["1", "2", "3", "4"], "edges": 3}),
    ("a comma behind the first edge", {"e.txt": "0 1 # a, b\n1 2\n2 0 # c, d\n"}, UP,
     {"vertices": 3, "edges": 3}),
    ("Friendster", {"f.txt": "101:102,103\n102:101\n103:\n104:notfound\n"}, UP,
     {"ids": ["101", "102", "103", "104"], "edges": 2, "notes": "notfound (1)"}),
    ("LDBC", {"k.csv": "Person.id|Person.id|creationDate\n9|2|2010-07-30\n9|4|2010-0"
     "3-13\n"},
     UP, {"ids": ["2", "4", "9"], "notes": "1 column: creationDate"}),
    ("decimal commas", {"e.txt": PATH, "features.csv": "id;a;b\n0;0,5;1\n1;1,25;2\n"
     "2;0,1;3\n3;0,9;4\n"}, {"classes": 2}, {"rows": [[0.5, 1], [1.25, 2],
     [pytest.approx(0.1), 3], [pytest.approx(0.9), 4]], "notes": "decimal commas: a"}),
    ("True and False", {"e.txt": PATH, "features.csv": "id,a,b\n0,True,1\n1,False,2\n"
     "2,True,3\n3,True,4\n"}, {"classes": 2}, {"rows": [[1, 1], [0, 2], [1, 3], [1, 4]],
     "notes": "True and False as 1 and 0: a"}),
    ("classes of a column each", {"e.txt": PATH, "labels.csv": "id,a,b,c\n3,1,0,0\n2"
     ",0,1,0"
     "\n1,0,0,1\n0,1,0,0\n"}, FEATURES, {"labels": [0, 2, 1, 0]}),
    ("the same in order", {"e.txt": PATH, "labels.csv": "1,0,0\n0,1,0\n0,0,1\n1,0,0\n"},
     FEATURES, {"labels": [0, 1, 2, 0]}),
    ("masks of a column each", {"e.txt": PATH, "splits.csv": "id,train_mask,val_mask,"
     "test_mask\n0,True,False,False\n1,True,False,False\n2,False,True,False\n"
     "3,False,False,True\n"}, UP, {"split": [2, 1, 1]}),
    ("GraphSAINT", {"adj_full.npz": npz(data=[1, 1, 1], indices=[1, 2, 3], indptr=
     [0, 1, 2, 3, 3], shape=[4, 4], format=b"csr"), "features.npy": lambda: npy(
     np.eye(4)),
     "labels.json": json.dumps({"3": 2, "0": 1, "1": 0, "2": 2}),
     "splits.json": json.dumps({"tr": [0, 3], "va": [1], "te": [2]})}, {},
     {"edges": 3, "labels": [1, 0, 2, 2], "split": [2, 1, 1], "notes": "1 array: dat"
     "a"}),
    ("dgl's Reddit", {"reddit_graph.npz": npz(row=[0, 1, 2], col=[1, 2, 3], shape=[4,
     4]),
     **{f"{kind}.npz": npz(feature=np.eye(4), label=[0, 1, 2, 0], node_ids=range(4),
     node_types=[1, 1, 2, 3]) for kind in ("features", "labels", "splits")}},
     {"split_codes": ("1", "2", "3")}, {"labels": [0, 1, 2, 0], "split": [2, 1, 1]}),
    ("papers100M's labels", {"a.npz": npz(edge_index=[[0, 1], [1, 2]],
     node_feat=np.eye(3)),
     "labels.npz": npz(node_label=[[1.0], [np.nan], [0.0]])}, {},
     {"labels": [1, -1, 0], "unlabelled": 1}),
    ("fewer edges than stated", {"e.txt": "# Nodes: 4 Edges: 3\n0 1\n1 2\n"}, UP,
     {"notes": "3 edges are stated, 2 are there"}),
]  # fmt: skip


@pytest.mark.parametrize("case", READ, ids=[case[0] for case in READ])
def test_what_one_reading_fits_is_read_and_said(
    case: tuple[str, Files, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    _, files, options, facts = case
    seen = summary(bring(files, options, tmp_path))

    note = facts.get("notes", "")
    assert note in seen["notes"]
    wanted = {**facts, "notes": seen["notes"]}
    assert {name: seen[name] for name in wanted} == wanted


#: What, file, text, what the one line says.
REFUSED = [
    ("a second header", "e.csv", "source,target\nlong,long\n0,1\n1,2\n", "line 2 is"),
    ("one of words", "e.csv", "source,target\nstring,string\na,b\nb,c\n", ("second he"
     "ader")),
    ("fewer names than columns", "e.csv", "source target\n1 2 3 4\n2 3 4 5\n",
     "has 2 names of columns and 4 columns"),
    ("thousands", "features.csv", "id;f\n0;1,500\n1;2,500\n2;1,750\n3;9,500\n",
     "decimals or thousands"),
    ("truth values for ids", "splits.json", '{"tr": [true, 0], "va": [2]}',
     "tr has true: a list of ids is needed"),
    ("a vertex twice", "features.json", '{"0": [1], "1": [2], "1": [3]}',
     'features.json: .*"1" is there twice'),
    ("GML on several lines", "g.gml", "# x\ngraph\n[\n  node\n  [\n    id 0\n", ("rea"
     "d_gml")),
    ("Pajek", "p.net", "*Network x\n*Vertices 2\n1 a\n2 b\n*Edges\n1 2\n", ("read_paj"
     "ek")),
    ("DIMACS", "g.col", "c x\np col 3 2\ne 1 2\ne 2 3\n", "awk .*e.*print"),
    ("UCINET", "g.dl", "dl n=2 format=edgelist1\ndata:\n1 2\n", "igraph.*'dl'"),
    ("TGF", "g.tgf", "1 a\n2 b\n#\n1 2\n", "is TGF.*sed"),
    ("N-Triples", "g.nt", "<http://a> <http://b> <http://c> .\n", "is triples of RDF"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_no_graph_is_named(case: tuple[str, ...], tmp_path: Path) -> None:
    _, name, text, problem = case
    files: Files = (
        {name: text}
        if name[:6] not in {"featur", "splits"}
        else {"e.txt": PATH, name: text}
    )
    with pytest.raises(DataError, match=problem) as caught:
        bring(files, UP, tmp_path)
    assert "\n" not in str(caught.value)
