"""Section ``job`` of ``system: neutron_star``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from typing_extensions import override

from emu.graph_data import open_for
from emu.graph_data.dependencies import COSTS
from emu.problem import Cluster
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.problem.workloads.exchange import ROWS, Exchange
from emu.problem.workloads.operations import count_layer
from emu.systems import Settings
from emu.systems.exchange_section import ExchangeSection, translation
from emu.systems.job_section import BuildContext
from emu.systems.training_section import number_bytes

#: Seconds of a row that costs more than any computation.
_NEVER = 1e30


class NeutronStarSection(ExchangeSection):
    """NeutronStar: each row of others is communicated, or cached and computed again.

    The release has no rule of costs. That of the paper is read so: for every layer and
    remote vertex the seconds to compute what it needs, of vertices and edges that are
    not there yet, are held against those of a row there and back, by the rates and the
    NIC of the machine that reads. Memory bounds no replicas; `gpu_memory` may refuse
    them. Chunks of a layer do not overlap with their messages here.
    """

    shaped_by_data: ClassVar[bool] = True

    system: Literal["neutron_star"]
    """Kind of job."""
    dependencies: Literal["cost", "communicated", "cached"] = "cost"
    """Way to have rows of others: the cheaper one for each, or one for all."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        rows = self.list_rows(numbered=True)
        return (*rows, *self.list_gradients(numbered=True))

    @override
    def whole_graph_settings(self, context: BuildContext) -> Settings:
        settings = super().whole_graph_settings(context)
        # Without a cluster nothing is known of costs: only names are asked for then.
        if self.dependencies == "communicated" or context.cluster is None:
            return settings
        costs = [
            self._costs_on(machine, context, context.cluster, settings)
            for machine in self.ranks(context.machines)
        ]
        return {**settings, COSTS: costs}

    def _costs_on(
        self,
        machine: str,
        context: BuildContext,
        cluster: Cluster,
        settings: Settings,
    ) -> dict[str, list[float]]:
        """Return the seconds of vertices, edges and rows by layer, see `COSTS`."""
        widths = self.widths(open_for(settings))
        device = context.devices.get(machine, DEFAULT_DEVICE)
        rates = self.rates.on(device)
        vertices = []
        edges = []
        inputs = []
        for number, layer_widths in enumerate(pairwise(widths), 1):
            vertex = self._seconds(rates, number, layer_widths)
            edge = self._seconds(rates, number, layer_widths, edges=1)
            row = self._seconds(rates, number, layer_widths, inputs=1)
            vertices.append(vertex)
            edges.append(edge - vertex)
            inputs.append(row - vertex)

        rows = [_NEVER] * len(inputs)
        if self.dependencies != "cached":
            position = cluster.index(machine)
            # The NIC is stated in emulated bytes.
            nic = cluster.machines[position].bandwidth_in * context.byte_scale
            rows = self._seconds_of_rows(widths, nic, settings)
        return {"vertex": vertices, "edge": edges, "input": inputs, "row": rows}

    def _seconds_of_rows(
        self,
        widths: Sequence[int],
        nic: float,
        settings: Settings,
    ) -> list[float]:
        """Return the seconds in which a row comes, and its gradient goes, by layer.

        ``nic``: real bytes per second that a machine takes in.
        """
        message = Exchange(ROWS, 2, numbered=True)
        itemsize = number_bytes(settings)
        seconds = []
        for width in widths[:-1]:
            size = message.message_bytes(1, width, itemsize)
            seconds.append(2 * size / nic)
        return seconds

    def _seconds(
        self,
        rates: Mapping[str, float],
        layer: int,
        widths: tuple[int, int],
        edges: int = 0,
        inputs: int = 0,
    ) -> float:
        """Return the seconds of a layer on one vertex, there and back.

        With so many edges and rows that are read, but for launches.
        """
        width, next_width = widths
        work = count_layer(
            self.model.kind,
            widths,
            edges,
            inputs,
            outputs=1,
            shortens=width > next_width,
        )
        total = 0.0
        for operations in (work.forward, work.backward(first=layer == 1)):
            for name in ("aggregate", "multiply"):
                total += rates[name] * float(operations[name])
        return total


TRANSLATION = translation("neutron_star")
