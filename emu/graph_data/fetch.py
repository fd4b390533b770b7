"""Public graphs fetched from where they are published, checked by size and SHA-256.

Bag-of-words graphs of Shchur et al. (2018) and others in one layout, as the repository
GraphData (MIT) keeps them, pinned to a commit: their content can never change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from emu.errors import DataError
from emu.graph_data.imported import imports_home
from emu.host.files import whole_file

#: Where files are, by a commit: a branch could change them.
_ADDRESS = (
    "https://raw.githubusercontent.com/EdisonLeeeee/GraphData/"
    "e766147ccf09e2e29ea449a4029482c21a93aa7d/datasets/"
)
_TIMEOUT = 30  # seconds without a byte


class PublicGraph(NamedTuple):
    """A file that can be fetched."""

    file: str
    size: int
    """Bytes."""
    sha256: str


#: Name of the data set, its file, bytes and SHA-256; all have one layout.
_TABLE = """\
amazon_computers amazon_cs.npz      3407870
    bffa1720ee30487a6f10f2ad57741d1a401d89a31a6a4c5c6de1ba42a1f2a0e0
amazon_photo     amazon_photo.npz   1769253
    f0552bc8bcdb103c25b07cf4619bd9458af435c0728dc8366e86ffb912018c25
coauthor_cs      coauthor_cs.npz    2796277
    48e79e9e838aab635ca8fff852d25cb804c0d8ed79e5bae0f1a8f2d147b2188d
coauthor_physics coauthor_phy.npz   3767567
    121a85ee9fac9859693e649d3e9f3561e3a23a9aa4d8e8951e9e3eec8e9b52ef
blogcatalog      blogcatalog.npz    1422090
    21d5615b050f11e86941853fe9ccf34f3602c65e20f57c981a7b6517a66ff484
cora             cora.npz           106349
    48d0ccdfaf651b4a8795bc3d7739325b4cc16c445ca250eca5db037851269b69
citeseer         citeseer.npz       229356
    0056ace377cfbbfa1d24da097aca5885d043a339ba8cf851a7b52e0595a9d6e1
"""
_WORDS = _TABLE.split()
PUBLIC_GRAPHS = {
    name: PublicGraph(file, int(size), sha256)
    for name, file, size, sha256 in zip(*[iter(_WORDS)] * 4, strict=True)
}


class _Meter:
    """Tells how far a download is, and ends one that is longer than it should be."""

    total = 0  # as pooch sets it, from what the server says

    def __init__(
        self,
        size: int,
        tell: Callable[[int], None],
        source: str,
    ) -> None:
        self._size = size
        self._tell = tell
        self._source = source
        self._done = 0

    def update(self, count: int) -> None:
        """Count bytes; the last chunk may be shorter than it says.

        Raises DataError when there are more than the file has.
        """
        # Counted before the chunk is added, as the last one may be shorter.
        if self._done > self._size:
            raise DataError(f"is longer than {self._size} bytes", path=self._source)
        self._done += count
        self._tell(min(self._done, self._size))

    def reset(self) -> None:
        """Begin anew: pooch counts the whole once more at the end."""
        self._done = 0

    def close(self) -> None:
        """End; as pooch asks for it."""


def fetch_graph(name: str, tell: Callable[[int], None]) -> Path:
    """Bring a public graph to where ``job.dataset`` finds it; return its file.

    ``tell`` gets the bytes that have come so far. Raises DataError when the name is
    unknown, the file is there already, cannot be fetched, or is another than that of
    this name. Nothing is left behind then.
    """
    if name not in PUBLIC_GRAPHS:
        names = ", ".join(PUBLIC_GRAPHS)
        problem = f"cannot be fetched; known are {names}; emu import brings others in"
        raise DataError(problem, path=name)
    # Half a second, which nothing else needs.
    import pooch  # noqa: PLC0415
    import requests  # noqa: PLC0415

    graph = PUBLIC_GRAPHS[name]
    folder = imports_home() / name
    if folder.exists():
        raise DataError(f"is there already; first: emu data clear {name}", path=name)
    source = f"{_ADDRESS}{graph.file}"
    meter = _Meter(graph.size, tell, source)
    load = pooch.HTTPDownloader(progressbar=meter, timeout=_TIMEOUT, chunk_size=1 << 16)
    try:
        folder.mkdir(parents=True)
        # Under another name until it is whole: a download that breaks off leaves
        # nothing.
        with whole_file(folder / graph.file) as partial:
            try:
                load(source, str(partial), None)
            except requests.HTTPError as error:
                if error.response is not None:
                    error.response.close()  # pooch leaves it to the garbage collector
                problem = f"cannot be fetched: the server says {error}"
                raise DataError(problem, path=source) from error
            except requests.RequestException as error:
                problem = "cannot be fetched: there is no network, or it does not lead "
                problem += "there; with the file from elsewhere, set EMU_DATA to the "
                problem += "folder that holds NAME/*.npz"
                raise DataError(problem, path=source) from error
            if pooch.file_hash(str(partial)) != graph.sha256:
                problem = f"is not the file of SHA-256 {graph.sha256[:16]}...: nothing "
                raise DataError(f"{problem}was kept", path=source)
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise DataError(problem, path=folder) from error
    finally:
        # An empty folder would stand in the way of the next try.
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return folder / graph.file
