"""Files that lie, never end, or are damaged: one error of ours, soon."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError, ScenarioError
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.readers.array_files import npz_source
from emu.graph_data.readers.ogb_folder import ogb_source
from emu.host.input_file import read_arrays
from emu.runs.array_files import read_realization
from emu.scenario import find_errors
from emu.scenario.scenario_file import load_lab
from emu.testing import two_machine_example
from tests import draws
from tools.attacks.loaders import library_loaders, loaders

FILES = {"npz": 200, "profile": 300, "workload": 200, "run": 80, "scenario": 30}
FILES |= {"trace": 160, "lab": 160, "sweep": 200, "text": 300, "torch": 150, "dgl": 160}
FILES |= {"topology": 300, "ogb": 150, "packed_ogb": 120, "prepared": 120, "plan": 200}
FILES |= {"hosts": 200}
#: Of these a mutant takes 40 ms of CPU and more: half as many in `make test`.
DEAR = ("topology", "scenario")
LIBRARIES = ("torch", "dgl")
REFUSALS = {"DataError", "ScenarioError"}
KINDS_OF_LABELS = ("<i8", ">i4", "u1", "<u8", "<f4", "<f8", "<U3")


@pytest.mark.usefixtures("short_draws")
@pytest.mark.parametrize("name", list(FILES))
def test_mutated_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Anything that is no error of ours ends the test, with the file in ``keep``."""
    if name in LIBRARIES:
        pytest.importorskip(name)
    is_of_library = name in LIBRARIES
    known = library_loaders(tmp_path) if is_of_library else loaders(tmp_path, name)
    loader, rng = known[name], np.random.default_rng(19)
    for path in loader.good:  # damage to what is refused anyway would show nothing
        loader.read(path)
    outcomes: set[str] = set()
    is_halved = name in DEAR and draws.SHARE > 1
    tried = draws.count(FILES[name] // (2 if is_halved else 1), dear=True)
    for number in range(FILES[name]):
        is_seen = "read" in outcomes and outcomes & REFUSALS
        if is_seen and number >= tried:
            break
        outcomes.add(loader.try_one(rng))

    assert "read" in outcomes
    assert outcomes & REFUSALS


def member(shape: tuple[int, ...], body: bytes) -> bytes:
    """Return an npy file that claims a shape."""
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + body


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return path


def taken(what: Any) -> int:
    """Return by how many bytes the peak of memory grew."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="claims"):
        what()
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


@pytest.mark.parametrize("shape", [(1 << 32,), (1 << 16, 1 << 16), (1 << 62, 4), (3,)])
def test_shape_that_lies_takes_no_memory(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    path = archive(tmp_path / "a.npz", times=member(shape, bytes(16)))

    assert taken(lambda: read_arrays(path, ["times"])) < 1 << 24


def test_archive_that_unpacks_to_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    """Of old 980 kB inflated to 7.45 GiB; 200 MB show the same."""
    count = 25_000_000
    path = archive(tmp_path / "a.npz", times=member((count,), bytes(8 * count)))

    assert path.stat().st_size < 1 << 20
    assert taken(lambda: read_arrays(path, ["times"])) < 1 << 24


def test_graph_of_absurd_width_is_refused(tmp_path: Path) -> None:
    good = loaders(tmp_path, "npz")["npz"].folder / "graph.npz"
    with np.load(good) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["attr_shape"] = np.array([8, 1 << 40])
    np.savez(good, allow_pickle=False, **arrays)
    with pytest.raises(DataError, match="features of length"):
        npz_source(good, seed=0).load()


def test_every_type_of_whole_numbers_is_read_by_the_same_code(tmp_path: Path) -> None:
    """Big-endian ones were refused."""
    good = loaders(tmp_path, "npz")["npz"].folder / "graph.npz"
    with np.load(good) as file:
        arrays = {name: file[name] for name in file.files}
    expected = npz_source(good, seed=0).load().structure
    for kind in ("<i8", ">i8", "<u8", "<i2", "u1", ">u4"):
        ends = arrays["adj_indices"].astype(kind)
        np.savez(good, allow_pickle=False, **{**arrays, "adj_indices": ends})
        found = npz_source(good, seed=0).load().structure
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.indptr, expected.indptr)


def ogb(folder: Path) -> Path:
    """Return a good graph of two vertices, in OGB's text files."""
    files = {
        "raw/edge": "0,1\n",
        "raw/node-feat": "1,2\n3,4\n",
        "raw/node-label": "0\n1\n",
        "split/x/train": "0\n",
        "split/x/valid": "1\n",
        "split/x/test": "",
    }
    for name, text in files.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.mark.parametrize("kind", KINDS_OF_LABELS)
def test_labels_of_any_kind_are_read(kind: str, tmp_path: Path) -> None:
    """Unsigned ones ended in an OverflowError."""
    good = loaders(tmp_path, "npz")["npz"].folder / "graph.npz"
    with np.load(good) as file:
        arrays = {name: file[name] for name in file.files}
    expected = npz_source(good, seed=0).load()
    np.savez(
        good, allow_pickle=False, **{**arrays, "labels": arrays["labels"].astype(kind)}
    )
    found = npz_source(good, seed=0).load()

    assert found.classes == expected.classes == 3
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize("ends", [(8, 4), (4, 8), (2, 4)])
def test_edges_with_one_end_are_refused(ends: tuple[int, int]) -> None:
    """The compiled loop would read beyond the shorter list."""
    sources, destinations = (np.zeros(count, np.int64) for count in ends)
    with pytest.raises(DataError, match="two lists of one length"):
        build_structure(sources, destinations, vertices=3, origin="x")


def test_text_that_inflates_takes_no_memory(tmp_path: Path) -> None:
    folder = ogb(tmp_path)
    with gzip.open(folder / "raw/node-feat.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"0," * (1 << 19))
    with pytest.raises(DataError, match="unpacks to a hundred times that"):
        ogb_source(folder).load()


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("raw/node-label", "0\n2000000000\n", "vertex 1 has label 2000000000"),
        ("raw/edge", "0,1,2\n", "a line is not src,dst"),
        ("raw/node-label", "0\n1.5\n", "vertex 1 has label 1.5"),
        ("raw/node-label", "0\n1e30\n", "vertex 1 has label 1e\\+30"),
        ("raw/node-label", "0\n-7\n", "vertex 1 has label -7"),
    ],
)
def test_graph_that_cannot_be_is_one_error(
    file: str, text: str, expected: str, tmp_path: Path
) -> None:
    folder = ogb(tmp_path)
    ogb_source(folder).load()
    (folder / f"{file}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=expected):
        ogb_source(folder).load()


def test_packed_member_that_lies_takes_no_memory(tmp_path: Path) -> None:
    folder = ogb(tmp_path)
    lie = member((1 << 40,), bytes(16))
    archive(folder / "raw/data.npz", edge_index=lie, node_feat=lie)
    np.savez_compressed(folder / "raw/node-label.npz", node_label=np.zeros((2, 1)))

    assert taken(lambda: ogb_source(folder).load()) < 1 << 24


@pytest.mark.parametrize(
    "topology",
    ["{dgx1: 1}", "[dgx1]", "7", "null", "no_such_box", "pipe", "sub", "{{a: b}: c}"],
)
def test_topology_that_is_none_is_one_error(topology: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub").mkdir()
    path = tmp_path / "a.yaml"
    path.write_text(f"cluster: {{topology: {topology}}}\njob: {{system: custom}}\n")
    with pytest.raises(ScenarioError) as caught:
        raise find_errors(path)[0]

    assert "damaged" not in str(caught.value)


def test_lab_file_of_any_shape_is_one_error(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("- 1", "3", "cluster: 7", "? [a]\n: b", "programs: []")
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        with pytest.raises(ScenarioError):
            load_lab(path)


def test_good_arrays_of_any_type_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {
        "a": rng.random((3, 4)),
        "b": rng.integers(0, 9, 5, dtype=np.int8),
        "c": np.array(7),
        "d": np.zeros((0, 3)),
        "e": np.asfortranarray(rng.random((5, 2))),
        "f": rng.random(4) > 0.5,
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", allow_pickle=False, **arrays)
        found = read_arrays(tmp_path / "a.npz", list(arrays))
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype


def test_pickled_objects_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.array([{}], dtype=object))
    with pytest.raises(DataError):
        read_arrays(tmp_path / "a.npz", ["a"])


def test_pipe_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    problem, _ = two_machine_example(1)
    with pytest.raises(DataError, match="no regular file"):
        read_realization(problem.job, pipe)
    with pytest.raises(DataError, match="no regular file"):
        npz_source(pipe, seed=0)
    folder = ogb(tmp_path / "ogb")
    os.mkfifo(folder / "raw/data.npz")
    os.mkfifo(folder / "raw/node-label.npz")
    with pytest.raises(DataError, match="no regular file"):
        ogb_source(folder).load()
    scenario = tmp_path / "pipe.yaml"
    os.mkfifo(scenario)
    with pytest.raises(ScenarioError, match="no regular file"):
        find_errors(scenario)


def keys(count: int) -> str:
    return "".join(f"key{n}: 1\n" for n in range(count))


#: Made when they are asked for: 200 MB, and 0.8 s in every worker.
ANYTHING = {
    "100,000 keys.yaml": lambda: keys(100_000),
    "8,000 keys.yaml": lambda: keys(8_000),
    "40,000 keys.json": lambda: json.dumps({f"key{n}": 1 for n in range(40_000)}),
    "long text.yaml": lambda: "name: " + "x" * 50_000_000,
    "long text.json": lambda: json.dumps({"name": "x" * 20_000_000}),
    "deep.yaml": lambda: "[" * 2000,
    "deep.json": lambda: "[" * 100_000,
    "wide.json": lambda: json.dumps({"cluster": [[]] * 400_000}),
    "machines.json": lambda: json.dumps(
        {
            "cluster": {"machines": [{"memroy": 1}] * 10_000},
            "job": {"system": "custom", "iterations": 1, "tasks": []},
        }
    ),
    "number.yaml": lambda: "name: " + "9" * 100_000,
    "aliases.yaml": lambda: (
        "a: &a [x, x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n"
            for n in range(20)
        )
    ),
}


def user_seconds() -> float:
    """Return what this process has computed, and those that it has waited for."""
    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(resource.getrusage(each).ru_utime for each in whose)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ANYTHING))
def test_validate_ends_soon_on_anything(name: str, tmp_path: Path) -> None:
    """In CPU time beside that of a good file: this host may be busy."""
    file = tmp_path / name
    file.write_text(ANYTHING[name]())
    before = user_seconds()
    ended = CliRunner().invoke(app, ["validate", str(file)])
    took = user_seconds() - before
    print(f"{name}: {took:.1f} s of CPU time")  # noqa: T201

    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)
    assert "Traceback" not in ended.stderr
    *alive, error = ended.stderr.splitlines()  # a busy host takes more than 10 s
    assert error.startswith("emu: ") or alive[-1].startswith("emu: ")
    assert took < 15
