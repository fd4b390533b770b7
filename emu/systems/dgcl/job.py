"""The DGCL job (Cai et al., EuroSys 2021): layers, and gathers of planned stages.

Device i runs ``d0.layer1``, ..., the last of which goes on to its own backward pass,
and ``d0.grad1``, ... of the others. Before layer 2 its stages ``d0.f0``, ``d0.f1``, ...
send; ``f0.0to1`` receives what device 0 sends to device 1 in stage 0. A stage begins
when all of the device's stage before is sent and received. ``b`` does the same with
gradients, stages in reverse. Those of layer 3 are ``d0.f0@3`` and so on. The gradients
of the weights are summed round the ring ``w0.ring0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Job, Realization, Task
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    build_named_job,
    part_elements,
)
from emu.systems.parts import ring_edges, ring_tasks

if TYPE_CHECKING:
    from emu.systems import JobSettings, Times
    from emu.systems.dgcl.keys import DgclKeys
    from emu.systems.dgcl.planner import GatherPlan

#: Most layers of a model.
_LAYERS = range(1, 17)

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    **{f"layer{n}": "emu_nodes.dgcl.programs:Layer" for n in _LAYERS},
    **{f"gradient{n}": "emu_nodes.dgcl.programs:Gradient" for n in _LAYERS},
    **dict.fromkeys(("gather", "scatter"), "emu_nodes.dgcl.programs:Stage"),
    **dict.fromkeys(("gathered", "scattered"), "emu_nodes.dgcl.programs:Received"),
}

#: Content of flows.
CARRIES = {
    ("gather", "gathered"): "embeddings",
    ("scatter", "scattered"): "gradients of embeddings",
}


@dataclass(frozen=True)
class DgclBuilder:
    """Builds the job of a section, along the plans that its data set leads to."""

    section: DgclKeys
    machines: tuple[str, ...]
    """Names of the devices' machines, rank by rank; a host is the device after them."""
    plans: tuple[GatherPlan, ...]
    """Plan of the forward gather before each layer."""
    backward: tuple[GatherPlan, ...]
    """Plan of the gradients of each layer's inputs, see `GatherPlan.reverse`."""

    @property
    def gathers(self) -> Iterator[Gathering]:
        """The gathers of an epoch, forward then backward, in their order."""
        layers = self.section.model.layers
        # Features that are kept leave nothing to gather before layer 1.
        first = 1 + self.section.cache_features
        for layer in range(first, layers + 1):
            before = ""
            if layer > 1:
                before = f"layer{layer - 1}"
            yield Gathering(
                letter="f",
                layer=layer,
                plan=self.plans[layer - 1],
                before=before,
                after=f"layer{layer}",
            )

        # Features need no gradient: none goes back from layer 1.
        for layer in range(layers, 1, -1):
            # The last layer goes on to its own backward pass.
            name = "layer" if layer == layers else "grad"
            yield Gathering(
                letter="b",
                layer=layer,
                plan=self.backward[layer - 1],
                before=f"{name}{layer}",
                after=f"grad{layer - 1}",
            )

    def stages(self, gather: Gathering) -> Iterator[tuple[int, range]]:
        """Yield rank and stages of all in a gather; a host has rows after the first."""
        last_stage = gather.plan.stages
        for rank in range(len(self.machines)):
            # In the stage after the last one a device has all rows, and sends none.
            yield rank, range(last_stage + 1)
        if self.section.plan == "swap":
            host = len(self.machines)
            yield host, range(1, last_stage + 1)


@dataclass(frozen=True)
class Gathering:
    """One gather of embeddings, or one of their gradients."""

    letter: str
    """``f``, or ``b`` for gradients."""
    layer: int
    """Layer whose inputs are gathered."""
    plan: GatherPlan
    """Transfers by stage."""
    before: str
    after: str
    """Tasks of a device on both sides; the first is empty where there is none."""

    def stage(self, rank: int, stage: int) -> str:
        """Return the task of a device that begins a stage."""
        return f"d{rank}.{self.letter}{stage}{self._mark}"

    def receive(self, stage: int, sender: int, receiver: int) -> str:
        """Return the task that receives a transfer."""
        return f"{self.letter}{stage}.{sender}to{receiver}{self._mark}"

    def gate(self, stage: int) -> str:
        """Return the gate before a stage."""
        return f"{self.letter}{stage}.gate{self._mark}"

    @property
    def _mark(self) -> str:
        if self.layer == 2:
            return ""
        return f"@{self.layer}"


def dgcl_job(builder: DgclBuilder, settings: JobSettings) -> Job:
    """Return the job that ``builder`` builds; raise ValueError as `Job`."""
    return build_named_job(
        tasks=_tasks(builder),
        edges=_edges(builder),
        iterations=builder.section.epochs,
        settings=settings,
    )


def dgcl_realization(
    builder: DgclBuilder,
    times: Times,
    widths: Sequence[int],
    parameters: int,
    itemsize: float,
    work: Mapping[str, float] | None = None,
) -> Realization:
    """Return seconds and real bytes of a job of `dgcl_job`.

    ``times``: kind of task -> seconds, 0 of absent ones; ``widths``: of a row of the
    input of each layer; ``parameters``: of the whole model, which go round the ring;
    ``itemsize``: bytes of a number over those of the emulation; ``work``: task ->
    factor on its time, 1 of absent ones.
    """
    epochs = builder.section.epochs
    work = work or {}
    times_of_tasks = []
    for task in _tasks(builder):
        stated = times.get(task.kind, 0.0)
        time = stated * work.get(task.name, 1.0)
        times_of_tasks.append([time] * epochs)

    rows: list[list[float]] = []
    for edge in _edges(builder):
        elements = 0
        if edge.carries == "rows":
            layer, count = edge.place
            elements = count * widths[layer - 1]
        elif edge.carries:
            elements = part_elements(parameters, edge.place)
        size = itemsize * elements
        rows.append([size] * epochs)

    volumes = np.array(rows, dtype=np.float64)
    return Realization(
        times=np.array(times_of_tasks),
        volumes=volumes.reshape(len(rows), epochs),  # a single device has no edges
    )


