"""APT's samplers and stores, and the tasks of one machine's worker."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import open_columns
from emu.systems.apt.job import columns_of
from emu.systems.apt.shares import computing, split
from emu.training import make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.apt.machine import AptMachine
from emu_nodes.apt.messages import read_share, share_tensors, upper_batch
from emu_nodes.dgtp.asking import AskedStore
from emu_nodes.dgtp.job_data import JobData
from emu_nodes.p3.batches import batch_tensors, read_batch
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskByPeer,
    TaskSpec,
    pick,
    tensor,
)

#: Weights of layer 1, and all other parameters.
_PARTS = "own", "upper"


class AptSampler(TaskByPeer):
    """Draws a share of its machine's mini-batches, and hands layer 1 out."""

    def __init__(
        self,
        brief: TaskSpec,
        process: Shared,
    ) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        self._data = JobData(brief, process)
        self._sampler: int = brief.settings["sampler"]
        self._home: int = brief.settings["rank"]
        self._strategy: str = settings["strategy"]
        self._machines = computing(self._strategy, self._home, settings["workers"])
        self._owner = np.asarray(self._data.dataset.owner)

        self._data.batch(self._sampler, 0)  # a rehearsal

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        """Return by task: a share of layer 1, and its own machine the rest as well."""
        batch = self._data.batch(self._sampler, iteration)
        payloads: dict[str, Payload] = {}
        places: Payload = {}
        for machine in self._machines:
            numbers, share = split(
                batch,
                self._owner,
                self._strategy,
                machine,
            )
            payloads[f"a{machine}"] = share_tensors(self._strategy, share)
            if self._strategy in {"snp", "dnp"}:
                places[f"places.{machine}"] = numbers

        rest = batch_tensors(upper_batch(batch))
        payloads[f"a{self._home}"] |= {
            **{f"batch.{name}": array for name, array in rest.items()},
            **places,
        }
        sources, _ = batch.edges[0]
        self._figures = {
            "input_vertices": float(batch.sizes[0]),
            "edges": float(len(sources)),
        }
        return payloads


class AptStore(AskedStore):
    """Returns the rows that it is asked for, or the columns that its machine has."""

    def __init__(
        self,
        brief: TaskSpec,
        process: Shared,
    ) -> None:
        self._columns: Array | None = None
        super().__init__(brief, process)
        settings = brief.job_settings
        if settings["strategy"] == "nfp":
            blocks = columns_of(settings, self._dataset.feature_length)
            columns = open_columns(self._dataset, blocks)
            self._columns = columns.array(f"columns_{self._index}")

    @override
    def _read_ids(
        self,
        sender: EdgeSpec,
        inputs: Inputs,
        name: str,
    ) -> Array:
        if self._columns is None:
            return super()._read_ids(sender, inputs, name)
        ids = tensor(inputs[sender.edge], name, sender)
        is_vertex = (ids >= 0) & (ids < len(self._columns))
        if not is_vertex.all():
            raise NodeMisbehaved(f"{sender.peer} asked for vertices that are not there")
        return ids

    @override
    def _collect_features(self, owned: Array) -> Array:
        if self._columns is None:
            return super()._collect_features(owned)
        return self._columns[owned].astype(self._data.feature_type, copy=False)


class _AptTask(TaskByPeer):
    """State and methods that the tasks of a machine share."""

    def __init__(
        self,
        brief: TaskSpec,
        process: Shared,
    ) -> None:
        if "apt" not in process:
            process["apt"] = AptMachine(brief, process)
        self._machine: AptMachine = process["apt"]
        super().__init__(brief, process)

    def _read(
        self,
        inputs: Inputs,
        name: str,
        kind: str,
    ) -> dict[int, Array]:
        """Return by machine a tensor of the tasks of a kind, of other machines."""
        found = {}
        for edge in self._brief.inputs:
            if edge.peer_kind == kind and edge.peer[2:] != str(self._machine.rank):
                array = tensor(inputs[edge.edge], name, edge)
                found[int(edge.peer[2:])] = array.copy()
        return found


class Asking(_AptTask):
    """Takes in shares of layer 1, and asks owners for their rows."""

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        machine = self._machine
        needed = []
        for edge in self._brief.inputs:
            if edge.peer_kind != "sampler":
                continue
            sampler = int(edge.peer[1:])
            key = (sampler, iteration)
            payload = inputs[edge.edge]
            share = read_share(
                payload,
                edge,
                machine.data,
                machine.rank,
                key,
            )
            machine.shares[key] = share
            if sampler in machine.samplers_of(machine.rank):
                self._keep_batch(payload, edge, key)
            vertices, _ = share.inputs
            needed.append(vertices)

        vertices = np.unique(np.concatenate(needed))
        machine.needed[iteration] = vertices
        return self._questions(vertices)

    def _keep_batch(
        self,
        payload: Payload,
        edge: EdgeSpec,
        key: tuple[int, int],
    ) -> None:
        """Keep what a sampler of this machine has drawn behind layer 1."""
        machine = self._machine
        rest = pick(payload, "batch.")
        batch = read_batch(rest, edge, machine.layers - 1)
        machine.batches[key] = batch
        everything = np.arange(batch.sizes[0])

        places = pick(payload, "places.")
        machine.places[key] = {
            rank: places[str(rank)].copy() if places else everything
            for rank in machine.computing(machine.rank)
        }

    def _questions(self, vertices: Array) -> dict[str, Payload]:
        machine = self._machine
        owner = np.asarray(machine.dataset.owner)[vertices]
        if machine.strategy == "nfp":  # its own columns of whatever vertex
            owner = np.full(len(vertices), machine.rank)
        return {
            f"g{rank}": {"vertices": vertices[owner == rank]}
            for rank in range(machine.ranks)
        }


