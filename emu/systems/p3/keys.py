"""Keys of section ``job`` of ``system: p3``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from emu.problem.fields.quantities import Few, word_or_list
from emu.systems.replica_section import ReplicaSection

_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Shares: TypeAlias = Annotated[
    tuple[_Share, ...], *word_or_list("even", {"type": "number", "minimum": 0})
]


class P3Keys(ReplicaSection):
    """Keys of P3, from which its job follows."""

    # Columns are an Nth of the features: the paper has them in memory of the GPU.
    usual_features: ClassVar[str] = "device"
    foreign: ClassVar[dict[str, str]] = {
        **ReplicaSection.foreign,
        "stores": "each machine that takes part has columns: write machines",
    }

    system: Literal["p3"]
    """Kind of job."""
    # A has three mini-batches under way, as the paper says; B is its equation.
    pipeline: Literal["none", "A", "B"] = "A"
    """Phases of several mini-batches in turn: A lacks 2 updates, B 3; ``none`` trains
    as data parallel training does."""
    # The paper counts no bytes of structure, which is true of `derived` alone.
    push: Literal["shipped", "derived"] = "shipped"
    """``shipped``: samplers send ids and edges of layer 1; ``derived``: every machine
    samples for its group, which needs the structure there."""
    structure: Literal["replicated", "hashed"] = "replicated"
    """``replicated``: every machine has the graph's structure; ``hashed``: its share,
    and samplers ask owners hop by hop."""
    cache: Few | None = None
    """Machines that hold a full copy of the features between them; default is all."""
    columns: Shares = Field(default=(), json_schema_extra={"default": "even"})
    """``even``, or shares of the columns of each machine of a group; one with 0
    computes no part of layer 1."""
