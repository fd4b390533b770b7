"""Finding a data set by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.graph_data.imported import MANIFEST, imported_source, imports_home
from emu.graph_data.readers.npz_file import npz_source
from emu.graph_data.readers.ogb_folder import ogb_source
from emu.graph_data.synthetic_graph import PRESETS, synthetic_source

if TYPE_CHECKING:
    from emu.graph_data.raw_graph import Source

_OGB = ("ogbn-products", "ogbn-papers100M")
_NPZ = (
    "amazon_computers", "amazon_photo", "coauthor_cs", "coauthor_physics",
    "blogcatalog", "cora", "citeseer",
)  # fmt: skip


def find_source(name: str, *, scale: float, seed: int, root: str = "") -> Source:
    """Return the source of a data set.

    Looked for in ``root``, else in the folder that the environment variable
    ``EMU_DATA`` names and among the imported graphs. Synthetic presets need no files.

    Raises
    ------
    DataError
        When it is not there; the error has the places searched, and where to get it.
    """
    if name in PRESETS:
        return synthetic_source(name, scale=scale, seed=seed)
    folders = data_folders(root)
    for folder in folders:
        if (folder / name / MANIFEST).is_file():
            return imported_source(folder / name, seed=seed)
        if name in _OGB and (folder / name.replace("-", "_")).is_dir():
            return ogb_source(folder / name.replace("-", "_"))
        found = sorted((folder / name).glob("*.npz"))
        if found:
            return npz_source(found[0], seed=seed)
    raise DataError(_missing(name, folders))


def data_folders(root: str = "") -> list[Path]:
    """Return the folders in which data sets are looked for, in this order."""
    if root:
        return [Path(root)]
    stated = os.environ.get("EMU_DATA")
    return [*([Path(stated)] if stated else []), imports_home()]


def _missing(name: str, folders: list[Path]) -> str:
    where = " and ".join(map(str, folders))
    own = f"emu import FILE -o {name} brings in a graph of your own"
    if name in _OGB:
        inner = name.replace("-", "_")
        return (
            f"{name} is not there: looked for {inner}/raw in {where}; set EMU_DATA to "
            "the folder that holds it as ogb's NodePropPredDataset leaves it "
            "(https://ogb.stanford.edu/docs/nodeprop)"
        )
    looked = f"looked for {name}/*.npz and {name}/{MANIFEST} in {where}"
    if name in _NPZ:
        return (
            f"{name} is not there: {looked}; set EMU_DATA to the folder that holds "
            f"{name}/*.npz; the files are in "
            "https://github.com/shchur/gnn-benchmark (data/npz) and "
            "https://github.com/EdisonLeeeee/GraphData (datasets)"
        )
    known = ", ".join([*PRESETS, *_OGB, *_NPZ])
    return f"no data set is called {name}: {looked}; known are {known}; {own}"