class ModelForward(_AptTask):
    """Adds up the rows of all shares, and sends every machine its part of layer 1.

    It brings the weights up to date before.
    """

    def __init__(
        self,
        brief: TaskSpec,
        process: Shared,
    ) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        machine = self._machine
        self._optimizers = [
            make_optimizer(settings, machine.own),
            make_optimizer(settings, machine.upper),
        ]
        self._updates = brief.first

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        machine = self._machine
        self._take_updates(iteration)
        machine.keep_rows(iteration, self._rows(iteration, inputs))

        payloads: dict[str, Payload] = {}
        for rank in range(machine.ranks):
            if machine.rank not in machine.computing(rank):
                continue
            part = machine.part(rank, iteration)
            if rank == machine.rank:
                machine.parts[iteration] = part
            else:
                payloads[f"Df{rank}"] = {"part": part}
        return payloads

    def _rows(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> Array:
        """Return the rows that stores sent, in the order of their vertices."""
        machine = self._machine
        vertices = machine.needed[iteration]
        owner = np.asarray(machine.dataset.owner)[vertices]
        rows = np.empty((len(vertices), machine.columns), machine.own.dtype)

        for edge in self._brief.inputs:
            if edge.peer_kind != "graph_store":
                continue
            is_sent = owner == int(edge.peer[1:])
            if machine.strategy == "nfp":
                is_sent = np.ones(len(vertices), np.bool_)
            shape = (int(is_sent.sum()), machine.columns)
            rows[is_sent] = tensor(
                inputs[edge.edge],
                "features",
                edge,
                shape,
            )
        return rows

    def _take_updates(self, iteration: int) -> None:
        """Step with the mean gradients of all mini-batches before one."""
        machine = self._machine
        for batch in range(self._updates, iteration):
            for part, optimizer in enumerate(self._optimizers):
                total = machine.gradients[part].pop(batch)
                if machine.learns:
                    optimizer.step(total / machine.ranks)
        self._updates = iteration

    def state(self, iteration: int) -> Payload:
        """Return both parts of the parameters before a mini-batch, and moments."""
        self._take_updates(iteration)
        return {
            f"{part}.{name}": array
            for part, optimizer in zip(_PARTS, self._optimizers, strict=True)
            for name, array in optimizer.state().items()
        }

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Go on from the state of one machine.

        Raises ValueError when it is of another optimiser or of other parameters.
        """
        (arrays,) = state.values()
        for part, optimizer in zip(_PARTS, self._optimizers, strict=True):
            optimizer.restore(pick(arrays, f"{part}."))

    @override
    def result(self) -> Payload:
        machine = self._machine
        # A trial may end before the last mini-batch.
        self._take_updates(self._updates + len(machine.gradients[0]))
        return {"own": machine.own, "upper": machine.upper}


class DataForward(_AptTask):
    """Adds the parts of its own mini-batch, and does the rest of the forward pass."""

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        machine = self._machine
        parts = self._read(inputs, "part", "model_forward")
        parts[machine.rank] = machine.parts.pop(iteration)
        self._figures = machine.forward(iteration, parts)
        return {}


class DataBackward(_AptTask):
    """The backward pass down to layer 1, and the sum of its gradients."""

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        machine = self._machine
        of_parts = machine.backward(iteration)
        machine.of_sums[iteration] = of_parts.pop(machine.rank)
        gradient = machine.gradients[1][iteration]
        if machine.ranks > 1:
            share_vector(
                self._process,
                f"w{machine.rank}",
                gradient,
                iteration,
            )
        return {f"Mb{rank}": {"of_part": array} for rank, array in of_parts.items()}


class ModelBackward(_AptTask):
    """The gradient of layer 1's weights, of every share of this machine."""

    @override
    def work(
        self,
        iteration: int,
        inputs: Inputs,
    ) -> dict[str, Payload]:
        machine = self._machine
        of_parts = self._read(inputs, "of_part", "data_backward")
        of_parts[machine.rank] = machine.of_sums.pop(iteration)
        machine.add_gradient(iteration, of_parts)
        if machine.ranks > 1 and machine.strategy != "nfp":
            gradient = machine.gradients[0][iteration]
            share_vector(
                self._process,
                f"v{machine.rank}",
                gradient,
                iteration,
            )
        return {}
