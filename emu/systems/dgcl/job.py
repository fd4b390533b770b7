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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from emu.problem import Job, Realization, Task
from emu.problem.workloads.all_reduce import (
    NamedEdge,
    all_reduce_edges,
    all_reduce_tasks,
    build_named_job,
    part_elements,
)

if TYPE_CHECKING:
    from emu.systems.dgcl.planner import Plan

#: Most layers of a model.
_LAYERS = range(1, 17)

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    **{f"layer{n}": "emu_nodes.dgcl.programs:Layer" for n in _LAYERS},
    **{f"gradient{n}": "emu_nodes.dgcl.programs:Gradient" for n in _LAYERS},
    "gather": "emu_nodes.dgcl.programs:Gather",
    "gathered": "emu_nodes.dgcl.programs:Gathered",
    "scatter": "emu_nodes.dgcl.programs:Scatter",
    "scattered": "emu_nodes.dgcl.programs:Scattered",
}

#: Content of flows.
CARRIES = {
    ("gather", "gathered"): "embeddings",
    ("scatter", "scattered"): "gradients of embeddings",
}


@dataclass(frozen=True)
class DgclConfig:
    """Shape of a DGCL job."""

    machines: tuple[str, ...]
    """Names of the machines, rank by rank."""
    layers: int
    """Number of layers."""
    epochs: int
    """Iterations of the job."""
    plans: tuple[Plan, ...]
    """Plan of the forward gather before each layer."""
    backward: tuple[Plan, ...]
    """Plan of the gradients of each layer's inputs, as `Plan.reversed` makes it."""
    cache_features: bool = True
    """There is no gather before layer 1: each device keeps the rows it needs."""
    coordination: Literal["decentralized", "central"] = "decentralized"
    """``central``: a stage begins when everybody's stage before is over."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Handed to every node program as it is."""
    host: str | None = None
    """Machine that takes part in gathers alone, as the device after the last."""

    @property
    def gathers(self) -> Iterator[Gathering]:
        """The gathers of an epoch, forward then backward, in their order."""
        for layer in range(1 + self.cache_features, self.layers + 1):
            source = f"layer{layer - 1}" if layer > 1 else ""
            plan = self.plans[layer - 1]
            yield Gathering("f", layer, plan, source, f"layer{layer}")
        for layer in range(self.layers, 1, -1):
            source = f"layer{layer}" if layer == self.layers else f"grad{layer}"
            plan = self.backward[layer - 1]
            yield Gathering("b", layer, plan, source, f"grad{layer - 1}")

    def stages(self, gather: Gathering) -> Iterator[tuple[int, range]]:
        """Yield rank and stages of all that take part in a gather.

        A host begins with the stage that follows the first rows it gets.
        """
        for rank in range(len(self.machines)):
            yield rank, range(gather.plan.stages + 1)
        if self.host is not None:
            yield len(self.machines), range(1, gather.plan.stages + 1)


@dataclass(frozen=True)
class Gathering:
    """One gather of embeddings, or one of their gradients."""

    letter: str
    """``f``, or ``b`` for gradients."""
    layer: int
    """Layer whose inputs are gathered."""
    plan: Plan
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
        return "" if self.layer == 2 else f"@{self.layer}"


def dgcl_job(config: DgclConfig) -> Job:
    """Return the job of ``config``.

    Raises
    ------
    ValueError
        As `Job`.
    """
    return build_named_job(
        _tasks(config), _edges(config), config.epochs, config.settings
    )


def dgcl_realization(
    config: DgclConfig,
    times: Mapping[str, float],
    widths: Sequence[int],
    parameters: int,
    itemsize: float,
    work: Mapping[str, float] | None = None,
) -> Realization:
    """Return seconds and real bytes of a job of `dgcl_job`.

    Parameters
    ----------
    times
        Kind of task -> seconds; ``coordination`` is that of a gate. Kinds that are
        absent take none.
    widths
        Length of a row of the input of each layer.
    parameters
        Of the whole model: all of them go round the ring.
    itemsize
        Bytes of a number, 4 in float32 and 8 in float64, over those of the emulation.
    work
        Task -> factor on its time; absent ones have 1.
    """
    epochs, work = config.epochs, work or {}
    seconds = [
        [times.get(task.kind, 0.0) * work.get(task.name, 1.0)] * epochs
        for task in _tasks(config)
    ]
    rows: list[list[float]] = []
    for edge in _edges(config):
        elements = 0
        if edge.carries == "rows":
            layer, count = edge.place
            elements = count * widths[layer - 1]
        elif edge.carries:
            elements = part_elements(parameters, edge.place)
        rows.append([itemsize * elements] * epochs)
    volumes = np.array(rows, dtype=np.float64).reshape(len(rows), epochs)
    return Realization(np.array(seconds), volumes)


