"""Section ``job`` of a system whose parts exchange what it states, see `Exchange`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, permutations
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import Field
from typing_extensions import override

from emu.graph_data import WholeGraph
from emu.graph_data.dependencies import open_dependencies
from emu.problem import Cluster, Job, Realization, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Ratio
from emu.problem.fields.section import Section
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edge_count,
    build_named_job,
    part_elements,
)
from emu.problem.workloads.exchange import (
    GRADIENTS,
    ID_BYTES,
    ROWS,
    SKIP_BYTES,
    Exchange,
    carries_numbers,
    to_settings,
)
from emu.problem.workloads.operations import Operations
from emu.systems import Floats, Keys, Problems, Settings, Times
from emu.systems.device_memory import Parts, weight_bytes
from emu.systems.exchange_system import PROGRAMS
from emu.systems.job_section import BuildContext
from emu.systems.parts import part_tasks, ring_edges
from emu.systems.rates_section import RatesSection
from emu.systems.training_section import count_parameters, number_bytes
from emu.systems.translation import CommonJob, Translation, write_whole_graph
from emu.systems.whole_graph_section import WholeGraphSection

#: Epochs that a row is old.
Age: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
#: Epochs from one sending to the next.
Period: TypeAlias = Annotated[int, Field(strict=True, ge=1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
#: Weight of earlier rows in the mean that is read.
Smoothing: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
#: Share of the rows that two parts share which an epoch draws.
DrawnShare: TypeAlias = Annotated[Ratio, Field(gt=0, le=1)]
#: Bits of a number, rounded at random.
Bits: TypeAlias = Literal[2, 4, 8]


class NoTimesSection(Section):
    """No times: they follow from ``job.rates``."""


class ExchangeSection(WholeGraphSection):
    """Whole-graph training in parts that exchange what `exchanges` states.

    A system derives its section from this one, adds keys, and states its exchanges.
    """

    rates: RatesSection
    """Rates of operations, from which all times follow."""
    times: NoTimesSection = NoTimesSection()
    """None: write ``job.rates``."""

    unprofiled: ClassVar[str] = "times follow from job.rates, write these instead"

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return what is exchanged, an exchange per layer and direction.

        Raises ValueError where one cannot be; `exchange_problems` says so.
        """
        raise NotImplementedError

    def list_rows(self, first: int = 2, **terms: Any) -> Iterator[Exchange]:
        """Yield exchanges of rows before every layer from ``first``, on equal terms.

        Rows of layer 1 are features: by default they are fetched once, before time 0.
        """
        last = self.model.layers
        for layer in range(first, last + 1):
            yield Exchange(ROWS, layer, **terms)

    def list_gradients(self, **terms: Any) -> Iterator[Exchange]:
        """Yield exchanges of gradients, on equal terms; features need none."""
        last = self.model.layers
        for layer in range(2, last + 1):
            yield Exchange(GRADIENTS, layer, **terms)

    @property
    def _stated(self) -> tuple[Exchange, ...]:
        """Return the exchanges, none where one is wrong: `problems` says so."""
        with suppress(ValueError):
            return self.exchanges()
        return ()

    @property
    @override
    def uncut(self) -> str:
        """Return why no checkpoints can be kept, where epochs read earlier ones."""
        if any(exchange.remembers for exchange in self._stated):
            return (
                "epochs read rows of earlier ones, which no checkpoint has: remove "
                "this key; with on_failure: restart the job begins with epoch 0"
            )
        return ""

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        try:
            exchanges = self.exchanges()
        except ValueError as error:
            yield ("job", "system"), f"{self.system} states a wrong exchange: {error}"
            return

        oldest = max((exchange.age for exchange in exchanges), default=0)
        if oldest >= self.epochs:
            age = f"{oldest} epochs"
            if oldest == 1:
                age = "an epoch"
            problem = (
                f"found {self.epochs}, and {self.system} reads what is {age} old, so "
                f"that nothing would be read: write {oldest + 1} or more"
            )
            yield ("job", "epochs"), problem

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        ranks = len(self.ranks(machines))
        pairs = ranks * (ranks - 1)
        flows = pairs * len(self._stated)
        return max(1, flows + all_reduce_edge_count(ranks))

    @property
    def _sends_features(self) -> bool:
        return any(exchange.layer == 1 for exchange in self.exchanges())

    @property
    def _passes(self) -> dict[str, int]:
        """Layer by kind of a part's tasks, in their order; the last goes both ways."""
        layers = self.model.layers
        first = 0 if self._sends_features else 1
        passes = {}
        for layer in range(first, layers + 1):
            passes[f"layer{layer}"] = layer
        for layer in reversed(range(1, layers)):
            passes[f"gradient{layer}"] = layer
        return passes

    @override
    def build(self, context: BuildContext) -> Job:
        settings: Settings = {
            **self.whole_graph_settings(context),
            "exchanges": to_settings(self.exchanges()),
        }

        machines = self.ranks(context.machines)

        passes: dict[str, Settings] = {}
        for kind, layer in self._passes.items():
            passes[kind] = {"layer": layer}
        tasks = part_tasks(machines, passes, PROGRAMS)
        edges = self._edges(len(machines))
        return build_named_job(tasks, edges, self.epochs, settings)

    def _edges(self, ranks: int) -> Iterator[NamedEdge]:
        names = [*self._passes]
        all_ranks = range(ranks)
        for rank in all_ranks:
            for before, after in pairwise(names):
                yield NamedEdge(f"d{rank}.{before}", f"d{rank}.{after}")

        for number, exchange in enumerate(self.exchanges()):
            giver, taker = self._ends(exchange)
            for sender, receiver in permutations(all_ranks, 2):
                yield NamedEdge(
                    f"d{sender}.{giver}",
                    f"d{receiver}.{taker}",
                    lag=exchange.age,
                    carries=exchange.content,
                    place=(number, sender, receiver),
                )

        # What waits for new weights: the first task of the next epoch.
        yield from ring_edges(ranks, giver=names[-1], taker=names[0])

    def _ends(self, exchange: Exchange) -> tuple[str, str]:
        """Return the kinds of task that send and read an exchange."""
        layer = exchange.layer
        if exchange.content == ROWS:
            return f"layer{layer - 1}", f"layer{layer}"
        # The last layer goes on to its own backward pass.
        giver = "gradient"
        if layer == self.model.layers:
            giver = "layer"
        return f"{giver}{layer}", f"gradient{layer - 1}"

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        dataset, graphs = open_dependencies(job.settings)
        parameters = count_parameters(job.settings, dataset)
        itemsize = number_bytes(job.settings)
        widths = self.widths(dataset)
        exchanges = self.exchanges()

        shape = (len(job.edges), job.iterations)
        volumes = np.zeros(shape)
        named_edges = self._edges(graphs[0].parts)
        for row, edge in zip(volumes, named_edges, strict=True):
            if edge.carries == "parameters":
                elements = part_elements(parameters, edge.place)
                row[:] = elements * itemsize
            elif edge.carries:
                number, *_ = edge.place
                exchange = exchanges[number]
                count = self._count_shared(graphs, edge)
                width = widths[exchange.layer - 1]
                size = exchange.message_bytes(count, width, itemsize)
                if carries_numbers(exchange, exchanges):
                    numbers = exchange.count_rows(count)
                    size += numbers * ID_BYTES
                row[:] = SKIP_BYTES
                row[:: exchange.every] = size

        times = self.rate_tasks(job, context, volumes)
        emulated_bytes = volumes / context.byte_scale
        return Realization(times, volumes=emulated_bytes)

    def _count_shared(self, graphs: Sequence[WholeGraph], edge: NamedEdge) -> int:
        """Return how many rows the two parts of an edge share."""
        number, sender, receiver = edge.place
        exchange = self.exchanges()[number]
        graph = graphs[exchange.layer - 1]
        if exchange.whole:
            ranks = range(graph.parts)
            return max(len(graph.part(rank).local) for rank in ranks)
        if exchange.content == ROWS:
            rows = graph.ghosts_of(sender, receiver)
        else:
            # Gradients go back to the owners of the rows.
            rows = graph.ghosts_of(receiver, sender)
        return len(rows)

    @override
    def count_operations(
        self,
        job: Job,
        context: BuildContext,
        volumes: Floats,
    ) -> Operations:
        itemsize = number_bytes(job.settings)
        operations = Operations(job)
        operations.add_gradients(job, volumes, itemsize)
        self._count_rows(job, operations)
        self._count_layers(job, operations)
        return operations

    def _count_rows(self, job: Job, operations: Operations) -> None:
        """Count rows that are collected, and numbers that are added or quantised.

        To add a number, to quantise it and to read it again is work as of an edge.
        """
        itemsize = number_bytes(job.settings)
        dataset, graphs = open_dependencies(job.settings)
        widths = self.widths(dataset)
        exchanges = self.exchanges()
        edges = self._edges(job.settings["parts"])
        for edge, named in zip(job.edges, edges, strict=True):
            if named.carries not in (ROWS, GRADIENTS):
                continue

            number, *_ = named.place
            exchange = exchanges[number]
            shared = self._count_shared(graphs, named)
            width = widths[exchange.layer - 1]
            numbers = exchange.count_rows(shared) * width
            is_quantised = exchange.bits is not None
            is_added = exchange.content == GRADIENTS

            amounts = np.zeros(job.iterations)
            amounts[:: exchange.every] = numbers
            operations.add(edge.source, {"collect": itemsize * amounts})
            operations.add(edge.source, {"aggregate": is_quantised * amounts})
            taken_in = (is_quantised + is_added) * amounts
            operations.add(edge.destination, {"aggregate": taken_in})

    def _count_layers(self, job: Job, operations: Operations) -> None:
        dataset, graphs = open_dependencies(job.settings)
        shares = {}
        for exchange in self.exchanges():
            if exchange.content == ROWS:
                shares[exchange.layer] = exchange.share
        self.count_part_layers(
            job,
            operations,
            graphs,
            widths=self.widths(dataset),
            shares=shares,
        )

        first_kind, *_ = self._passes
        parameters = count_parameters(job.settings, dataset)
        for position, task in enumerate(job.tasks):
            if task.kind == first_kind:
                operations.add(position, {"step": parameters})

    @override
    def collects_on_device(self, task: Task) -> bool:
        return True  # every task is one of a GPU

    @override
    def device_memory(
        self,
        job: Job,
        context: BuildContext,
    ) -> Mapping[str, Parts]:
        """Return that of every part, under the task that steps its weights.

        Features, what layers compute with its gradient, and rows of others that are
        sent; of rows that are read later, or in a mean, a copy besides.
        """
        settings = job.settings
        dataset, graphs = open_dependencies(settings)
        all_widths = self.widths(dataset)
        length, *widths = all_widths
        itemsize = number_bytes(settings)
        parameters = count_parameters(settings, dataset)
        weights = weight_bytes(settings, parameters, steps=True)
        first_kind, *_ = self._passes

        memory: dict[str, Parts] = {}
        machines = self.ranks(context.machines)
        for rank, _ in enumerate(machines):
            parts = [graph.part(rank) for graph in graphs]
            first, *_ = parts
            features = first.size * length
            numbers = 0
            for part, width in zip(parts, widths, strict=True):
                numbers += 2 * len(part.local) * width

            for exchange in self.exchanges():
                part = parts[exchange.layer - 1]
                rows = exchange.count_rows(len(part.remote))
                copies = 1 + exchange.remembers
                width = all_widths[exchange.layer - 1]
                numbers += copies * rows * width
            memory[f"d{rank}.{first_kind}"] = {
                "features": float(itemsize * features),
                "rows of layers": float(itemsize * numbers),
                "weights": weights,
            }
        return memory


def translation(system: str) -> Translation:
    """Return how a whole-graph system of that name is written in the words of all."""

    def write(common: CommonJob) -> Keys:
        return write_whole_graph(common, system, "gcn", "sage", "gin")

    return Translation(None, write, counts_epochs=True)
