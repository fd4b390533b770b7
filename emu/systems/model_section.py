"""Keys of ``job`` on what is trained: the graph, the model and its optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from emu.errors import DataError
from emu.host.foreign_code import class_problem
from emu.host.input_file import read_text
from emu.problem.fields.quantities import (
    Count,
    Few,
    FileName,
    FilePath,
    Index,
    Positive,
    Seed,
)
from emu.problem.fields.section import Section
from emu.systems import Problems, Settings

#: Of a program, in bytes: it travels in the job's settings to every process.
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
    features, and returns a score per seed and class. Of its code ``emu validate`` looks
    at the text alone."""
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
        """Yield (key, what is wrong and what would be right) with so many fan-outs."""
        file, _, name = self.program.rpartition(":")
        if not (file.endswith(".py") and name.isidentifier()):
            yield "program", f"found {self.program!r}, write FILE.py:NAME"
        else:
            try:
                # A run notes the text: a repeat must not follow a later file.
                text = self.source or program_text(self.program)
                if problem := class_problem(text, file, name, "", sure=False):
                    yield "program", problem
            except DataError as error:
                yield "program", str(error)

        # With `fanouts: all` nothing says how many hops there are.
        if not fanouts and self.layers is None:
            yield "layers", "fanouts say no number of layers, write for example 2"


def program_text(program: str) -> str:
    """Return the text of ``FILE.py:NAME``, DataError where it cannot be read."""
    file = program.rpartition(":")[0] or program
    try:
        return read_text(Path(file), _MOST_TEXT)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error


def by_name(found: Any) -> Any:
    """Return the mapping for which a name may stand."""
    return {"name": found} if isinstance(found, str) else found


class DatasetSection(Section):
    """The graph to train on."""

    name: FileName = Field(examples=["products-like"])
    """``products-like``, ``reddit-like``, ``papers100m-like`` (made up, seeded),
    ``ogbn-products``, ``ogbn-papers100M``, a folder of npz graphs, or what ``emu
    import`` has called one."""
    scale: Positive = 1.0
    """Size of a made-up graph over the published one."""
    seed: Seed | None = None
    """Seed of a made-up graph, and of a split where the graph brings none; default is
    the scenario's."""
    directory: FilePath | None = None
    """Where to look for it, relative to the scenario file; default is what EMU_DATA
    says."""
    feature_length: Few | None = None
    """Columns of the features: the first so many, or repeated to so many; default is
    what is there."""
    normalise: Annotated[bool, Field(strict=True)] = False
    """Scale every feature row to length 1 (L2)."""
    drawn: Annotated[bool, Field(strict=True)] = False
    """Count volumes by drawing the neighbours of a made-up graph when they are asked
    for: at its published size in little time and memory. Nothing is held, so that
    nothing trains on it: steps to an accuracy are those of ``accuracy``."""
    split: Index | None = None
    """Which of several splits that an npz file holds, from 0."""

    def settings(self, seed: int) -> Settings:
        """Return the data set as ``Job.settings`` hold it, by default of this seed."""
        split: Settings = {} if self.split is None else {"split": self.split}
        drawn: Settings = {"drawn": True} if self.drawn else {}
        return (
            split
            | drawn
            | {
                "name": self.name,
                "scale": self.scale,
                "seed": seed if self.seed is None else self.seed,
                "normalise": self.normalise,
                "feature_length": self.feature_length,
                "root": self.directory or "",
            }
        )


class ModelSection(Section):
    """A graph neural network, ReLU between its layers."""

    kind: Literal["sage", "gcn", "gat", "gin"] = "sage"
    """``sage``: GraphSAGE, mean of the neighbours; ``gcn``: inductive GCN, mean over
    neighbours and vertex; ``gat``: attention; ``gin``: two layers on their sum."""
    hidden: Count = Field(examples=[256])
    """Width of the hidden layers."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(examples=[3])
    """Number of layers, one hop of sampling each."""
    heads: Count = 1
    """Heads of the hidden layers of ``gat``, which share their width."""
    # Not in what is written back: it says nothing that is not so anyway.
    norm: Literal["mean", "symmetric"] = Field(default="mean", exclude=True)
    """Sampled blocks allow ``mean`` alone."""

    def problems(self) -> Problems:
        """Yield (where, what is wrong and what would be right)."""
        if self.norm == "symmetric":
            problem = (
                "found symmetric, which takes degrees that a sampled block does not "
                "have: write mean, or a system that trains on the whole graph"
            )
            yield ("job", "model", "norm"), problem
        if self.heads > 1 and self.kind != "gat":
            problem = f"found heads for {self.kind}, only gat has them"
            yield ("job", "model", "heads"), problem
        elif self.hidden % self.heads:
            wider = -(-self.hidden // self.heads) * self.heads
            problem = (
                f"{self.heads} heads cannot share a width of {self.hidden} "
                f"evenly, write hidden: {wider}"
            )
            yield ("job", "model", "heads"), problem


class OptimizerSection(Section):
    """Optimizer of parameter servers."""

    name: Literal["adam", "sgd"] = "adam"
    """Rule."""
    lr: Positive = 0.001
    """Learning rate."""
    half_life: Count | None = None
    """Steps in which the learning rate halves, a little with each; default: never."""


AnyDataset: TypeAlias = Annotated[
    DatasetSection, BeforeValidator(by_name), Field(examples=["products-like"])
]
AnyOptimizer: TypeAlias = Annotated[OptimizerSection, BeforeValidator(by_name)]