def _tasks(builder: DgclBuilder) -> Iterator[Task]:
    layers = builder.section.model.layers
    passes = [(f"layer{layer}", layer) for layer in range(1, layers + 1)]
    passes += [(f"gradient{layer}", layer) for layer in range(1, layers)]
    for rank in range(len(builder.machines)):
        for kind, layer in passes:
            # Tasks of gradients are called `grad1` for short.
            name = kind.replace("gradient", "grad")
            yield _on(builder, rank, f"d{rank}.{name}", kind, layer=layer)

    for gather in builder.gathers:
        yield from _gather_tasks(builder, gather)

    yield from ring_tasks(builder.machines)


def _gather_tasks(builder: DgclBuilder, gather: Gathering) -> Iterator[Task]:
    layer = gather.layer
    is_forward = gather.letter == "f"
    sends = "gather" if is_forward else "scatter"
    receives = "gathered" if is_forward else "scattered"
    for rank, stages in builder.stages(gather):
        for stage in stages:
            name = gather.stage(rank, stage)
            yield _on(
                builder,
                rank,
                name,
                sends,
                layer=layer,
                stage=stage,
            )

    for stage, sender, receiver in gather.plan.transfers.tolist():
        name = gather.receive(stage, sender, receiver)
        yield _on(
            builder,
            receiver,
            name,
            receives,
            layer=layer,
            stage=stage,
            sender=sender,
        )

    if builder.section.coordination == "central":
        last_stage = gather.plan.stages
        for stage in range(1, last_stage + 1):
            # The master that waits for everybody, which the paper does without.
            yield Task(
                name=gather.gate(stage),
                kind="coordination",
                process="d0",
                gate=True,
            )


def _on(
    builder: DgclBuilder,
    rank: int,
    name: str,
    kind: str,
    **place: int,
) -> Task:
    """Return a task of a device; ``place`` is what its program learns of it."""
    # The host of a swap is the device after the last one.
    machines = (*builder.machines, builder.section.host)
    # A stage only sends: its time is neither sampling nor training.
    phase = "training"
    if kind in {"gather", "scatter"}:
        phase = ""

    return Task(
        name,
        kind,
        pinned=machines[rank],
        process=f"d{rank}",
        phase=phase,
        program=PROGRAMS[kind],
        settings={"rank": rank, **place},
    )


def _edges(builder: DgclBuilder) -> Iterator[NamedEdge]:
    for gather in builder.gathers:
        yield from _transfer_edges(gather)
        yield from _order_edges(builder, gather)
        if builder.section.coordination == "central":
            yield from _gate_edges(builder, gather)

    last = "layer1" if builder.section.model.layers == 1 else "grad1"
    # What waits for new weights: layer 1, or the gather before it.
    first = "layer1"
    if not builder.section.cache_features:
        first_gather = next(builder.gathers)
        first = first_gather.stage(0, 0).removeprefix("d0.")
    yield from ring_edges(len(builder.machines), giver=last, taker=first)


def _transfer_edges(gather: Gathering) -> Iterator[NamedEdge]:
    """Yield each transfer, and that its two ends wait for it before the next stage."""
    counts = gather.plan.counts.tolist()
    transfers = gather.plan.transfers.tolist()
    for transfer, count in zip(transfers, counts, strict=True):
        stage, sender, receiver = transfer
        task = gather.receive(stage, sender, receiver)
        sending = gather.stage(sender, stage)
        place = (gather.layer, count)
        yield NamedEdge(sending, task, carries="rows", place=place)

        next_of_receiver = gather.stage(receiver, stage + 1)
        next_of_sender = gather.stage(sender, stage + 1)
        yield NamedEdge(task, next_of_receiver)
        # The sender's stage ends with this arrival, too: its flag is set then.
        yield NamedEdge(task, next_of_sender, credit=True)


def _order_edges(builder: DgclBuilder, gather: Gathering) -> Iterator[NamedEdge]:
    """Yield the order of the tasks of each device."""
    for rank in range(len(builder.machines)):
        if gather.before:
            first = gather.stage(rank, 0)
            yield NamedEdge(f"d{rank}.{gather.before}", first)
        last = gather.stage(rank, gather.plan.stages)
        yield NamedEdge(last, f"d{rank}.{gather.after}")
    for rank, stages in builder.stages(gather):
        # Also where it sends and receives nothing: no stage passes another.
        for stage in stages[:-1]:
            task = gather.stage(rank, stage)
            following = gather.stage(rank, stage + 1)
            yield NamedEdge(task, following)


def _gate_edges(builder: DgclBuilder, gather: Gathering) -> Iterator[NamedEdge]:
    """Yield that a gate waits for everybody's stage, and everybody for the gate."""
    for rank, stages in builder.stages(gather):
        for stage in range(gather.plan.stages):
            gate = gather.gate(stage + 1)
            if stage in stages:
                task = gather.stage(rank, stage)
                yield NamedEdge(task, gate, credit=True)
            following = gather.stage(rank, stage + 1)
            yield NamedEdge(gate, following, credit=True)
    for stage, sender, receiver in gather.plan.transfers.tolist():
        task = gather.receive(stage, sender, receiver)
        gate = gather.gate(stage + 1)
        yield NamedEdge(task, gate, credit=True)
