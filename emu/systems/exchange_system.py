"""Records of systems whose parts exchange what their sections state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from emu.problem import Job
from emu.problem.workloads.exchange import read_exchanges
from emu.systems.setup import Transfer, ghost_features
from emu.systems.system import (
    GRADIENT_MODULES,
    System,
    Variant,
    calling,
    equal_states,
    first_tasks,
    initial_weights,
    on_demand,
)

#: Layers of a model, at most.
_LAYERS = range(1, 17)


def _list_programs() -> Iterator[tuple[str, str]]:
    yield "layer0", "emu_nodes.partition.programs:Layer"
    for layer in _LAYERS:
        yield f"layer{layer}", "emu_nodes.partition.programs:Layer"
        yield f"gradient{layer}", "emu_nodes.partition.programs:Gradient"


def _list_carried() -> Iterator[tuple[tuple[str, str], str]]:
    """Yield kinds of the two tasks of an edge, and what it carries."""
    for layer in _LAYERS:
        forward = f"layer{layer}"
        backward = f"gradient{layer - 1}"
        yield (f"layer{layer - 1}", forward), "rows"
        yield (forward, backward), "gradients of rows"
        yield (f"gradient{layer}", backward), "gradients of rows"


#: What ``nodes`` runs for each kind of task, whatever is exchanged.
PROGRAMS = dict(_list_programs())
CARRIES = dict(_list_carried())


#: Kinds of task of which the first that a job has steps the weights of a part.
_STEPPING = ("layer0", "layer1")


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield weights, and features that others own unless epochs exchange them."""
    from emu.graph_data.dependencies import open_dependencies  # noqa: PLC0415 - numpy

    exchanges = read_exchanges(job.settings)
    exchanged_layers = {exchange.layer for exchange in exchanges}
    if 1 not in exchanged_layers:
        dataset, (graph, *_) = open_dependencies(job.settings)
        ranks = range(graph.parts)
        reads = [graph.part(rank).vertices for rank in ranks]
        precision = np.dtype(job.settings["precision"])
        row_bytes = precision.itemsize * dataset.feature_length
        tasks = first_tasks(job, _STEPPING)
        yield from ghost_features(tasks, reads, dataset.owner, row_bytes)
    yield from initial_weights(job)


def exchange_system(
    name: str,
    section: str,
    variants: Mapping[str, Variant] | None = None,
    knobs: Mapping[str, tuple[object, ...]] | None = None,
) -> System:
    """Return the record of a system, whose ``section`` is an `ExchangeSection`.

    ``section``: its import path ``module:Class``; a module with ``TRANSLATION`` as
    well, for tables of systems.
    """
    module, _, _ = section.partition(":")
    all_knobs: dict[str, tuple[object, ...]] = {"partitioner": ("metis", "hash")}
    all_knobs.update(knobs or {})
    return System(
        name,
        on_demand(section),
        programs=PROGRAMS,
        translation=on_demand(f"{module}:TRANSLATION"),
        trainer=calling("emu.training.exchanged:train_exchanged"),
        needs_torch=True,
        late_modules=GRADIENT_MODULES,
        open_data=calling("emu.graph_data.dependencies:open_dependencies"),
        # With one layer there is no `gradient1`: layer 1 ends the step itself.
        step_kinds=("gradient1", "layer1"),
        **equal_states(*_STEPPING),
        setup=_list_setup,
        carries=CARRIES,
        knobs=all_knobs,
        variants=variants or {},
    )
