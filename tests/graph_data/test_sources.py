"""Graph files: read as published, refused by name when something is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data.dataset import open_dataset
from emu.graph_data.sources import list_data


def neighbours(dataset: Any) -> list[list[int]]:
    indptr, indices = dataset.structure.indptr, dataset.structure.indices
    return [indices[indptr[v] : indptr[v + 1]].tolist() for v in range(len(indptr) - 1)]


def test_npz_is_symmetrised_without_loops_and_duplicates(npz: Any) -> None:
    npz(adj_indptr=[0, 2, 4, 5, 6, 7], adj_indices=[1, 1, 0, 2, 2, 4, 4])
    dataset = open_dataset("tiny", parts=2, partitioner="hash")

    assert neighbours(dataset) == [[1], [0, 2], [1], [4], [3]]
    assert dataset.labels.tolist() == [0, 1, 1, 0, 2]
    assert (dataset.vertices, dataset.edges, dataset.classes) == (5, 6, 3)
    expected = [[3, 4, 0], [0, 1, 0], [0, 0, 2], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(dataset.gather(np.arange(5)), expected)


def test_rows_are_normalised_on_request(npz: Any) -> None:
    npz(attr_data=np.array([3, 4, 1, 2, 1, 0], np.float32))
    rows = open_dataset("tiny", normalise=True).gather(np.arange(5))

    np.testing.assert_allclose(rows[0], [0.6, 0.8, 0], rtol=1e-6)
    np.testing.assert_array_equal(rows[4], 0)  # an empty row stays empty


def test_partitions_hold_every_row_once(npz: Any) -> None:
    npz()
    dataset = open_dataset("tiny", parts=3, partitioner="hash")
    rows = np.concatenate([dataset.features(part) for part in range(3)])
    order = np.argsort(dataset.owner, kind="stable")

    np.testing.assert_array_equal(rows, dataset.gather(order))


def test_the_split_is_whole_and_seeded(npz: Any) -> None:
    npz()
    splits = []
    for seed in (0, 0, 1, 2, 3):
        dataset = open_dataset("tiny", seed=seed)
        parts = dataset.train, dataset.valid, dataset.test
        assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3, 4]
        splits.append(tuple(dataset.train.tolist()))

    assert splits[0] == splits[1]
    assert len(set(splits)) > 1


def test_one_of_several_splits_is_chosen_by_number(npz: Any) -> None:
    masks = np.eye(5, dtype=bool)
    npz(train_masks=masks[:2], val_masks=masks[1:3], test_masks=masks[3:5])

    chosen = [open_dataset("tiny", split=number) for number in (0, 1)]

    assert [one.train.tolist() for one in chosen] == [[0], [1]]
    assert [one.test.tolist() for one in chosen] == [[3], [4]]


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        (None, "holds 2 splits: job.dataset.split: 0 to job.dataset.split: 1"),
        (2, "holds 2 splits: job.dataset.split: 0 to job.dataset.split: 1"),
    ],
)
def test_an_open_split_is_asked_for_by_its_key(
    npz: Any, split: int | None, problem: str
) -> None:
    npz(train_masks=np.eye(5, dtype=bool)[:2])

    with pytest.raises(DataError, match=problem):
        open_dataset("tiny", split=split)


def test_a_graph_with_one_split_takes_no_number() -> None:
    with pytest.raises(DataError, match=r"has one split, found 1: leave job.dataset"):
        open_dataset("products-like", scale=0.001, split=1)


def test_a_graph_that_is_not_made_up_has_no_scale(npz: Any) -> None:
    npz()
    with pytest.raises(
        DataError, match=r"is not made up, found scale 0.5: leave scale"
    ):
        open_dataset("tiny", scale=0.5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"attr_data": np.array([1, 1, 1, np.nan, 1, 1], np.float32)},
            "feature 2 of vertex 2 is nan",
        ),
        ({"adj_indices": [1, 2, 9, 4]}, "edge 2 names vertex 9"),
        ({"adj_indices": [1, 2, -1, 4]}, "edge 2 names vertex -1"),
        ({"attr_indices": [0, 1, 1, 2, 0, 3]}, "leave the 3 columns at entry 5"),
        ({"adj_indptr": [0, 1, 2, 3, 4, 3]}, "adj_indptr does not fit"),
        ({"adj_indptr": np.array([0, 9, 2, 3, 4, 4], "u8")}, "adj_indptr does not fit"),
        ({"attr_indptr": np.array([0, 9, 3, 4, 5, 6], "u4")}, "attr_indptr does not"),
        ({"adj_indptr": [0.0, 1.0, 2.0, 3.0, 4.0, 4.0]}, "adj_indptr does not fit"),
        ({"labels": [0, 1]}, "2 labels and features of 5"),
        ({"labels": [0, 1, np.inf, 0, 2]}, "label"),
    ],
)
def test_wrong_values_are_named(
    npz: Any, changes: dict[str, Any], complaint: str, cache: Path
) -> None:
    path = npz(**changes)

    with pytest.raises(DataError, match=complaint) as caught:
        open_dataset("tiny")
    assert caught.value.path == str(path)
    assert not list(cache.glob("tiny-*[0-9a-f]"))  # nothing half-made is left


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_npz_is_named(npz: Any, damage: str) -> None:
    path = npz()
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    if damage != "flip":
        content = content[: len(content) // 2 if damage == "truncate" else 0]
    path.write_bytes(content)

    with pytest.raises(DataError, match="is damaged") as caught:
        open_dataset("tiny")
    assert caught.value.path == str(path)


def test_a_missing_key_is_named(npz: Any) -> None:
    path = npz()
    np.savez(path, labels=[0])

    with pytest.raises(DataError, match="holds no adj_indices"):
        open_dataset("tiny")


def test_objects_are_never_unpickled(npz: Any) -> None:
    npz(labels=np.array([{}, {}, {}, {}, {}], object))

    with pytest.raises(DataError, match=r"labels cannot be read: .* never unpickled"):
        open_dataset("tiny")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("amazon_computers", "emu data fetch amazon_computers"),
        ("ogbn-products", "ogb.stanford.edu"),
    ],
)
def test_a_missing_data_set_says_where_to_get_it(
    name: str, where: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=where) as caught:
        open_dataset(name, root=str(tmp_path))
    assert "EMU_DATA" in str(caught.value)


def test_one_of_several_npz_files_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("a.npz", "b.npz"):
        (tmp_path / "mine" / name).touch()
    with pytest.raises(DataError, match=r"mine: leave one of a\.npz, b\.npz"):
        open_dataset("mine", root=str(tmp_path))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"products-like.*amazon_photo"):
        open_dataset("producst", root=str(tmp_path))


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def ogb_split(folder: Path, **parts: list[int]) -> None:
    for part in ("train", "valid", "test"):
        ids = parts.get(part, [])
        write_lines(folder / "split/time" / f"{part}.csv.gz", [str(i) for i in ids])


def ogbn_products(root: Path) -> Path:
    folder = root / "ogbn_products"
    write_lines(folder / "raw/edge.csv.gz", ["0,1", "1,2", "2,3"])
    write_lines(folder / "raw/node-feat.csv.gz", ["1,2.5", "0,1", "3,-1e-3", "0,0"])
    write_lines(folder / "raw/node-label.csv.gz", ["0", "2", "1", "0"])
    ogb_split(folder, train=[0, 2], valid=[1], test=[3])
    return folder


def ogbn_papers(root: Path, *, compressed: bool) -> Path:
    folder = root / "ogbn_papers100M"
    (folder / "raw").mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    save(
        folder / "raw/data.npz",
        edge_index=np.array([[0, 1, 2], [1, 2, 3]]),
        node_feat=np.arange(8, dtype=np.float32).reshape(4, 2),
        node_year=np.zeros(4),
    )
    label = np.array([[0], [np.nan], [1], [np.nan]], np.float32)
    save(folder / "raw/node-label.npz", node_label=label)
    ogb_split(folder, train=[0], valid=[2])
    return folder


def test_ogbn_products_is_read_from_its_text_files(tmp_path: Path) -> None:
    ogbn_products(tmp_path)
    dataset = open_dataset("ogbn-products", root=str(tmp_path))

    assert neighbours(dataset) == [[1], [0, 2], [1, 3], [2]]
    assert dataset.labels.tolist() == [0, 2, 1, 0]
    assert dataset.train.tolist() == [0, 2]
    expected = np.array([[1, 2.5], [0, 1], [3, -1e-3], [0, 0]], np.float32)
    np.testing.assert_array_equal(dataset.gather(np.arange(4)), expected)


@pytest.mark.parametrize("compressed", [True, False])
def test_ogbn_papers_is_read_from_its_npz(tmp_path: Path, *, compressed: bool) -> None:
    ogbn_papers(tmp_path, compressed=compressed)
    dataset = open_dataset("ogbn-papers100M", root=str(tmp_path))

    assert neighbours(dataset) == [[1], [0, 2], [1, 3], [2]]  # symmetrised
    assert dataset.labels.tolist() == [0, -1, 1, -1]
    assert dataset.classes == 2
    np.testing.assert_array_equal(dataset.gather(np.array([3])), [[6, 7]])


def test_a_stored_member_is_mapped_not_read(tmp_path: Path) -> None:
    from emu.graph_data.readers.ogb_folder import _member

    folder = ogbn_papers(tmp_path, compressed=False)

    assert isinstance(_member(folder / "raw/data.npz", "node_feat").base, np.memmap)


@pytest.mark.parametrize(
    ("file", "lines", "complaint"),
    [
        ("raw/edge.csv.gz", ["0,1", "1,7"], "edge 1 names vertex 7"),
        ("raw/edge.csv.gz", ["0,1", "1,x"], "cannot be read"),
        ("raw/node-feat.csv.gz", ["1,2", "0,nan", "1,1", "0,0"], "feature 1 of v.* 1"),
        ("raw/node-feat.csv.gz", ["1,2"], "1 feature rows for 4"),
        ("split/time/valid.csv.gz", ["0", "44"], "line 2 names vertex 44"),
    ],
)
def test_wrong_lines_of_ogb_files_are_named(
    tmp_path: Path, file: str, lines: list[str], complaint: str
) -> None:
    folder = ogbn_products(tmp_path)
    write_lines(folder / file, lines)

    with pytest.raises(DataError, match=complaint) as caught:
        open_dataset("ogbn-products", root=str(tmp_path))
    assert str(folder) in caught.value.path


def test_parts_of_two_splits_are_not_mixed(tmp_path: Path) -> None:
    """The first split has no valid.csv.gz: that of the second holds its training."""
    folder = ogbn_products(tmp_path)
    for part, vertex in {"train": "1", "test": "3"}.items():
        write_lines(folder / f"split/random/{part}.csv.gz", [vertex])

    with pytest.raises(DataError, match=r"holds no split/random/valid\.csv\.gz"):
        open_dataset("ogbn-products", root=str(tmp_path))


def test_a_split_vertex_without_label_is_named(tmp_path: Path) -> None:
    folder = ogbn_papers(tmp_path, compressed=False)
    ogb_split(folder, train=[0], valid=[1], test=[2])

    complaint = "vertex 1 is in the valid split and has no label"
    with pytest.raises(DataError, match=complaint):
        open_dataset("ogbn-papers100M", root=str(tmp_path))


def test_a_truncated_ogb_file_is_named(tmp_path: Path) -> None:
    edges = ogbn_products(tmp_path) / "raw/edge.csv.gz"
    edges.write_bytes(edges.read_bytes()[:-9])

    with pytest.raises(DataError, match="cannot be read") as caught:
        open_dataset("ogbn-products", root=str(tmp_path))
    assert caught.value.path == str(edges)


def test_columns_are_cut_or_repeated() -> None:
    whole, short, long = (
        open_dataset("products-like", scale=0.001, feature_length=length)
        for length in (None, 7, 150)
    )
    vertices = np.array([5, 0, 17])
    rows = whole.gather(vertices)

    assert short == whole  # what is sampled does not depend on it
    np.testing.assert_array_equal(short.gather(vertices), rows[:, :7])
    expected = np.concatenate([rows, rows[:, :50]], axis=1)
    np.testing.assert_array_equal(long.gather(vertices), expected)
    np.testing.assert_array_equal(long.look_at(vertices), expected)


def test_folders_with_files_of_a_graph_are_listed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One as OGB publishes it, one with an array file; and three with neither."""
    monkeypatch.setenv("EMU_DATA", str(tmp_path))
    for name in ("ogbn_x/raw", "tiny", "empty", "notes", ".coming/raw"):
        (tmp_path / name).mkdir(parents=True)
    np.savez(tmp_path / "tiny" / "tiny.npz", labels=[1, 2])
    (tmp_path / "notes" / "read.me").write_text("no graph")

    files = {kept.name: kept.origin for kept in list_data() if kept.kind == "file"}

    folders = {"ogbn-x": tmp_path / "ogbn_x", "tiny": tmp_path / "tiny"}
    assert {name: files.get(name) for name in folders} == {
        name: str(folder) for name, folder in folders.items()
    }
    assert not {*files} & {"empty", "notes", ".coming"}
