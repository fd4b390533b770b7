"""Public graphs fetched from a server on this computer: whole, or nothing."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typing_extensions import override

from emu.cli import app
from emu.errors import DataError
from emu.graph_data import fetch
from emu.graph_data.dataset import open_dataset
from emu.graph_data.fetch import PUBLIC_GRAPHS, PublicGraph, fetch_graph
from emu.graph_data.imported import imports_home


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; of ``cut.npz`` one byte less than it says."""

    @override
    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    @override
    def copyfile(self, source: Any, outputfile: Any) -> None:
        content = source.read()
        outputfile.write(content[:-1] if "cut" in self.path else content)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder where public graphs are looked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(fetch, "_ADDRESS", address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.delenv("EMU_DATA", raising=False)
        yield folder
        server.shutdown()
        thread.join()


def publish(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Publish a graph of 300 kB as cora."""
    file = folder / changes.get("file", "own.npz")
    np.savez(
        file,
        allow_pickle=False,
        edge_index=[[0, 1], [1, 2]],
        x=np.ones((3, 12_500)),
        y=[0, 1, 0],
    )
    content = file.read_bytes()
    stated = PublicGraph(
        file.name, len(content), hashlib.sha256(content).hexdigest()
    )._replace(**changes)
    monkeypatch.setitem(PUBLIC_GRAPHS, "cora", stated)


def test_what_was_fetched_is_found_listed_and_cleared(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(served, monkeypatch)
    told: list[int] = []
    path = fetch_graph("cora", told.append)

    assert path.read_bytes() == (served / "own.npz").read_bytes()
    assert len(told) > 2
    assert told[-1] == path.stat().st_size
    assert open_dataset("cora").vertices == 3
    run = CliRunner()
    again = run.invoke(app, ["data", "fetch", "cora"])
    assert (again.exit_code, "emu data clear cora" in again.output) == (3, True)
    assert "file" in run.invoke(app, ["data"]).output
    assert run.invoke(app, ["data", "clear", "cora"]).exit_code == 0
    done = run.invoke(app, ["data", "fetch", "cora"])
    assert "cora: 0.3 MB, for job.dataset: cora" in done.output


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sha256": "0" * 64}, "is not the file of SHA-256 0000000000000000.*nothing"),
        ({"size": 99}, "is longer than 99 bytes"),
        ({"file": "cut.npz"}, "cannot be fetched|is not the file of SHA-256"),
    ],
)
def test_another_file_is_refused_and_not_kept(
    served: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], problem: str
) -> None:
    publish(served, monkeypatch, **changes)

    with pytest.raises(DataError, match=problem):
        fetch_graph("cora", lambda _: None)
    assert not list(imports_home().iterdir())


def test_an_interrupted_download_leaves_nothing(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    publish(served, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fetch_graph("cora", interrupt)
    assert not list(imports_home().iterdir())


def test_without_a_server_or_a_file_there_is_one_line(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CliRunner().invoke(app, ["data", "fetch", "cora"])
    assert done.exit_code == 3
    assert "cora.npz: cannot be fetched: the server says 404" in done.output
    monkeypatch.setattr(fetch, "_ADDRESS", "http://127.0.0.1:9/")
    done = CliRunner().invoke(app, ["data", "fetch", "cora"])
    assert "cannot be fetched: there is no network" in done.output
    assert len(done.output.splitlines()) == 1
    for names, said in (([], "name one or more of amazon_"), (["x"], "x: cannot be")):
        assert said in CliRunner().invoke(app, ["data", "fetch", *names]).output
    assert not served.exists() or not list(imports_home().iterdir())


@pytest.mark.data
@pytest.mark.skipif("EMU_DATA" not in os.environ, reason="EMU_DATA names no graphs")
@pytest.mark.parametrize("name", PUBLIC_GRAPHS)
def test_the_table_has_size_and_digest_of_the_files(name: str) -> None:
    graph = PUBLIC_GRAPHS[name]
    path = Path(os.environ["EMU_DATA"]) / name / graph.file
    if not path.exists():
        pytest.skip(f"EMU_DATA has no {name}")
    content = path.read_bytes()
    assert len(content) == graph.size
    assert hashlib.sha256(content).hexdigest() == graph.sha256
