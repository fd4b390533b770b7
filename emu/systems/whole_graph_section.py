"""Keys of ``job`` that every system has which trains on the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from typing_extensions import override

from emu.problem import Job
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import (
    Count,
    DurationPerDevice,
    Few,
    Name,
    text_schema,
    times_schema,
    write_times,
)
from emu.problem.fields.section import Section
from emu.problem.workloads.coflows import Coflow
from emu.problem.workloads.operations import Operations, count_layer
from emu.systems import Problems, Settings
from emu.systems.job_section import (
    TRANSLATED,
    BuildContext,
    JobSection,
)
from emu.systems.model_section import AnyDataset, AnyOptimizer, OptimizerSection
from emu.systems.rates_section import RatesSection
from emu.units import DURATION, format_count

if TYPE_CHECKING:
    from emu.graph_data import Dataset, WholeGraph

_SAMPLED = "every vertex sees all its neighbours in every epoch: remove this key"


_TIME_SCHEMA = times_schema(text_schema(DURATION, "40 ms"))
#: A time for all layers, or one for each, from the input.
TimePerLayer = Annotated[
    tuple[DurationPerDevice, ...],
    BeforeValidator(
        # One time stands for a list of one.
        lambda found: tuple(found) if isinstance(found, list | tuple) else (found,)
    ),
    PlainSerializer(
        lambda times: (
            # Written back as it is read most easily, not as a list of one.
            write_times(times[0]) if len(times) == 1 else [*map(write_times, times)]
        )
    ),
    WithJsonSchema(
        {
            "anyOf": [
                *_TIME_SCHEMA["anyOf"],
                {"type": "array", "items": _TIME_SCHEMA, "minItems": 1},
            ],
            "description": "time for all layers, or a list of one per layer",
        }
    ),
    Field(min_length=1),
]


def layer_time(times: tuple[Any, ...], layer: int) -> Any:
    """Return the time of a layer, from 0, of a `TimePerLayer`."""
    return times[0 if len(times) == 1 else layer]


class WholeGraphModelSection(Section):
    """A graph neural network that is trained on the whole graph."""

    kind: Literal["gcn", "sage", "gin", "commnet"] = "gcn"
    """``gcn``: a mean over neighbours and vertex; ``sage``: GraphSAGE, mean of the
    neighbours; ``gin``: two layers on their sum; ``commnet``: as sage, without bias."""
    hidden: Count = Field(examples=[256])
    """Width of the hidden layers."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(examples=[2])
    """Number of layers."""
    norm: Literal["mean", "symmetric"] | None = None
    """Weight of an edge u -> v: ``symmetric`` 1 / sqrt(d(u) d(v)), Kipf and Welling's;
    ``mean`` 1 / d(v), as sampled systems have it; default is symmetric for ``gcn``, and
    mean. ``gin`` sums."""
    activation: Literal["relu", "tanh"] = "relu"
    """Function between the layers."""

    def settings(self) -> Settings:
        """Return the model as ``Job.settings`` hold it, with the norm of its kind."""
        # As in the papers of these layers.
        norm = {"gcn": "symmetric", "gin": "sum"}.get(self.kind, "mean")
        return {**self.model_dump(), "norm": self.norm or norm}

    def problems(self) -> Problems:
        """Yield (where, what is wrong and what would be right)."""
        # Weights of edges would make a mean of its sum, which is another model.
        if self.kind == "gin" and self.norm is not None:
            problem = f"found {self.norm} for gin, which sums: remove this key"
            yield ("job", "model", "norm"), problem


