"""Records of systems whose parts exchange what their sections state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emu.problem import Job
from emu.problem.workloads import parameter_count
from emu.problem.workloads.exchange import read_exchanges
from emu.systems.setup import Transfer, ghost_features
from emu.systems.system import System, Variant, calling, initial_weights, on_demand

#: What ``nodes`` runs for each kind of task, whatever is exchanged.
PROGRAMS = {
    **{f"layer{n}": "emu_nodes.partition.programs:Layer" for n in range(17)},
    **{f"gradient{n}": "emu_nodes.partition.programs:Gradient" for n in range(1, 17)},
}
_LAYERS = range(1, 17)
CARRIES = {
    **{(f"layer{n - 1}", f"layer{n}"): "rows" for n in _LAYERS},
    **{(f"layer{n}", f"gradient{n - 1}"): "gradients of rows" for n in _LAYERS},
    **{(f"gradient{n}", f"gradient{n - 1}"): "gradients of rows" for n in _LAYERS},
}


def _first_tasks(job: Job) -> list[str]:
    """Return the task of every part that steps its weights, rank by rank."""
    kinds = {task.kind for task in job.tasks}
    kind = "layer0" if "layer0" in kinds else "layer1"
    return [task.name for task in job.tasks if task.kind == kind]


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    model = job.settings["model"]
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    # All parts have the same state: the first one's makes a cut for all.
    return {_first_tasks(job)[0]: (count,)}


def _tasks_with_state(job: Job) -> dict[str, tuple[str, ...]]:
    first, *others = _first_tasks(job)
    return dict.fromkeys((first, *others), (first,))


def _list_setup(job: Job) -> Iterator[Transfer]:
    """Yield weights, and features that others own unless epochs exchange them."""
    from emu.graph_data import open_parts  # noqa: PLC0415 - numpy

    if not any(exchange.layer == 1 for exchange in read_exchanges(job.settings)):
        dataset, graph = open_parts(job.settings)
        reads = [graph.part(rank).vertices for rank in range(graph.parts)]
        itemsize = {"float32": 4, "float64": 8}[job.settings["precision"]]
        row = itemsize * dataset.feature_length
        yield from ghost_features(_first_tasks(job), reads, dataset.owner, row)
    yield from initial_weights(job)


def exchange_system(
    name: str, section: str, variants: Mapping[str, Variant] | None = None
) -> System:
    """Return the record of a system, whose ``section`` is an `ExchangeSection`.

    ``section``: its import path ``module:Class``; a module with ``TRANSLATION`` as
    well, for tables of systems.
    """
    module, _, _ = section.partition(":")
    return System(
        name,
        on_demand(section),
        programs=PROGRAMS,
        translation=on_demand(f"{module}:TRANSLATION"),
        trainer=calling("emu.training.exchanged:train_exchanged"),
        needs_torch=True,
        open_data=calling("emu.graph_data:open_parts"),
        trained=lambda job, results: results[_first_tasks(job)[0]]["parameters"],
        # With one layer there is no `gradient1`: layer 1 ends the step itself.
        step_kinds=("gradient1", "layer1"),
        cuts=_tasks_with_state,
        vectors=_vectors,
        setup=_list_setup,
        carries=CARRIES,
        knobs={"partitioner": ("metis", "hash")},
        variants=variants or {},
    )
