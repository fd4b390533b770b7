"""Section ``job.model`` where it is a program of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from emu.errors import DataError
from emu.fields.quantities import FilePath
from emu.fields.section import Section
from emu.input_file import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOST_TEXT = 1 << 20


class FiguresSection(Section):
    """Measurements of a program's model; runs note them, no scenario states them."""

    parameters: Annotated[int, Field(strict=True, ge=1)]
    """Numbers that are trained."""
    flops: float
    """Operations in the matrix products of forward and backward on a worker's batch."""
    seconds: float
    """CPU time of the same, one thread."""


class ModelProgramSection(Section):
    """A model of one's own: a ``torch.nn.Module``, called with blocks and features."""

    program: FilePath = Field(examples=["net.py:Net"])
    """``FILE.py:NAME``, relative to the scenario file: a class or function that returns
    a ``torch.nn.Module``, which takes the sampled blocks, input side first, and
    features, and returns a score per seed and class. ``emu validate`` runs its code as
    well."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments by name, ``{hid_size: 64}``; ``in_size``, ``out_size``, ``num_layers``
    are given where it takes them."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] | None = None
    """Number of blocks, one hop of sampling each; default is one per fan-out."""
    source: str | None = None
    """Its text, which runs note: default is what the file holds."""
    measured: FiguresSection | None = None
    """Figures noted by runs; not to be stated."""

    @property
    def name(self) -> str:
        """File and name, without the folder."""
        return Path(self.program).name

    def problems(self, fanouts: int) -> Iterator[tuple[str, str]]:
        """Yield (key, what is wrong and what would be right).

        Parameters
        ----------
        fanouts
            How many are stated; 0 where every neighbour is taken.
        """
        file, _, name = self.program.rpartition(":")
        if not (file.endswith(".py") and name.isidentifier()):
            yield "program", f"found {self.program!r}, write FILE.py:NAME"
        elif self.source is None:
            try:
                program_text(self.program)
            except DataError as error:
                yield "program", str(error)
        if not fanouts and self.layers is None:
            yield "layers", "fanouts say no number of layers, write for example 2"


def program_text(program: str) -> str:
    """Return the text of ``FILE.py:NAME``.

    Raises
    ------
    DataError
        When the file is missing or cannot be read.
    """
    file = program.rpartition(":")[0] or program
    try:
        return read_text(Path(file), _MOST_TEXT)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
