"""Graphs that a host of a run lacks: read here in pieces, put together there.

A graph is known by its fingerprint (`Source.fingerprint`): a copy is kept under its
name only where it has the fingerprint of the original.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.errors import DataError
from emu.graph_data.imported import MANIFEST, imports_home
from emu.graph_data.sources import data_folders, source_of
from emu.graph_data.synthetic_graph import PRESETS

#: Bytes of a file that are sent at once: what a connection buffers for each host.
PIECE = 1 << 22


@dataclass(frozen=True)
class GraphFiles:
    """The files of one graph on this computer."""

    dataset: Mapping[str, Any]
    """As ``dataset`` of ``Job.settings``."""
    fingerprint: str
    paths: tuple[Path, ...]
    """Files to send; none of a graph that every host has to have by itself."""

    @classmethod
    def of(cls, dataset: Mapping[str, Any]) -> GraphFiles:
        """Return the files of a data set, of a raw folder of OGB none.

        Raises DataError as `find_source`.
        """
        source = source_of(dataset)
        fingerprint = source.fingerprint

        # In the order of `find_source`: a copy is to be of the graph that it would
        # open.
        homes = data_folders(dataset.get("root") or "")
        for home in homes:
            folder = home / dataset["name"]
            manifest = folder / MANIFEST
            if manifest.is_file():
                imported = sorted(folder.iterdir())
                return cls(dataset, fingerprint, tuple(imported))
            files = sorted(folder.glob("*.npz"))
            if files:
                return cls(dataset, fingerprint, tuple(files))
        return cls(dataset, fingerprint, ())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        sizes = [path.stat().st_size for path in self.paths]
        return sum(sizes)

    def piece(self, position: int) -> tuple[str, bytes, bool]:
        """Return a file's name, the bytes there, and whether they are the last of all.

        ``position`` is a number of bytes of all files, in order. Raises DataError when
        a file cannot be read.
        """
        for path in self.paths:
            # Files are one long string to who asks: a position needs no name of a file.
            length = path.stat().st_size
            if position < length:
                content = _read_at(path, position)
                is_end_of_file = position + len(content) == length
                is_last = is_end_of_file and path == self.paths[-1]
                return path.name, content, is_last
            position -= length
        raise DataError(f"has no byte {position}", path=self.dataset["name"])


def _read_at(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(PIECE)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise DataError(problem, path=path) from error


def list_graphs(datasets: Iterable[Mapping[str, Any]]) -> Iterator[GraphFiles]:
    """Yield the graphs of some data sets, each once; made-up ones need no files."""
    names: set[str] = set()
    for dataset in datasets:
        name = dataset["name"]
        # A preset is generated alike on every host from its seed.
        if name not in PRESETS and name not in names:
            names.add(name)
            yield GraphFiles.of(dataset)


def is_here(dataset: Mapping[str, Any], fingerprint: str) -> bool:
    """Return True where this host has the graph, False where it has none of its name.

    Raises DataError when it has another one, or does not have what is stated to be in
    a folder (``root``): nothing is written there.
    """
    name = dataset["name"]
    try:
        local_fingerprint = source_of(dataset).fingerprint
    except DataError:
        # What is damaged here is not replaced unasked; only what is missing is copied.
        if dataset.get("root") or (imports_home() / name).exists():
            raise
        return False

    if local_fingerprint != fingerprint:
        problem = "is another graph here than where the run was started: "
        remedy = f"emu data clear {name}, or an EMU_DATA without it, has it copied"
        raise DataError(f"{problem}{remedy}", path=name)
    return True


class GraphCopy:
    """A graph on its way to this host; it is kept once it is whole.

    Raises DataError when it cannot be written.
    """

    def __init__(self, dataset: Mapping[str, Any], fingerprint: str) -> None:
        self.received = 0
        self._dataset = dataset
        self._fingerprint = fingerprint
        self._folder: Path = imports_home() / dataset["name"]
        # Two agents of one host do not write into one folder.
        partial_name = f".{dataset['name']}.{os.getpid()}.partial"
        self._partial = self._folder.with_name(partial_name)
        try:
            self._partial.mkdir(parents=True)
        except OSError as error:
            raise self._failure(error) from error

    def add(self, file: str, content: bytes) -> None:
        """Append bytes to a file of the graph, whose name has no folder.

        Raises DataError when the name has one, or the file cannot be written.
        """
        # The name comes over the network: one with a folder could write anywhere.
        is_name = file == Path(file).name and file not in {"", ".", ".."}
        if not is_name:
            problem = f"found {file!r}, no name of a file"
            raise DataError(problem, path=self._folder)
        try:
            path = self._partial / file
            with path.open("ab") as target:
                target.write(content)
        except OSError as error:
            raise self._failure(error) from error
        self.received += len(content)

    def keep(self) -> None:
        """Keep the graph under its name, unless another agent has kept it meanwhile.

        Raises DataError, and keeps nothing, when it is not the one that was sent.
        """
        try:
            # Fails where a folder with files has the name, so that no graph is half
            # replaced.
            self._partial.rename(self._folder)
        except OSError as error:
            self.discard()
            if not is_here(self._dataset, self._fingerprint):
                raise self._failure(error) from error
            return
        try:
            # Only under its name can it be read: the fingerprint is compared there.
            is_here(self._dataset, self._fingerprint)
        except DataError:
            shutil.rmtree(self._folder)
            raise

    def discard(self) -> None:
        """Remove what has come so far."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _failure(self, error: OSError) -> DataError:
        problem = f"cannot be kept: {error.strerror}"
        return DataError(problem, path=self._folder)
