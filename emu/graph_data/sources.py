"""Finding a data set by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.graph_data.npz_graph import npz_source
from emu.graph_data.ogb_graph import ogb_source
from emu.graph_data.synthetic_graph import PRESETS, synthetic_source

if TYPE_CHECKING:
    from emu.graph_data.raw_graph import Source

_OGB = ("ogbn-products", "ogbn-papers100M")
_NPZ = (
    "amazon_computers", "amazon_photo", "coauthor_cs", "coauthor_physics",
    "blogcatalog", "cora", "citeseer",
)  # fmt: skip


def cache_home() -> Path:
    """Return emu's folder in the user's cache directory (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "emu"


def find_source(name: str, *, scale: float, seed: int, root: str = "") -> Source:
    """Return the source of a data set.

    Looked for in ``root``, else in the folder that the environment variable
    ``EMU_DATA`` names, else in ``emu/data`` of the cache directory. Synthetic presets
    need no files.

    Raises
    ------
    DataError
        When the name is unknown, or its files are not there; says where to get them.
    """
    if name in PRESETS:
        return synthetic_source(name, scale=scale, seed=seed)
    folder = Path(root or os.environ.get("EMU_DATA") or cache_home() / "data")
    if name in _OGB:
        inner = folder / name.replace("-", "_")
        if not inner.is_dir():
            raise DataError(
                f"{name} is not there: set EMU_DATA to the folder that holds "
                f"{inner.name}/raw, as ogb's NodePropPredDataset leaves it "
                "(https://ogb.stanford.edu/docs/nodeprop)",
                path=str(inner),
            )
        return ogb_source(inner)
    found = sorted((folder / name).glob("*.npz"))
    if found:
        return npz_source(found[0], seed=seed)
    if name not in _NPZ:
        known = ", ".join([*PRESETS, *_OGB, *_NPZ])
        raise DataError(f"no data set is called {name}; known are {known}")
    raise DataError(
        f"{name} is not there: set EMU_DATA to the folder that holds {name}/*.npz; "
        "the files are in https://github.com/shchur/gnn-benchmark (data/npz) and "
        "https://github.com/EdisonLeeeee/GraphData (datasets)",
        path=str(folder / name),
    )