def _tasks(config: DgclConfig) -> Iterator[Task]:
    for rank in range(len(config.machines)):
        for name, kind, count in (
            ("layer", "layer", config.layers),
            ("grad", "gradient", config.layers - 1),
        ):
            for layer in range(1, count + 1):
                task = f"d{rank}.{name}{layer}"
                yield _on(config, rank, task, f"{kind}{layer}", layer=layer)
    for gather in config.gathers:
        yield from _gather_tasks(config, gather)
    workers = [
        Task(f"w{rank}", "worker", pinned=machine, process=f"d{rank}")
        for rank, machine in enumerate(config.machines)
    ]
    yield from all_reduce_tasks(workers)


def _on(config: DgclConfig, rank: int, name: str, kind: str, **place: Any) -> Task:
    """Return a task of a device; ``place`` is what its program learns of it."""
    return Task(
        name,
        kind,
        pinned=(*config.machines, config.host)[rank],
        process=f"d{rank}",
        phase="" if kind in {"gather", "scatter"} else "training",
        program=PROGRAMS[kind],
        settings={"rank": rank, **place},
    )


def _gather_tasks(config: DgclConfig, gather: Gathering) -> Iterator[Task]:
    kinds = {"f": ("gather", "gathered"), "b": ("scatter", "scattered")}
    first, receives = kinds[gather.letter]
    for rank, stages in config.stages(gather):
        for stage in stages:
            name = gather.stage(rank, stage)
            yield _on(config, rank, name, first, layer=gather.layer, stage=stage)
    for stage, sender, receiver in gather.plan.transfers.tolist():
        name = gather.receive(stage, sender, receiver)
        place = {"layer": gather.layer, "stage": stage, "sender": sender}
        yield _on(config, receiver, name, receives, **place)
    if config.coordination == "central":
        for stage in range(1, gather.plan.stages + 1):
            name = gather.gate(stage)
            yield Task(name, "coordination", process="d0", gate=True)


def _edges(config: DgclConfig) -> Iterator[NamedEdge]:
    for gather in config.gathers:
        # Each transfer, and that its two ends wait for it before the next stage.
        for (stage, sender, receiver), count in zip(
            gather.plan.transfers.tolist(), gather.plan.counts.tolist(), strict=True
        ):
            got, place = gather.receive(stage, sender, receiver), (gather.layer, count)
            yield NamedEdge(
                gather.stage(sender, stage), got, carries="rows", place=place
            )
            yield NamedEdge(got, gather.stage(receiver, stage + 1))
            yield NamedEdge(got, gather.stage(sender, stage + 1), credit=True)
        yield from _order_edges(config, gather)
    ranks = range(len(config.machines))
    last = "layer1" if config.layers == 1 else "grad1"
    first = [f"d{rank}.layer1" for rank in ranks]
    if not config.cache_features:
        first = [next(config.gathers).stage(rank, 0) for rank in ranks]
    yield from all_reduce_edges(
        [f"w{rank}" for rank in ranks],
        [f"d{rank}.{last}" for rank in ranks],
        first,
        lag=1,
        carries="parameters",
    )


def _order_edges(config: DgclConfig, gather: Gathering) -> Iterator[NamedEdge]:
    """Yield the order of the tasks of each device, and that of the gates."""
    plan = gather.plan
    for rank in range(len(config.machines)):
        if gather.before:
            yield NamedEdge(f"d{rank}.{gather.before}", gather.stage(rank, 0))
        end = gather.stage(rank, plan.stages)
        yield NamedEdge(end, f"d{rank}.{gather.after}")
    for rank, stages in config.stages(gather):
        for stage in stages[:-1]:
            yield NamedEdge(gather.stage(rank, stage), gather.stage(rank, stage + 1))
    if config.coordination != "central":
        return
    # A gate waits for everybody's stage, and everybody for the gate.
    for rank, stages in config.stages(gather):
        for stage in range(gather.plan.stages):
            gate = gather.gate(stage + 1)
            if stage in stages:
                yield NamedEdge(gather.stage(rank, stage), gate, credit=True)
            yield NamedEdge(gate, gather.stage(rank, stage + 1), credit=True)
    for stage, sender, receiver in gather.plan.transfers.tolist():
        receiver_task = gather.receive(stage, sender, receiver)
        yield NamedEdge(receiver_task, gather.gate(stage + 1), credit=True)
