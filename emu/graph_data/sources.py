"""Find a data set by its name, and list those on this computer."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.errors import DataError
from emu.graph_data import imported
from emu.graph_data.fetch import PUBLIC_GRAPHS
from emu.graph_data.imported import MANIFEST, imports_home
from emu.graph_data.prepared import PreparedArrays, lock_of
from emu.graph_data.raw_graph import Source
from emu.graph_data.readers.array_files import npz_source
from emu.graph_data.readers.ogb_folder import ogb_source
from emu.graph_data.synthetic_graph import PRESETS, synthetic_source
from emu.host.files import cache_home
from emu.units import format_count

#: Data sets that are read as the package ogb leaves them.
_OGB = ("ogbn-products", "ogbn-papers100M")


def source_of(dataset: Mapping[str, Any]) -> Source:
    """Return the source of ``dataset`` of ``Job.settings``; raises as `find_source`."""
    return find_source(
        dataset["name"],
        scale=dataset.get("scale") or 1.0,
        seed=dataset.get("seed") or 0,
        root=dataset.get("root") or "",
        split=dataset.get("split"),
    )


def find_source(
    name: str,
    *,
    scale: float,
    seed: int,
    root: str = "",
    split: int | None = None,
) -> Source:
    """Return the source of a data set.

    Looked for in ``root``, else in the folder that the environment variable
    ``EMU_DATA`` names and among the imported graphs. Synthetic presets need no files.
    ``split`` is the number, from 0, of one of several splits that an npz file holds.
    Raises DataError when it is not there, with the places searched, and where to get
    it; also when a split is chosen where the data has but one, or a scale of data that
    is not made up.
    """
    # Before any folder: a preset is the same on every host, whatever files it has.
    if name in PRESETS:
        _refuse_split(name, split)
        return synthetic_source(name, scale=scale, seed=seed)

    folders = data_folders(root)
    source = _source_in(folders, name, seed, split)
    if source is None:
        raise _not_found(name, folders)
    # Ignored, a scale would look as if the graph had been cut down to it.
    if scale != 1.0:
        raise DataError(
            f"{name} is not made up, found scale {scale:g}: leave scale out"
        )
    return source


def _source_in(
    folders: Sequence[Path],
    name: str,
    seed: int,
    split: int | None,
) -> Source | None:
    """Return the source of data that lie in one of some folders, None of others."""
    for folder in folders:
        graph_folder = folder / name
        # ogb calls its folders by names with underscores.
        ogb_folder = folder / name.replace("-", "_")
        if (graph_folder / MANIFEST).is_file():
            _refuse_split(name, split)
            return imported.source_of_import(graph_folder, seed=seed)
        if name in _OGB and ogb_folder.is_dir():
            _refuse_split(name, split)
            return ogb_source(ogb_folder)

        # Of several files none would be the one that is meant.
        files = sorted(graph_folder.glob("*.npz"))
        if len(files) > 1:
            problem = f"leave one of {', '.join(file.name for file in files)} there"
            raise DataError(problem, path=graph_folder)
        if files:
            return npz_source(files[0], seed=seed, split=split)
    return None


def _not_found(name: str, folders: list[Path]) -> DataError:
    """Return an error with the places searched, and where to get a data set."""
    homes = " and ".join(map(str, folders))
    if name in _OGB:
        return DataError(
            f"{name} is not there: looked for {name.replace('-', '_')}/raw in {homes}; "
            "set EMU_DATA to the folder that holds it as ogb's NodePropPredDataset "
            "leaves it (https://ogb.stanford.edu/docs/nodeprop)"
        )
    places = f"looked for {name}/*.npz and {name}/{MANIFEST} in {homes}"
    if name in PUBLIC_GRAPHS:
        return DataError(
            f"{name} is not there: {places}; emu data fetch {name} brings it, or set "
            f"EMU_DATA to the folder that holds {name}/*.npz"
        )
    return DataError(
        f"no data set is called {name}: {places}; known are "
        f"{', '.join([*PRESETS, *_OGB, *PUBLIC_GRAPHS])}; emu import FILE -o {name} "
        "brings in a graph of your own"
    )


def _refuse_split(name: str, split: int | None) -> None:
    # Ignored, a choice of a split would look as if it had been followed.
    if split is not None:
        problem = f"{name} has one split, found {split}: leave job.dataset.split out"
        raise DataError(problem)


def data_folders(root: str = "") -> list[Path]:
    """Return the folders in which data sets are looked for, in this order."""
    if root:
        return [Path(root)]
    folders = [imports_home()]
    home = os.environ.get("EMU_DATA")
    if home:
        # What the user keeps goes before what was imported.
        folders.insert(0, Path(home))
    return folders


#: Folders of what was made of a prepared form, NAME-HASH-FORM.
_DERIVED = re.compile(r"(?P<name>.+)-[0-9a-f]{16}-(?P<form>.+)")


@dataclass(frozen=True)
class KeptData:
    """One graph, or one prepared form of a graph."""

    name: str
    kind: str
    """``imported``, ``file`` (found in EMU_DATA), or ``prepared``."""
    vertices: int | None
    edges: int | None
    """Edges in both directions; None where only the files hold the number."""
    size: int
    """Bytes on disk."""
    origin: str
    """Origin of the graph; of a prepared form, its partitioning."""


def list_data() -> list[KeptData]:
    """Return every graph and every prepared form, the damaged ones named as such."""
    graphs = []
    homes = [home for home in data_folders() if home.is_dir()]
    folders = [folder for home in homes for folder in sorted(home.iterdir())]

    for folder in folders:
        if folder.name.startswith("."):  # on its way here
            continue
        if (folder / MANIFEST).is_file():
            graphs.append(_list_import(folder))
        elif (folder / "raw").is_dir() or any(folder.glob("*.npz")):
            files = KeptData(
                name=folder.name.replace("ogbn_", "ogbn-"),
                kind="file",
                vertices=None,
                edges=None,
                size=_size(folder),
                origin=str(folder),
            )
            graphs.append(files)
    return [*graphs, *(form for form, _ in _forms())]


def _list_import(folder: Path) -> KeptData:
    try:
        arrays = imported.open_imported(folder)
        facts = arrays.facts
        return KeptData(
            name=folder.name,
            kind="imported",
            vertices=facts["vertices"],
            edges=facts["edges"],
            size=arrays.size,
            origin="; ".join([facts["origin"], *facts["notes"]]),
        )
    except DataError as error:
        return _list_damaged(folder, "imported", error)


def _list_damaged(folder: Path, kind: str, error: DataError) -> KeptData:
    return KeptData(
        name=folder.name,
        kind=kind,
        vertices=None,
        edges=None,
        size=0,
        origin=error.problem,
    )


def clear_data(names: list[str]) -> int:
    """Remove prepared forms: of all graphs, or of the named ones with these themselves.

    Files in EMU_DATA stay, what was imported or fetched does not. Returns bytes freed.
    Raises DataError when nothing is kept under a name, or it cannot be removed.
    """
    prepared_home = cache_home() / "prepared"
    size = 0

    try:
        for name in names:
            import_folder = imports_home() / name
            # What is made of a graph goes with it: it is of no use to another.
            folders = [folder for form, folder in _forms() if form.name == name]
            # Only what emu has written there: a folder without either is not touched.
            if (import_folder / MANIFEST).exists() or any(import_folder.glob("*.npz")):
                folders.append(import_folder)
            if not folders:
                raise DataError(
                    f"nothing is kept under this name in {cache_home()}", path=name
                )
            size += sum(map(_remove, folders))
        if not names and prepared_home.is_dir():
            size += _remove(prepared_home)
    except OSError as error:
        raise DataError(
            f"cannot be removed: {error.strerror}", path=error.filename
        ) from error
    return size


def _remove(folder: Path) -> int:
    size = _size(folder)
    shutil.rmtree(folder)
    lock_of(folder).unlink(missing_ok=True)
    return size


def _size(folder: Path) -> int:
    return sum(
        # A link counts as itself: what it leads to is not freed.
        os.lstat(os.path.join(root, file)).st_size  # noqa: PTH118 - as in os.walk
        for root, _, files in os.walk(folder)
        for file in files
    )


def _forms() -> Iterator[tuple[KeptData, Path]]:
    home = cache_home() / "prepared"
    if not home.is_dir():
        return
    for folder in sorted(home.iterdir()):
        # On its way here, or left by a builder that was killed.
        if not (folder / MANIFEST).is_file():
            continue
        try:
            arrays = PreparedArrays(folder)
        except DataError as error:
            yield _list_damaged(folder, "prepared", error), folder
            continue

        name, origin = _name_form(folder, arrays.facts)
        form = KeptData(
            name=name,
            kind="prepared",
            vertices=arrays.facts.get("vertices"),
            edges=arrays.facts.get("edges"),
            size=arrays.size,
            origin=origin,
        )
        yield form, folder


def _name_form(folder: Path, facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the graph that a prepared form is of, and how it is cut."""
    match = _DERIVED.fullmatch(folder.name)
    if match is not None:
        form = match["form"].partition("-")[0]
        if "blocks" in facts:
            form = f"features by columns, {format_count(len(facts['blocks']), 'part')}"
        elif "whole" in facts:
            form = f"whole graph, {format_count(facts['whole'], 'part')}"
        return match["name"], form

    name = facts.get("name", "")
    # A form without a name is removed with all others only.
    if not name:
        return "", ""
    count = format_count(facts["parts"], "part")
    parts = f"{count} by {facts['partitioner']}, seed {facts['seed']}"
    if facts["scale"] != 1:
        parts += f", scale {facts['scale']:g}"
    return name, parts
