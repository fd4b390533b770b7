"""Jobs of every system that trains; their data set is named and never read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.problem import Job
from emu.systems.exchange_section import ExchangeSection
from emu.systems.job_section import BuildContext
from emu.systems.system import systems
from emu.systems.whole_graph_section import WholeGraphSection

_SAMPLED = {
    "dataset": "products-like",
    "model": {"hidden": 4, "layers": 2},
    "fanouts": "all",
    "batch_size": 4,
    "iterations": 2,
}
_WHOLE = {
    "dataset": "products-like",
    "model": {"hidden": 4, "layers": 2},
    "epochs": 2,
}
_RATES = dict.fromkeys(("aggregate", "multiply", "sample", "collect"), "1 ns")
_RATES |= {"step": "1 ns", "launch": "1 us"}


def section_of(system: str, **keys: Any) -> Any:
    """Return section ``job`` of a system, with these keys beside the least ones."""
    section_type = systems()[system].section()
    least = _WHOLE if issubclass(section_type, WholeGraphSection) else _SAMPLED
    if issubclass(section_type, ExchangeSection):
        least = {**_WHOLE, "rates": _RATES}
    return section_type.model_validate({"system": system, **least, **keys})


def context_of(machines: Sequence[str], window: int | None = None) -> BuildContext:
    """Return what a job takes from other sections: machines and a credit window."""
    return BuildContext(tuple(machines), window, seed=7)


def job_of(
    system: str, machines: Sequence[str], window: int | None = None, **keys: Any
) -> Job:
    """Return the job of a system on machines of these names."""
    job: Job = section_of(system, **keys).build(context_of(machines, window))
    return job