class WholeGraphSection(JobSection):
    """A job that trains on the whole graph, one part of it per machine."""

    trains: ClassVar[bool] = True
    foreign: ClassVar[dict[str, str]] = {
        "fanouts": f"nothing is sampled: {_SAMPLED}",
        "batch_size": f"there are no mini-batches: {_SAMPLED}",
        "stores": "each machine that takes part owns a part: write machines",
        "iterations": "an iteration is an epoch here: write epochs",
        "workers": f"each of job.machines computes: {TRANSLATED}",
    }

    dataset: AnyDataset
    """A name, or ``{name: ..., scale: ..., seed: ...}``."""
    model: WholeGraphModelSection
    """Trained model."""
    epochs: Count = Field(examples=[20])
    """Passes over the graph, a step of the optimizer each."""
    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that hold a part, rank by rank; default is all of them."""
    partitioner: Literal["metis", "hash", "hierarchical", "imported"] = "metis"
    """Assignment of vertices to machines: ``hierarchical`` cuts between boxes first,
    ``imported`` is as the graph came."""
    boxes: tuple[Few, ...] | None = Field(default=None, min_length=1)
    """Machines of each box, in their order, for ``hierarchical``: ``[8, 8]``."""
    optimizer: AnyOptimizer = OptimizerSection()
    """``adam``, ``sgd`` or ``{name: ..., lr: ...}``."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of features and parameters."""
    rates: RatesSection | None = None
    """Rates of operations, in place of ``times``: the same for every system."""
    coflow: Coflow = "task"
    """Flows of an iteration that are a coflow: those to one ``task``, between two kinds
    of task for one layer (``stage``), or all of the ``job``."""

    @property
    @override
    def iterations(self) -> int:
        # One word for all systems: whoever counts steps asks for iterations.
        return self.epochs

    #: Nothing runs ahead of the weights: no window is needed.
    credit_window: ClassVar[str] = "unlimited"

    @override
    def of_steps(self, steps: int) -> Self:
        return self.model_copy(update={"epochs": steps})

    def widths(self, dataset: Dataset) -> tuple[int, ...]:
        """Return f_0 .. f_L: length of features, hidden layers, classes."""
        hidden = [self.model.hidden] * (self.model.layers - 1)
        return (dataset.feature_length, *hidden, dataset.classes)

    def whole_graph_settings(self, context: BuildContext) -> Settings:
        """Return the settings of node programs that follow from these keys."""
        return {
            "system": self.system,
            "dataset": self.dataset.settings(context.seed),
            "model": self.model.settings(),
            "partitioner": self.partitioner,
            "parts": len(self.ranks(context.machines)),
            "boxes": list(self.boxes or ()),
            "optimizer": self.optimizer.model_dump(),
            "precision": self.precision,
            "compute": context.compute,
            "seed": context.seed,
        }

    def count_part_layers(
        self,
        job: Job,
        operations: Operations,
        graphs: Sequence[WholeGraph],
        widths: Sequence[int],
        shares: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """Add the work of tasks of kinds ``layer1``, ``gradient1``, ..., part by part.

        ``graphs``: what each layer reads; ``shares``: by layer, of the rows of other
        parts those that it reads, by default all.
        """
        for position, task in enumerate(job.tasks):
            name = task.kind.rstrip("0123456789")
            if name not in {"layer", "gradient"} or task.settings["layer"] == 0:
                continue
            number = task.settings["layer"]
            graph = graphs[number - 1]
            part = graph.part(task.settings["rank"])
            local = len(part.local)

            # Rows that are not read have neither edges nor products.
            share = shares.get(number, 1.0)
            edges_in_all = int(part.forward.indptr[-1])
            edges = edges_in_all - (1 - share) * part.count_crossing_edges()
            read = share * len(part.remote)
            inputs, outputs = widths[number - 1 : number + 1]
            layer = count_layer(
                job.settings["model"]["kind"],
                (inputs, outputs),
                edges,
                local + len(part.held) + read,
                local,
                shortens=inputs > outputs,
            )
            operations.add(position, layer.forward if name == "layer" else {})
            # The last layer goes on to its own backward pass.
            if name == "gradient" or number == self.model.layers:
                operations.add(position, layer.backward(first=number == 1))

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from self.model.problems()
        yield from self.rank_problems(cluster)

        parts = len(self.ranks(cluster.names))
        if self.partitioner == "hierarchical" and self.boxes is None:
            # An example that fits the machines there are.
            half = [parts - parts // 2, parts // 2] if parts > 1 else [1]
            problem = (
                "found hierarchical without boxes to cut between first: write for "
                f"example boxes: {half}, or partitioner: metis"
            )
            yield ("job", "partitioner"), problem
        elif self.partitioner != "hierarchical" and self.boxes is not None:
            problem = (
                f"found boxes for {self.partitioner}, which knows none: write "
                "partitioner: hierarchical"
            )
            yield ("job", "boxes"), problem
        elif self.boxes is not None and sum(self.boxes) != parts:
            problem = (
                f"found boxes of {sum(self.boxes)} machines, {parts} hold a part: "
                "write as many"
            )
            yield ("job", "boxes"), problem

    def layer_problems(self, key: str, times: tuple[Any, ...] | None) -> Problems:
        """Yield what is wrong with the number of times of ``job.times.KEY``."""
        if times is not None and len(times) not in {1, self.model.layers}:
            problem = (
                f"found {len(times)} times for a model of "
                f"{format_count(self.model.layers, 'layer')}, "
                "write one, or one per layer"
            )
            yield ("job", "times", key), problem
