"""Graphs of one's own: brought in whole, or refused with the line that is wrong."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typing_extensions import override

from emu.cli import app
from emu.errors import DataError
from emu.graph_data.dataset import open_columns, open_dataset
from emu.graph_data.imported import import_graph, imports_home
from emu.graph_data.readers import text_table
from emu.graph_data.readers.split_arrays import Choices
from emu.graph_data.readers.text_table import TableOptions
from emu.graph_data.sources import list_data
from tests.graph_data.imports import imported, neighbours

FILES = Path(__file__).parent / "files"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


PATH = [[1], [0, 2], [1, 3], [2]]
MADE_UP = {"feature_length": 3, "classes": 2}


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n1,2\n2,3\n",
        "0\t1\n1\t2\n2\t3",
        "0 1\n1  2\n2 3\n",
        "source,destination\n0,1\n1,2\n2,3\n",
        "# from\tto\n0\t1\n1\t2\n# half way\n2\t3\n",
        "% a comment\n\n0;1;0.5\n1;2;1.5\n2;3;7\n",
        "\ufeff0, 1\n1, 2\n2, 3\n",
        "0,1\r\n1,2\r\n1,1\r\n2,3\r\n0,1\r\n1,0\r\n",
        "10,20\n20,300\n300,4000\n",
    ],
)
def test_edge_lists_of_any_kind_are_read(text: str, tmp_path: Path) -> None:
    """Header, comments, blanks, weights, loops, duplicates, gaps in the ids."""
    assert neighbours(imported(written(tmp_path / "e.txt", text), **MADE_UP)) == PATH


def test_a_packed_edge_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"0,1\n1,2\n2,3\n"))

    assert neighbours(imported(tmp_path / "e.csv.gz", **MADE_UP)) == PATH


def test_an_edge_list_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"0,1\n" * 6_000_000, 1))

    with pytest.raises(DataError, match="unpacks to a hundred times that"):
        imported(tmp_path / "e.csv.gz", **MADE_UP)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("7", "line 4 is '7', it needs 2 columns, as in the lines before"),
        ("7,x", "line 4 is '7 x'"),
        ("7,1.5", "line 4 is '7 1.5'"),
        ("7,-1", "line 4 is '7 -1'"),
        ("7,8,9", "line 4 is '7 8 9'.*2 columns, as in the lines before"),
        ("\x1b[31m,1", r"line 4 is '\\\\x1b\[31m 1'"),
    ],
)
def test_a_bad_line_is_named(line: str, found: str, tmp_path: Path) -> None:
    text = f"a,b\n0,1\n# comment\n{line}\n1,2\n"

    with pytest.raises(DataError, match=found):
        imported(written(tmp_path / "e.csv", text), **MADE_UP)


@pytest.mark.parametrize("line", ["0.5,1", "nan,2", "-1,7"])
def test_a_first_line_of_numbers_is_no_header(line: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1 is .* two vertex ids"):
        imported(written(tmp_path / "e.csv", f"{line}\n1,2\n"), **MADE_UP)


def test_features_and_labels_come_from_files_of_their_own(tmp_path: Path) -> None:
    """Rows say how many vertices there are: the last one has no edge."""
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n")
    rows = written(tmp_path / "x.csv", "a,b\n1,2\n3,4\n5,6\n7,8\n")
    words = written(tmp_path / "y.txt", "cat\ndog\n\ncat\n")
    dataset = imported(edges, features=rows, labels=words)

    assert neighbours(dataset) == [[1], [0, 2], [1], []]
    assert dataset.labels.tolist() == [0, 1, -1, 0]
    assert dataset.classes == 2
    assert sorted([*dataset.train, *dataset.valid, *dataset.test]) == [0, 1, 3]
    np.testing.assert_array_equal(dataset.gather(np.array([3, 0])), [[7, 8], [1, 2]])


@pytest.mark.parametrize(
    ("features", "labels", "problem"),
    [
        ("0.5,2\n3\n5,6\n", "0\n1\n0\n", "line 2 is '3', it needs 2 columns"),
        ("0.5,2\n3,nan\n5,6\n", "0\n1\n0\n", "line 2 is '3 nan', it needs 2 numbers"),
        ("1\n2\n3\n4\n", "0\n1\n0\n", "3 labels in y.csv and 4 features in x.csv"),
        ("1\n2\n", "0\n1\n", "an edge names 2: give them a column of ids"),
        ("1\n2\n3\n", "0\n1\n-7\n", "vertex 2 has label -7.0"),
        ("1\n2\n3\n", "0\n1\n0.5\n", "vertex 2 has label 0.5"),
    ],
)
def test_what_does_not_fit_is_said(
    features: str, labels: str, problem: str, tmp_path: Path
) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n")
    rows, words = tmp_path / "x.csv", tmp_path / "y.csv"
    with pytest.raises(DataError, match=problem):
        imported(edges, features=written(rows, features), labels=written(words, labels))
    assert not list(imports_home().glob("*[0-9]"))


def test_what_is_missing_is_said_with_the_option(tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n")

    with pytest.raises(DataError, match=r"--features.*--feature-length 100"):
        imported(edges)
    with pytest.raises(DataError, match=r"--labels.*--classes 10"):
        imported(edges, feature_length=4)


X, Y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 1, 0])
LAYOUTS: dict[str, dict[str, Any]] = {
    "edge_index": {"edge_index": [[0, 1, 2], [1, 2, 3]], "x": X, "y": Y},
    "edges": {"edges": [[0, 1], [1, 2], [2, 3]], "node_features": X, "node_labels": Y},
    "adj": {
        "adj_indptr": [0, 1, 2, 3, 3],
        "adj_indices": [1, 2, 3],
        "adj_shape": [4, 4],
        "features": X,
        "labels": Y,
    },
}
MASKS = {
    "train_mask": [True, True, False, False],
    "val_mask": [False, False, True, False],
    "test_mask": [False, False, False, True],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("plural", [False, True])
def test_npz_files_of_the_common_layouts_are_read(
    layout: str, *, plural: bool, tmp_path: Path
) -> None:
    """The plural is that of several splits in one file, of which one is chosen."""
    masks = {
        f"{name}s" if plural else name: [mask, mask[::-1]] if plural else mask
        for name, mask in MASKS.items()
    }
    np.savez(tmp_path / "g.npz", allow_pickle=False, **LAYOUTS[layout], **masks)
    if plural:
        with pytest.raises(DataError, match=r"holds 2 splits: --split-number 0 to"):
            imported(tmp_path / "g.npz")
    choices = Choices(split_number=0 if plural else None)
    dataset = imported(tmp_path / "g.npz", choices=choices)

    assert neighbours(dataset) == PATH
    assert dataset.labels.tolist() == Y.tolist()
    assert [*map(list, (dataset.train, dataset.valid, dataset.test))] == [
        [0, 1],
        [2],
        [3],
    ]
    np.testing.assert_array_equal(dataset.gather(np.arange(4)), X)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"train_mask": [True] * 3}, "the train mask has 3 entries for 4 vertices"),
        ({"train_mask": [False] * 4}, "train split is empty"),
        ({"train_mask": [1, 1, 0, 0]}, r"index array or mask\? --split-arrays ids or"),
        ({"train_idx": [0]}, "states the train split twice: train_idx"),
        ({"x": X[:3]}, "has 4 labels and features of 3 vertices"),
        ({"x": X.astype(str)}, "a number per vertex and feature"),
        ({"y": np.ones((4, 9))}, r"shape .4, 9. .several classes per vertex.*--labels"),
        ({"y": [0, 1, 1, 9999]}, "vertex 3 has label 9999"),
        ({"edge_index": [[0.5], [1]]}, "edges are float64, whole numbers"),
        ({"edge_index": [0, 1, 2]}, "it needs two ends per edge"),
        ({"edge_index": [[0, 4], [1, 2]]}, "edge 1 names vertex 4"),
    ],
)
def test_arrays_that_do_not_fit_are_named(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    np.savez(
        tmp_path / "g.npz",
        allow_pickle=False,
        **(LAYOUTS["edge_index"] | MASKS | changes),
    )

    with pytest.raises(DataError, match=problem):
        imported(tmp_path / "g.npz")


def test_a_graph_of_pytorch_geometric_is_read_without_it() -> None:
    """torch_geometric 2.8.1 has written the file; no code of it is here."""
    dataset = imported(FILES / "pytorch_geometric.pt")

    assert neighbours(dataset) == PATH
    assert dataset.train.tolist() == [0, 1]
    np.testing.assert_array_equal(dataset.gather(np.array([3])), [[9, 10, 11]])


class Harmful:
    """Writes a file as soon as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_in_a_torch_file_is_executed(tmp_path: Path) -> None:
    import torch

    trap = tmp_path / "trap"
    content = {"edge_index": torch.tensor([[0], [1]]), "x": Harmful(trap)}
    torch.save(content, tmp_path / "g.pt")
    (tmp_path / "h.pt").write_bytes(pickle.dumps(Harmful(trap), 2))
    for name in ("g.pt", "h.pt"):
        with pytest.raises(DataError, match="which is never loaded"):
            imported(tmp_path / name)
    assert not trap.exists()


