"""Files as public sites and programs write them: right numbers, or one line.

Each case lists the files, the options, and what must come of it. A case that cannot be
read must end in one line that says what decides.
"""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.imported import import_graph, imports_home
from emu.graph_data.readers.split_arrays import Choices
from emu.graph_data.readers.text_table import TableOptions

pytestmark = pytest.mark.usefixtures("read_here")

Files = dict[str, "str | bytes | Callable[[], bytes]"]
PATH = "0 1\n1 2\n2 3\n"
GAPS = "10,20\n20,40\n40,30\n"


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def pt(content: Any) -> Callable[[], bytes]:
    """Return what writes the content that ``content(torch)`` is."""

    def write() -> bytes:
        torch = pytest.importorskip("torch")
        file = io.BytesIO()
        torch.save(content(torch), file)
        return file.getvalue()

    return write


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


def bring(files: Files, options: dict[str, Any], folder: Path) -> Any:
    """Import the first of some files; those called features, labels, splits beside."""
    beside: dict[str, Any] = {}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content() if callable(content) else content
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        kind = Path(name).parts[0].split(".")[0]
        if kind in {"features", "labels", "splits"}:
            beside[kind] = folder / Path(name).parts[0]
    first = next(iter(files))
    path = folder / first.split("/")[0]
    parts: dict[type, dict[str, Any]] = {}
    for record in (TableOptions, Choices):
        names = [name for name in options if name in record.__dataclass_fields__]
        parts[record] = {name: options[name] for name in names}
    rest = {
        name: value
        for name, value in options.items()
        if not any(name in own for own in parts.values())
    }
    return import_graph(
        path,
        "own",
        table=TableOptions(**parts[TableOptions]),
        choices=Choices(**parts[Choices]),
        **beside,
        **rest,
    )


def summary(kept: Any) -> dict[str, Any]:
    facts = kept.facts
    return {
        "vertices": facts["vertices"],
        "edges": facts["edges"] // 2,
        "loops": facts["self_loops"],
        "doubles": facts["doubles"],
        "classes": facts["class_sizes"],
        "names": facts["class_names"],
        "unlabelled": facts["unlabelled"],
        "split": [facts[part] for part in ("train", "valid", "test")],
        "labels": kept.array("labels").tolist(),
        "rows": kept.array("features").tolist(),
        "ids": [*map(str, kept.array("ids").tolist())] if kept.holds("ids") else None,
        "notes": "; ".join(
            [*facts["notes"], *facts["left_out"], facts["split_origin"]]
        ),
    }


FILES = Path(__file__).parent / "files"
X = np.array([[1.0, 0], [0, 2], [0, 0], [3, 4]])
ENDS = [[0, 1, 2], [1, 2, 3]]
WHOLE: dict[str, Any] = {"edge_index": ENDS, "x": X, "y": [0, 1, 1, 0]}


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def scipy_npz(layout: str) -> bytes:
    sparse = pytest.importorskip("scipy.sparse")
    file = io.BytesIO()
    matrix = sparse.coo_matrix((np.ones(3), ENDS), shape=(4, 4)).asformat(layout)
    sparse.save_npz(file, matrix)
    return file.getvalue()


def tensors(torch: Any) -> dict[str, Any]:
    return {name: torch.tensor(np.array(array)) for name, array in WHOLE.items()}


def hetero(torch: Any) -> dict[Any, Any]:
    """Return what HeteroData.to_dict() returns of 3 papers and 2 authors."""
    return {
        "paper": {"x": torch.tensor(X[:3]), "y": torch.tensor([0, 1, 1])},
        "author": {"num_nodes": 2},
        ("paper", "cites", "paper"): {"edge_index": torch.tensor([[0, 1], [1, 2]])},
        ("author", "writes", "paper"): {"edge_index": torch.tensor([[0, 1], [0, 2]])},
    }


def dgl_bin() -> bytes:
    dgl = pytest.importorskip("dgl")
    import torch

    graph = dgl.graph(tuple(torch.tensor(ENDS)), num_nodes=4)
    graph.ndata["feat"] = torch.tensor(X)
    graph.ndata["label"] = torch.tensor(WHOLE["y"])
    for part, ids in (("train", [0, 3]), ("val", [1]), ("test", [2])):
        graph.ndata[f"{part}_mask"] = torch.zeros(4, dtype=torch.bool)
        graph.ndata[f"{part}_mask"][ids] = True
    with tempfile.TemporaryDirectory() as folder:
        dgl.save_graphs(f"{folder}/a.bin", [graph])
        return (Path(folder) / "a.bin").read_bytes()


def ogb(labels: str) -> Files:
    """Return a folder as ogbn-products and ogbn-arxiv unpack to."""
    tables = {
        "raw/edge": "0,1\n1,2\n2,3\n",
        "raw/node-feat": "1,0\n0,2\n0,0\n3,4\n",
        "raw/node-label": labels,
        "raw/num-node-list": "4\n",
        "raw/num-edge-list": "3\n",
        "split/time/train": "3\n0\n",
        "split/time/valid": "2\n",
        "split/time/test": "2\n" if "nan" in labels else "1\n",
    }
    if "nan" in labels:
        del tables["split/time/valid"]
        tables["split/time/valid"] = ""
    return {f"ogbn_own/{name}.csv.gz": packed(text) for name, text in tables.items()}