SAID = (
    "mine: 4 vertices, 4 edges (both directions), features of length 4, 2 classes, "
    "split at random"
)


def emu(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


NEXT = (
    "next: job.dataset: mine in a scenario of system: dgtp; "
    "emu init demo copies one to edit"
)


def test_the_commands_bring_in_list_and_clear(tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n7,7\n")
    options = ("--feature-length", "4", "--classes", "2")
    done = emu("import", str(edges), "-o", "mine", *options)
    assert done.output.splitlines() == [
        SAID,
        "  ends: columns 1, 2",
        "  features of length 4 are made up",
        "  labels of 2 classes are made up",
        "  edges: 3 given; dropped: 1 self-loops, 0 doubles (in either direction)",
        "  vertices: 4; 1 without an edge",
        "  classes: 0: 2, 1: 2",
        "  split: drawn at random, 60 : 20 : 20 of what has a label",
        "  ids: 0 to 7, by vertex in mine/ids.npy",
        NEXT,
    ]
    again = emu("import", str(edges), "-o", "mine", *options)
    assert "emu data clear mine" in again.output
    assert again.exit_code == 3
    open_dataset("mine", parts=2, partitioner="hash")
    listed = json.loads(emu("data", "--json", "-").output)
    kinds = {row["kind"]: row for row in listed if row["name"] == "mine"}
    assert kinds["imported"]["origin"].startswith(str(edges))
    assert kinds["prepared"]["origin"] == "2 parts by hash, seed 0"

    assert "freed" in emu("data", "clear").output
    assert "prepared" not in emu("data").output
    assert emu("data", "clear", "mine").exit_code == 0
    with pytest.raises(DataError, match="no data set is called mine: looked for mine/"):
        open_dataset("mine")
    assert emu("data", "clear", "mine").exit_code == 3
    assert emu("data", "list", "mine").exit_code == 2


def test_a_vertex_of_the_split_without_a_label_is_named_at_once(
    tmp_path: Path,
) -> None:
    """The import used to succeed, and every command to refuse the graph."""
    file = tmp_path / "g.npz"
    np.savez(
        file,
        edge_index=np.array([[0, 1, 2], [1, 2, 3]]),
        x=np.ones((4, 2)),
        y=np.array([0, 1, -1, -1]),
        train_idx=np.array([0]),
        test_idx=np.array([1, 2, 3]),
    )
    complaint = "vertex 2 is in the test split and has no label, as is another: take"
    with pytest.raises(DataError, match=complaint):
        import_graph(file, "g")
    assert not (imports_home() / "g").exists()


def test_an_older_import_of_such_a_split_is_still_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports of 0.1.0 did not look for labels: they stay in the cache."""
    file = tmp_path / "g.npz"
    np.savez(file, **LAYOUTS["edge_index"], train_idx=np.array([0, 3]))
    with monkeypatch.context() as context:
        check = "emu.graph_data.readers.split_arrays.check_labels"
        context.setattr(check, lambda *_, **__: None)
        import_graph(file, "g", labels=written(tmp_path / "y.csv", "id,y\n0,0\n1,1\n"))

    complaint = "vertex 3 is in the train split and has no label"
    with pytest.raises(DataError, match=complaint):
        open_dataset("g")


def test_labels_are_refused_by_their_file_and_the_id(tmp_path: Path) -> None:
    """Errors used to name the edges, or a number that no file has."""
    edges = written(tmp_path / "e.csv", "src,dst\na,b\nb,c\nc,d\n")
    split = written(tmp_path / "s.csv", "id,split\na,train\nb,valid\nd,test\n")
    some = written(tmp_path / "y.csv", "id,y\na,0\nb,1\nc,1\n")
    with pytest.raises(DataError, match="vertex d is in the test split") as caught:
        import_graph(edges, "g", feature_length=2, labels=some, splits=split)
    assert caught.value.path == str(some)

    broken = written(tmp_path / "z.csv", "id,y\na,0\nb,1.5\nc,1\nd,1\n")
    with pytest.raises(DataError, match=r"vertex b has label 1\.5"):
        import_graph(edges, "g", feature_length=2, labels=broken)


@pytest.mark.parametrize("label", ["1e400", "inf"])
@pytest.mark.parametrize("last", [0, 2])
def test_an_infinite_label_is_no_class(last: int, label: str, tmp_path: Path) -> None:
    """With a class that stands twice, and with classes that are all distinct."""
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n2,3\n")
    rows = f"id,y\n0,0\n1,{label}\n2,1\n3,{last}\n"
    labels = written(tmp_path / "y.csv", rows)
    with pytest.raises(DataError, match="vertex 1 has label inf, classes count from 0"):
        import_graph(edges, "g", feature_length=2, labels=labels)


@pytest.mark.filterwarnings("error")
def test_a_number_that_cannot_be_is_one_of_its_own_file(tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n2,3\n")
    labels = written(tmp_path / "y.csv", "id,y\n0,1.5\n1,2\n2,2\n3,0\n")
    complaint = "vertex 0 has label 1.5, classes count from 0"
    with pytest.raises(DataError, match=complaint) as caught:
        import_graph(edges, "g", feature_length=2, labels=labels)
    assert caught.value.path == str(labels)

    features = written(tmp_path / "x.csv", "id,x\n0,1e400\n1,2\n2,2\n3,0\n")
    with pytest.raises(DataError, match="line 2 is '0 1e400'") as caught:
        import_graph(edges, "g", features=features, classes=2)
    assert caught.value.path == str(features)


@pytest.mark.filterwarnings("error")
def test_a_feature_beyond_float32_is_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "g.npz"
    features = np.array([[1.0], [1e300]])
    np.savez(file, edge_index=np.array([[0], [1]]), x=features, y=np.array([0, 1]))
    complaint = "feature 0 of vertex 1 is inf: a finite number that float32 holds"
    with pytest.raises(DataError, match=complaint):
        import_graph(file, "g")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("data", "found"),
    [([1.0, 1e300, 1.0], "inf"), ([1.0, np.inf, -np.inf], "nan")],
)
def test_a_sparse_feature_beyond_float32_is_named_in_one_line(
    data: list[float], found: str, tmp_path: Path
) -> None:
    """Two entries of one place are added: infinities of both signs as well."""
    file = tmp_path / "g.npz"
    np.savez(
        file,
        edge_index=np.array([[0], [1]]),
        attr_shape=np.array([2, 1]),
        attr_indptr=np.array([0, 1, 3]),
        attr_indices=np.array([0, 0, 0]),
        attr_data=np.array(data),
        y=np.array([0, 1]),
    )
    complaint = f"feature 0 of vertex 1 is {found}: a finite number that float32 holds"
    with pytest.raises(DataError, match=complaint):
        import_graph(file, "g")


@pytest.mark.filterwarnings("error")
def test_a_feature_of_a_table_beyond_float32_is_one_of_its_line(tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "src,dst\na,b\nb,c\n")
    features = written(tmp_path / "x.csv", "id,x\na,1e39\nb,1\nc,2\n")
    complaint = "line 2 is 'a 1e39', it needs 1 number that float32 holds"
    with pytest.raises(DataError, match=complaint):
        import_graph(edges, "g", features=features, classes=2)


def test_self_loops_and_doubles_of_arrays_are_counted(tmp_path: Path) -> None:
    """Also where arrays come in both directions; the summary is there in JSON."""
    ends = [[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 2, 3, 2, 1]]
    np.savez(tmp_path / "g.npz", edge_index=ends, x=X, y=[2, 0, 0, -1])
    done = emu("import", str(tmp_path / "g.npz"), "-o", "loops", "--json", "-")
    facts = json.loads(done.output)

    assert (facts["edges_given"], facts["self_loops"], facts["doubles"]) == (8, 2, 3)
    assert facts["class_sizes"] == [2, 0, 1]
    assert (facts["unlabelled"], facts["isolated"], facts["edges"]) == (1, 0, 6)
    assert facts["split_origin"] == "drawn at random"


def test_labels_of_an_option_go_before_those_of_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **LAYOUTS["edge_index"])
    labels = written(tmp_path / "y.csv", "id,y\n3,2\n2,0\n1,0\n0,1\n")
    kept = import_graph(tmp_path / "g.npz", "both", labels=labels)

    assert kept.array("labels").tolist() == [1, 0, 0, 2]
    assert "labels of g.npz itself" in kept.facts["left_out"]
    with pytest.raises(DataError, match="leave --columns"):
        import_graph(tmp_path / "g.npz", "x", table=TableOptions(columns=("a", "b")))


def test_a_long_import_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever more seldom: at 10 s, 25 s, 47 s of a clock that a read takes on by 6 s."""
    clock = itertools.count(0, 6)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    path = written(tmp_path / "e.csv", "0,1\n" * 60_000)
    told: list[str] = []
    with text_table.open_lines(path, told.append) as lines:
        assert sum(1 for _ in lines) == 60_000

    assert 2 <= len(told) <= 5
    assert all(line.startswith("e.csv: 0 MB read") for line in told)


@pytest.mark.parametrize("name", ["a/b", "products-like", "", "[x]"])
def test_names_lead_out_of_no_folder(name: str, tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n")

    assert emu("import", str(edges), "-o", name, "--classes", "2").exit_code == 3


def test_a_damaged_import_says_what_to_do(tmp_path: Path) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n")
    import_graph(edges, "mine", feature_length=2, classes=2)
    (imports_home() / "mine" / "features.npy").write_bytes(b"")

    with pytest.raises(DataError, match="import the graph again"):
        open_dataset("mine")
    assert "damaged" in emu("data").output


@pytest.mark.parametrize("blocks", [[4], [1, 3], [2, 1, 1]])
def test_columns_of_features_are_listed_and_cleared(
    tmp_path: Path, blocks: list[int]
) -> None:
    edges = written(tmp_path / "e.csv", "0,1\n1,2\n")
    options = ("--feature-length", "4", "--classes", "2")
    assert emu("import", str(edges), "-o", "in-columns", *options).exit_code == 0
    cut = open_columns(open_dataset("in-columns"), blocks).folder

    parts = "1 part" if len(blocks) == 1 else f"{len(blocks)} parts"
    assert f"by columns, {parts}" in " ".join(
        kept.origin for kept in list_data() if kept.name == "in-columns"
    )
    assert emu("data", "clear", "in-columns").exit_code == 0
    assert not cut.exists()