UP: dict[str, Any] = {"feature_length": 2, "classes": 2}
FEATURES: dict[str, Any] = {"feature_length": 2}
#: What, files, options, facts.
READ: list[tuple[str, Files, dict[str, Any], dict[str, Any]]] = [
    # Lists of edges
    ("SNAP ungraph", {"com-dblp.ungraph.txt": "# Undirected graph: x\n# Nodes: 4 Edges:"
     " 3\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t4\n"}, UP, {"edges": 3, "vertices": 4
     }),
    ("SNAP with communities as classes", {"e.txt": PATH, "labels.txt":
     "3\t1\n1\t0\n0\t1\n2\t0\n"}, FEATURES, {"labels": [1, 0, 0, 1]}),
    ("facebook_combined", {"f.txt": "0 1\n0 2\n1 2\n"}, UP, {"edges": 3}),
    ("soc-sign-bitcoin", {"s.csv": "6,2,4,1289241911.72836\n6,5,2,1289241941.53378\n"
     "1,15,1,1289243140.39049\n"}, UP, {"vertices": 5, "edges": 3}),
    ("email-Eu temporal", {"t.txt": "582 364 0\n168 472 2797\n168 912 3304\n"}, UP,
     {"vertices": 5, "edges": 3}),
    ("MovieLens 1M", {"ratings.dat": "1::1193::5::978300760\n2::1193::3::978302109\n"
     "2::3::3::978301968\n"}, {**UP, "columns": ("1", "2"), "bipartite": True},
     {"vertices": 4, "edges": 3}),
    ("MovieLens 100K", {"u.data": "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"
     "22\t377\t1\t878887116\n"}, {**UP, "columns": ("1", "2"), "bipartite": True},
     {"vertices": 6, "edges": 3}),
    ("MovieLens 25M", {"ratings.csv": "userId,movieId,rating,timestamp\n1,296,5.0,11\n"
     "1,306,3.5,12\n2,296,5,13\n"}, UP, {"vertices": 4, "edges": 3}),
    ("Amazon reviews", {"r.csv": "A3AF8FFZAZYNE5,0000000078,5.0,1092182400\n"
     "AH2L9G3DQHHAJ,0000000116,4.0,1019865600\n"}, {**UP, "words": True,
     "columns": ("1", "2"), "bipartite": True}, {"vertices": 4, "edges": 2}),
    ("Reddit of JODIE", {"reddit.csv": "user_id,item_id,timestamp,state_label,comma_"
     "separated_list_of_features\n0,0,0.0,0,-0.1,0.2\n1,0,6.7,0,-0.3,0.5\n"}, UP,
     {"vertices": 3, "edges": 2}),
    ("KONECT asym positive", {"out.x": "% asym positive\n% 3 4 4\n1 2 1\n2 4 3\n3 3 1\n"
     }, UP, {"vertices": 4, "edges": 2, "loops": 1}),
    ("KONECT sym", {"out.y": "% sym unweighted\n1 2 \n2 3 \n"}, UP, {"edges": 2}),
    ("KONECT bip weighted", {"out.z": "% bip weighted\n% 3 2 3\n1 1 5 874\n2 1 3 875\n"
     "2 3 3 876\n"}, UP, {"vertices": 5, "edges": 3}),
    ("network repository csv", {"fb.edges": "1,2\n2,3\n"}, UP, {"edges": 2}),
    ("Latin-1 header", {"l.csv": "poids,source,cible\n1,é,ü\n2,ü,ö\n".encode(
     "latin-1")}, {**UP, "columns": ("source", "cible"), "bipartite": False},
     {"vertices": 3, "ids": ["é", "ö", "ü"]}),
    ("BOM, CRLF, trailing blanks", {"b.csv": "\ufeffsource,target \r\n5,7 \r\n7,9\r\n"
     "\r\n"}, UP, {"ids": ["5", "7", "9"], "edges": 2}),
    ("blanks before and behind", {"b.txt": "  0 1  \n 1   2\t\n\n"}, UP, {"edges": 2}),
    ("doubles and loops", {"d.csv": "0,1\n1,0\n0,1\n2,2\n1,2\n"}, UP,
     {"edges": 2, "loops": 1, "doubles": 2}),
    ("edges in quotes", {"q.csv": '"src","dst"\n"a, b","c"\n"c","d ""x"""\n'}, UP,
     {"ids": ["a, b", "c", 'd "x"']}),
    ("pandas with index and time", {"p.csv": ",ts,u,i\n0,1.5,3,9\n1,2.5,4,9\n"}, UP,
     {"ids": ["3", "4", "9"], "edges": 2}),
    ("time, weight, ends", {"p.csv": "timestamp,w,from_id,to_id\n9,1,3,9\n8,2,4,9\n"},
     UP, {"ids": ["3", "4", "9"]}),
    ("ends turned round", {"p.csv": "target;weight;source\n9;1;3\n9;2;4\n"}, UP,
     {"ids": ["3", "4", "9"]}),
    ("ids beyond 2^63", {"h.csv": "source,target\n9223372036854775808,1\n1,"
     "18446744073709551617\n"}, UP, {"vertices": 3}),
    ("several spaces and #", {"h.txt": "0   1 # first\n1   2\n"}, UP, {"edges": 2}),
    ("ids that would be vertices of METIS", {"h.txt": f"{2**53} {2**52}\n{2**53} 1\n"},
     UP, {"vertices": 3, "edges": 2}),
    ("as many classes as are asked for", {"h.txt": PATH}, {**UP, "classes": 4},
     {"classes": [1, 1, 1, 1]}),
    ("gz by content", {"h.txt": packed(PATH)}, UP, {"edges": 3}),
    ("triples with names", {"t.tsv": "head\trelation\ttail\na\tx\tb\nb\ty\tc\n"}, UP,
     {"ids": ["a", "b", "c"], "edges": 2}),
    ("triples by option", {"t.tsv": "a\tx\tb\nb\ty\tc\n"}, {**UP, "header": False,
     "columns": ("1", "3")}, {"ids": ["a", "b", "c"]}),
    ("an index that pandas has named", {"t.csv": "Unnamed: 0,source,target\n0,5,7\n"
     "1,7,9\n"}, UP, {"ids": ["5", "7", "9"]}),
    ("the number of vertices by option", {"e.txt": "3\n0 1\n1 2\n"},
     {**UP, "header": True}, {"vertices": 3, "edges": 2}),
    ("one-hot labels", {"a.npz": npz(**{**WHOLE, "y": np.eye(3)[[1, 2, 2, 1]]})}, {},
     {"labels": [1, 2, 2, 1], "classes": [0, 2, 2]}),
    ("letters", {"e.csv": "a,b\nb,c\nc,a\n"}, UP, {"vertices": 3, "edges": 3}),
    ("other letters", {"e.csv": "u,v\nv,w\nw,u\n"}, UP, {"vertices": 3, "edges": 3}),
    ("commas at the ends", {"t.csv": "0,1,\n1,2,\n0,3,\n"}, UP, {"edges": 3}),
    ("as many edges as columns", {"e.txt": "1 2 .5\n2 3 .25\n3 1 .75\n"}, UP,
     {"vertices": 3, "edges": 3}),
    # METIS and MatrixMarket
    ("METIS 0", {"a.graph": "% c\n4 3\n2\n1 3\n2 4\n3\n"}, UP, {"edges": 3}),
    ("METIS 1", {"a.graph": "3 2 1\n2 7\n1 7 3 8\n2 8\n"}, UP, {"edges": 2}),
    ("METIS 001", {"a.graph": "3 2 001\n2 7\n1 7 3 8\n2 8\n"}, UP, {"edges": 2}),
    ("METIS 10", {"a.graph": "3 2 10\n9 2\n9 1 3\n9 2\n"}, UP, {"edges": 2}),
    ("METIS 011", {"a.graph": "3 2 011\n9 2 7\n9 1 7 3 8\n9 2 8\n"}, UP, {"edges": 2}),
    ("METIS 100", {"a.graph": "3 2 100\n4 2\n4 1 3\n4 2\n"}, UP, {"edges": 2}),
    ("METIS 110 2", {"a.graph": "3 2 110 2\n4 1 1 2\n4 1 1 1 3\n4 1 1 2\n"}, UP,
     {"edges": 2}),
    ("METIS 111", {"a.graph": "3 2 111\n4 1 2 7\n4 1 1 7 3 8\n4 1 2 8\n"}, UP,
     {"edges": 2}),
    ("METIS, labels by its ids", {"a.graph": "3 2\n2\n1 3\n2\n", "labels.csv":
     "id,label\n3,1\n1,0\n2,1\n"}, FEATURES, {"labels": [0, 1, 1]}),
    ("mtx pattern symmetric", {"a.mtx": "%%MatrixMarket matrix coordinate pattern "
     "symmetric\n% x\n5 5 4\n2 1\n3 1\n4 2\n5 5\n"}, UP,
     {"vertices": 5, "edges": 3, "loops": 1}),
    ("mtx real", {"a.mtx": "%%MatrixMarket matrix coordinate real general\n3 3 2\n"
     "1 2 1e-3\n2 3 -.5\n"}, UP, {"edges": 2}),
    ("mtx rectangular, gz", {"a.mtx.gz": packed("%%MatrixMarket matrix coordinate "
     "integer general\n2 3 3\n1 1 1\n2 2 1\n2 3 1\n")}, UP, {"vertices": 5}),
    ("mtx Hermitian", {"a.mtx": "%%MatrixMarket matrix coordinate complex hermitian\n"
     "3 3 1\n2 1 1 0\n"}, UP, {"vertices": 3, "edges": 1}),
    # Tables beside
    ("labels blank", {"e.txt": PATH, "labels.txt": "3 0\n2 6\n1 6\n0 0\n"}, FEATURES,
     {"labels": [0, 1, 1, 0]}),
    ("labels from 1", {"e.txt": PATH, "labels.txt": "1\n2\n2\n3\n"}, FEATURES,
     {"labels": [0, 1, 1, 2], "classes": [1, 2, 1]}),
    ("labels from 1 by id", {"e.txt": PATH, "labels.csv": "id,label\n3,1\n0,2\n1,2\n"
     "2,1\n"}, FEATURES, {"labels": [1, 1, 0, 0], "classes": [2, 2]}),
    ("negative labels", {"e.txt": PATH, "labels.csv": "id,y\n3,-1\n0,1\n1,0\n2,0\n"},
     FEATURES, {"labels": [1, 0, 0, -1], "unlabelled": 1}),
    ("labels of floats", {"e.txt": PATH, "labels.csv": "0.0\n1.0\nnan\n1.0\n"},
     FEATURES, {"labels": [0, 1, -1, 1]}),
    ("labels in npy", {"e.txt": PATH, "labels.npy": lambda: npy([1, 0, 1, 0])},
     FEATURES, {"labels": [1, 0, 1, 0]}),
    ("labels with underscores", {"e.txt": PATH, "labels.csv": "0_1\n1_0\n10\n0_1\n"},
     FEATURES, {"labels": [0, 2, 1, 0]}),
    ("# and braces in quotes", {"e.txt": PATH, "labels.csv":
     '0,"a #1"\n1,"a #2" # x\n2,"a {1}"\n3,"a #1"\n'}, FEATURES,
     {"labels": [0, 1, 2, 0]}),
    ("labels by an index of pandas", {"e.txt": PATH, "labels.csv":
     ",label\n3,a\n2,b\n1,b\n0,b\n"}, {**FEATURES, "ids": True},
     {"labels": [1, 1, 1, 0]}),
    ("labels from 1 in npy", {"e.txt": PATH, "labels.npy": lambda: npy([1, 2, 2, 1])},
     FEATURES, {"labels": [0, 1, 1, 0]}),
    ("features by id, quoted", {"e.csv": GAPS, "features.csv": '"id","f1","f2"\n'
     '"40","4","4"\n"10","1","1"\n"20","2","2"\n"30","3","3"\n'}, {"classes": 2},
     {"rows": [[1, 1], [2, 2], [3, 3], [4, 4]]}),
    ("features of pandas, numbers as names", {"e.txt": PATH, "features.csv":
     ",0,1\n0,7,4.5\n1,8,1\n2,9,3\n3,9,3\n"}, {"classes": 2},
     {"rows": [[7, 4.5], [8, 1], [9, 3], [9, 3]]}),
    ("features with tabs and CRLF", {"e.csv": GAPS, "features.tsv": "node\tx\r\n40\t4"
     "\r\n10\t1\r\n30\t3\r\n20\t2\r\n"}, {"classes": 2},
     {"rows": [[1], [2], [3], [4]]}),
    ("features in npy", {"e.txt": PATH, "features.npy": lambda: npy(np.eye(4)[:, :2])},
     {"classes": 2}, {"rows": [[1, 0], [0, 1], [0, 0], [0, 0]]}),
    ("split", {"e.csv": GAPS, "splits.csv": "split;id\ntrain;40\nval;10\ntest;20\n"
     "train;30\n"}, UP, {"split": [2, 1, 1]}),
    ("split of numbers in lists", {"e.csv": GAPS, "splits/train.csv": "40\n10\n",
     "splits/valid.csv": "20\n", "splits/test.csv": "30\n"}, UP, {"split": [2, 1, 1]}),
    ("a split in npz", {"e.csv": GAPS, "splits.npz": npz(train_idx=[40, 10],
     val_idx=[20])}, UP, {"split": [2, 1, 0]}),
    ("ids beside a split of lists", {"e.csv": GAPS, "splits.npz": npz(train_idx=[40,
     10], ids=[7, 8])}, UP, {"split": [2, 0, 0], "notes": "1 array: ids"}),
    ("split packed", {"e.csv": GAPS, "splits/train.csv.gz": packed("40\n10\n"),
     "splits/valid.csv.gz": packed("20\n"), "splits/test.csv.gz": packed("30\n")}, UP,
     {"split": [2, 1, 1]}),
    ("cora of LINQS", {"cora.cites": "35\t1033\n1033\t40\n", "features.content":
     "40\t0\t1\tGA\n35\t1\t0\tNN\n1033\t1\t1\tGA\n", "labels.content":
     "40\t0\t1\tGA\n35\t1\t0\tNN\n1033\t1\t1\tGA\n"}, {},
     {"rows": [[1, 0], [0, 1], [1, 1]], "labels": [1, 0, 0]}),
    ("geom-gcn", {"out1_graph_edges.txt": "node_id\tnode_id\n0\t1\n1\t2\n"}, UP,
     {"vertices": 3, "edges": 2}),
    ("Elliptic", {"edges.csv": "txId1,txId2\n230425980,5530458\n5530458,232022460\n",
     "labels.csv": "txId,class\n230425980,unknown\n5530458,2\n232022460,1\n"}, FEATURES,
     {"labels": [1, -1, 0], "ids": ["5530458", "230425980", "232022460"]}),
    # Files of arrays, and folders
    ("npz of scipy, csr", {"a.npz": lambda: scipy_npz("csr")}, UP, {"edges": 3}),
    ("npz of scipy, csc", {"a.npz": lambda: scipy_npz("csc")}, UP, {"edges": 3}),
    ("npz of scipy, coo", {"a.npz": lambda: scipy_npz("coo")}, UP, {"edges": 3}),
    ("npz of Shchur", {"a.npz": npz(adj_data=[1.0, 1], adj_indices=[1, 2], adj_indptr=
     [0, 1, 2, 2], adj_shape=[3, 3], attr_data=[5.0, 7], attr_indices=[1, 0],
     attr_indptr=[0, 1, 2, 2], attr_shape=[3, 2], labels=[0, 1, 0])}, {},
     {"edges": 2, "rows": [[0, 5], [7, 0], [0, 0]]}),
    ("npz of OGB's arrays", {"a.npz": npz(edge_index=ENDS, node_feat=X, num_nodes=4,
     node_label=[[0], [1], [1], [0]], train_idx=[2, 0], valid_idx=[1], test_idx=[3])},
     {}, {"labels": [0, 1, 1, 0], "split": [2, 1, 1]}),
    ("npz of PyG's names", {"a.npz": npz(**WHOLE, train_mask=[True, True, False, False],
     val_mask=[False, False, True, False], test_mask=[False, False, False, True])}, {},
     {"edges": 3, "split": [2, 1, 1]}),
    ("npz of one's own", {"a.npz": npz(src=[0, 1, 2], dst=[1, 2, 3], features=X,
     labels=[1, 0, 1, 0])}, {}, {"edges": 3, "labels": [1, 0, 1, 0]}),
    ("npz, labels from 1", {"a.npz": npz(**{**WHOLE, "y": [1, 2, 2, 3]})}, {},
     {"labels": [0, 1, 1, 2], "classes": [1, 2, 1]}),
    ("npz, years as labels", {"a.npz": npz(**{**WHOLE, "y": [2010, 2020, 2020, 2010]})},
     {}, {"labels": [0, 1, 1, 0], "classes": [2, 2]}),
    ("npz, words as labels", {"a.npz": npz(**{**WHOLE, "y": ["b", "a", "a", ""]})}, {},
     {"labels": [1, 0, 0, -1]}),
    ("npz, unlabelled", {"a.npz": npz(**{**WHOLE, "y": [-1, 1, 0, -1]})}, {},
     {"labels": [-1, 1, 0, -1], "unlabelled": 2}),
    ("npz, --labels beside its own", {"a.npz": npz(**WHOLE), "labels.csv": "3,1\n2,1\n"
     "1,0\n0,1\n"}, {}, {"labels": [1, 0, 1, 1], "notes": "labels of a.npz itself"}),
    ("npz, --splits beside its own", {"a.npz": npz(**WHOLE, train_idx=[0]),
     "splits.csv": "id,split\n3,train\n2,train\n1,val\n0,test\n"}, {},
     {"split": [2, 1, 1], "notes": "split of a.npz itself"}),
    ("adjacency of 0 and 1", {"a.npy": lambda: npy(np.eye(4, k=1))}, UP, {"edges": 3}),
    ("npy of edges", {"a.npy": lambda: npy(np.array(ENDS).T)}, UP, {"edges": 3}),
    ("dict of tensors", {"a.pt": pt(tensors)}, {}, {"edges": 3, "rows": X.tolist()}),
    ("self-loops in pt", {"a.pt": pt(lambda t: {**tensors(t), "edge_index": t.tensor(
     [[0, 1, 2, 2], [1, 1, 2, 3]])})}, {}, {"edges": 2, "loops": 2}),
    ("labels from 1 in pt", {"a.pt": pt(lambda t: {**tensors(t), "y": t.tensor(
     [[1], [2], [2], [1]])})}, {}, {"labels": [0, 1, 1, 0]}),
    ("sparse x in pt", {"a.pt": pt(lambda t: {**tensors(t), "x": t.tensor(X)
     .to_sparse()})}, {}, {"rows": X.tolist()}),
    ("sparse x that names an entry twice", {"a.pt": pt(lambda t: {**tensors(t), "x":
     t.sparse_coo_tensor([[3, 0, 3], [1, 0, 1]], [2.0, 1, 3], (4, 2))})}, {},
     {"rows": [[1, 0], [0, 0], [0, 0], [0, 5]]}),
    ("sparse rows x in pt", {"a.pt": pt(lambda t: {**tensors(t), "x": t.tensor(X)
     .to_sparse_csr()})}, {}, {"rows": X.tolist()}),
    ("a list of graphs", {"a.pt": pt(lambda t: [tensors(t), {**tensors(t), "y":
     t.tensor([1, 1, 0, 0])}])}, {"graph": 1}, {"labels": [1, 1, 0, 0]}),
    ("graphs of PyG in one, with num_nodes", {"a.pt": pt(lambda t: ({"edge_index":
     t.tensor([[0, 0, 1], [1, 1, 2]]), "num_nodes": 9, "_num_nodes": [4, 5]},
     {"edge_index": t.tensor([0, 1, 3])}))}, {**UP, "graph": 1},
     {"vertices": 5, "edges": 2}),
    ("split_idx in pt", {"a.pt": pt(lambda t: {**tensors(t), "split_idx": {"train":
     t.tensor([3, 0]), "valid": t.tensor([1]), "test": t.tensor([2])}})}, {},
     {"split": [2, 1, 1], "notes": "train, valid, test of the file"}),
    ("a Data by pickle of PyG", {"pytorch_geometric.pt": (FILES / "pytorch_geometric.pt"
     ).read_bytes()}, {}, {"loops": 0}),
    ("HeteroData", {"a.pt": pt(hetero)}, {"flatten": True},
     {"vertices": 5, "edges": 4, "labels": [0, 1, 1, -1, -1]}),
    ("HeteroData, years as labels", {"a.pt": pt(lambda t: {**hetero(t), "paper":
     {"x": t.tensor(X[:3]), "y": t.tensor([2020, 2010, -1])}})}, {"flatten": True},
     {"labels": [1, 0, -1, -1, -1], "names": ["2010", "2020"]}),
    ("HeteroData, a relation", {"a.pt": pt(hetero)},
     {"relation": ("paper", "cites", "paper")}, {"vertices": 3, "edges": 2}),
    ("bin of dgl", {"a.bin": dgl_bin}, {},
     {"edges": 3, "labels": [0, 1, 1, 0], "split": [2, 1, 1]}),
    ("OGB", {**ogb("1\n0\n1\n0\n")}, {},
     {"edges": 3, "labels": [1, 0, 1, 0], "split": [2, 1, 1], "notes": "split/time"}),
    ("OGB, labels missing", {**ogb("1\nnan\n1\n0\n")}, {}, {"unlabelled": 1}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("case", READ, ids=[case[0] for case in READ])
def test_a_file_of_this_kind_comes_right(
    case: tuple[str, Files, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    _, files, options, facts = case
    seen = summary(bring(files, options, tmp_path))

    note = facts.get("notes", "")
    assert note in seen["notes"]
    assert {name: seen[name] for name in facts} == {
        **facts,
        **({"notes": seen["notes"]} if note else {}),
    }


METADATA = """dataset_name: own
graph:
  nodes: [{num: 4}]
  edges: [{format: csv, path: edges.csv}]
"""
#: What, files, options, what the one line says.
REFUSED: list[tuple[str, Files, dict[str, Any], str]] = [
    ("MovieLens 1M", {"ratings.dat": "1::1193::5::97\n2::1::3::98\n"}, UP,
     "--bipartite;.*--no-bipartite"),
    ("MovieLens 100K", {"u.data": "196\t242\t3\t881\n186\t196\t3\t891\n"},
     UP, "--bipartite;.*--no-bipartite"),
    ("MovieLens small without names", {"ratings.csv": "1,1,4.0,96\n1,3,4.0,97\n"}, UP,
     "--bipartite;.*--no-bipartite"),
    ("labels with null", {"e.txt": PATH, "labels.json": "[0, 1, null, 1]"},
     {"feature_length": 2}, "labels are no numbers or words: None"),
    ("Planetoid", {"ind.cora.graph": b"\x80\x02ccollections\ndefaultdict\nq\x01."}, UP,
     "is a pickle.* np.savez"),
    ("Parquet", {"e.parquet": b"PAR1\x15\x04\x15\n\x00PAR1"}, UP, "Parquet.*csv"),
    ("Parquet of features", {"e.txt": PATH, "features.parquet": b"PAR1\x15\x04"}, UP,
     "is a table of Parquet.*csv"),
    ("Feather", {"e.feather": b"ARROW1\0\0\xff\xff"}, UP, "is a table of Arrow.*csv"),
    ("GraphML", {"g.graphml": "<?xml version='1.0'?>\n<graphml></graphml>"}, UP,
     "is GraphML"),
    ("GEXF", {"g.gexf": '<gexf xmlns="http://gexf.net/1.2">\n</gexf>'}, UP, "is GEXF"),
    ("GML", {"g.gml": 'Creator "x"\ngraph\n[\n  node\n  [ id 0 ]\n]\n'}, UP, "is GML"),
    ("Pajek", {"g.net": "*Vertices 2\n1 a\n*Arcs\n1 2\n"}, UP, "is Pajek"),
    ("HDF5", {"g.h5": b"\x89HDF\r\n\x1a\n\0\0"}, UP, "is HDF5"),
    ("MATLAB", {"g.mat": b"MATLAB 5.0 MAT-file, Platform"}, UP, "of MATLAB"),
    ("an archive", {"g.zip": b"PK\x03\x04\x14\0"}, UP, "is a packed archive .zip"),
    ("a tar", {"g.tar.gz": gzip.compress(b"a/edge.csv\0" + bytes(246) +
     b"ustar\x0000" + bytes(400))}, UP, "is a tar .*unpack"),
    ("GraphBolt", {"own/metadata.yaml": METADATA, "own/edges.csv": PATH}, UP,
     "is a data set of GraphBolt.*--features"),
    ("PyG's folder", {"Cora/raw/ind.cora.x": b"\x80", "Cora/processed/data.pt": ""},
     UP, "processed/"),
    ("a folder of none of these", {"own/a.txt": PATH}, UP, "is neither a folder of"),
    ("a mask of another length", {"a.npz": npz(**WHOLE, train_mask=[True] * 3)}, {},
     "the train mask has 3 entries for 4 vertices"),
    ("a mask of another length in pt", {"a.pt": pt(lambda t: {**tensors(t),
     "train_mask": t.ones(5, dtype=t.bool)})}, {}, "5 entries for 4 vertices"),
    ("an integer mask", {"a.npz": npz(**WHOLE, train_mask=[1, 1, 0, 0])}, {},
     "--split-arrays ids or --split-arrays masks"),
    ("a vertex twice", {"a.npz": npz(**WHOLE, train_idx=[1, 1])}, {}, "vertex 1 twice"),
    ("a vertex in two parts", {"a.npz": npz(**WHOLE, train_idx=[1], val_idx=[1])}, {},
     "vertex 1 is in the train and in the valid split"),
    ("a split table that names one twice", {"e.csv": GAPS, "splits.csv": "id,split\n"
     "10,train\n20,test\n10,val\n"}, UP, "names vertex 10 2 times"),
    ("lists that name one twice", {"e.csv": GAPS, "splits/train.txt": "10\n20\n10\n"},
     UP, "names vertex 10 2 times"),
    ("a split of strangers", {"e.csv": GAPS, "splits.csv": "id,split\n11,train\n"}, UP,
     "names no vertex that has an edge"),
    ("a list of graphs", {"a.pt": pt(lambda t: [tensors(t)] * 2)}, {},
     "holds 2 graphs: --graph 0 to --graph 1"),
    ("a graph beyond", {"a.pt": pt(lambda t: [tensors(t)] * 2)}, {"graph": 2},
     "--graph 0 to --graph 1"),
    ("HeteroData", {"a.pt": pt(hetero)}, {}, "--flatten.*--relation paper,cites,paper"),
    ("two types by a relation", {"a.pt": pt(hetero)},
     {"relation": ("author", "writes", "paper")}, "--flatten"),
    ("many labels per vertex", {"a.npz": npz(**{**WHOLE, "y": np.ones((4, 3), int)})},
     {}, "several classes per vertex.*--labels"),
    ("no features", {"a.npz": npz(edge_index=ENDS, y=[0, 1, 1, 0])}, {},
     "--features.*--feature-length"),
    ("no labels", {"a.npz": npz(edge_index=ENDS, x=X)}, {}, "--labels.*--classes"),
    ("objects in npz", {"a.npz": npz(**{**WHOLE, "y": np.array([None] * 4)})}, {},
     "y cannot be read"),
    ("a rectangular csr", {"a.npz": npz(indptr=[0, 1, 2], indices=[0, 2], data=[1, 1],
     shape=[2, 3], format=b"csr")}, UP, "joins two kinds"),
    ("labels by words of another file", {"e.csv": GAPS, "labels.csv": "id,label\na,1\n"
     "b,1\n"}, FEATURES, "which is not in the graph|no vertex that has an edge"),
    ("labels of every vertex", {"e.txt": PATH, "labels.csv": "id,name\n0,a\n1,b\n2,c\n"
     "3,d\n"}, FEATURES, "--label-column"),
    ("features of another length", {"e.txt": PATH, "features.csv": "a,b\n1,2\n3,4\n5"},
     UP, "line 4 is .5."),
    ("features lack a vertex", {"e.csv": GAPS, "features.csv": "id,f\n10,1\n20,2\n"
     "30,3\n"}, UP, "has no features of vertex 40"),
    ("features too few", {"e.txt": PATH, "features.npy": lambda: npy(X[:3])}, UP,
     "3 rows in order.*--ids"),
    ("labels below a word", {"e.txt": PATH, "labels.txt": "venue\nA\nB\nB\nA\n"},
     FEATURES, "names of columns, 'venue': .*write label"),
    ("labels below two words", {"e.csv": "source,target\na,b\nb,c\n", "labels.csv":
     "blogger,venue\na,A\nb,B\nc,B\n"}, FEATURES, "names of columns, 'blogger venue'"),
    ("features below numbers of columns", {"e.txt": PATH, "features.csv":
     "0,1,2\n.5,1,1\n1,1,2\n1,1,3\n1,1,4\n"}, UP, "numbers of columns, or write 0.0"),
    ("NaN in features", {"e.txt": PATH, "features.csv": "1\n2\nnan\n4\n"}, UP,
     "line 3 is 'nan'"),
    ("METIS whose counts are wrong", {"a.graph": "4 5\n2\n1 3\n2 4\n3\n"}, UP,
     "is no METIS: .*stand for 5 edges"),
    ("METIS with fmt 2", {"a.graph": "3 2 2\n2\n1 3\n2\n"}, UP, "is no METIS: fmt"),
    ("METIS of no vertices", {"a.graph": "0 0\n"}, UP,
     "is no METIS: the first line states 0 vertices"),
    ("mtx of two sizes", {"a.mtx": "%%MatrixMarket matrix coordinate pattern general\n"
     "2 2\n1 2\n"}, UP, "states '2 2'; rows, columns and entries are needed"),
    ("mtx of four sizes", {"a.mtx": "%%MatrixMarket matrix coordinate pattern general\n"
     "2 2 1 1\n1 2\n"}, UP, "states '2 2 1 1'; rows, columns and entries are needed"),
    ("a symmetric matrix of numbers", {"e.txt": "0 1 0\n1 0 1\n0 1 0\n"}, UP,
     "may be a matrix of 3 rows, 3 columns"),
    ("mtx with an entry beyond", {"a.mtx": "%%MatrixMarket matrix coordinate pattern "
     "general\n2 2 1\n1 3\n"}, UP, "line 3 is '1 3', it needs row and column"),
    ("mtx, dense", {"a.mtx": "%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0"
     "\n"}, UP, "matrix coordinate is read"),
    ("triples of a knowledge graph", {"train.txt": "/m/1\tlives in\t/m/2\n/m/3\tlives "
     "in\t/m/2\n"}, {**UP, "header": False}, "--columns 1,2.*--columns 1,3"),
    ("relations between numbers", {"t.tsv": "0\tcites\t1\n1\tcites\t2\n"}, UP,
     "begins with '0 cites 1'.*--columns 1,3"),
    ("a kind before each edge", {"t.txt": "e 1 2\ne 2 3\ne 3 4\n"}, UP,
     "--columns 2,3"),
    ("lists of neighbours", {"g.adjlist": "1 2 3\n2 3\n3 4 5\n"}, UP,
     "line 2 is '2 3', it needs 3 columns, .*--neighbours"),
    ("more classes than vertices", {"e.txt": PATH}, {**UP, "classes": 5},
     "--classes exceeds 4 vertices"),
    ("DIMACS roads", {"r.gr": "c 9th DIMACS\np sp 3 2\na 1 2 5\na 2 3 5\n"}, UP,
     "is DIMACS"),
    ("a csv data set of dgl", {"own/meta.yaml": "a: 1", "own/edges_0.csv": PATH}, UP,
     "meta.yaml names, with --features"),
    ("a node-link graph", {"g.json": '{"nodes": [{"id": 0}], "links": []}'}, UP,
     "is a node-link graph"),
    ("a split of OGB by number", {**ogb("1\n0\n1\n0\n")}, {"split_number": 1},
     "the first is taken: leave --graph, --relation, --split-number"),
    ("ogbn-proteins", {**ogb("1,0\n0,1\n1,1\n0,0\n")}, {}, "several classes per"),
    ("users among words", {"e.csv": "user,user,user\n1,2,3\n2,3,4\n"}, UP, "--columns"),
    ("words that may be a header", {"e.csv": "from,to\nto,by\nby,from\n"}, UP,
     "a header or an edge.*--header;.*--no-header"),
    ("a weight between the ends", {"e.txt": "0 0.5 1\n1 0.7 2\n"}, UP, "--columns 1,3"),
    ("the number of vertices first", {"e.txt": "3\n0 1\n1 2\n"}, UP, "--header"),
    ("an edge cut short", {"e.csv": "source,target\n1,2\n3\n"}, UP, "line 3 is '3'"),
    ("ids below 0", {"e.csv": "source,target\n1,2\n-3,4\n"}, UP, "line 3 is '-3 4'"),
    ("no vertices", {"e.csv": ""}, UP, "holds no line"),
    ("nothing there", {"e.json": "{}"}, UP, "describes no partitions"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_a_file_of_this_kind_is_refused_in_one_line(
    case: tuple[str, Files, dict[str, Any], str], tmp_path: Path
) -> None:
    _, files, options, problem = case
    with pytest.raises(DataError, match=problem) as caught:
        bring(files, options, tmp_path)
    assert "\n" not in str(caught.value)
    assert "is damaged" not in str(caught.value)
    assert not (imports_home() / "own").exists()
