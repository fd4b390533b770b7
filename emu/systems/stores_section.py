"""Key ``stores`` of systems with graph stores: which machines own a part of the graph.

Storage apart from those that compute, as GiGL, GLT and AliGraph have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr
from typing_extensions import override

from emu.errors import ScenarioError
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import Few, Name
from emu.problem.fields.section import Resources
from emu.systems import Edit, Keys, Names, Problems
from emu.systems.cache_section import CachedSection
from emu.systems.job_section import name_problems
from emu.units import SIZE


def _checked(found: Any) -> Any:
    """Return names, a number or a word; refuse all else in one line."""
    if found is None or found == "auto":
        return found
    # Not isinstance: True is an int to Python, and no number of stores.
    if type(found) is int and found > 0:
        return found
    is_list = isinstance(found, list | tuple) and bool(found)
    if is_list and all(isinstance(name, str) for name in found):
        return found
    problem = "write names of machines, how many there are, or auto"
    raise ValueError(f"found {found!r}, {problem}")


class StoresSection(CachedSection):
    """A job whose graph is owned by graph stores, each on a machine of its own."""

    stores: Annotated[
        Annotated[tuple[Name, ...], Field(min_length=1)] | Few | Literal["auto"] | None,
        BeforeValidator(_checked),
    ] = Field(default=None, examples=[["s0", "s1"]])
    """Machines with a graph store, by name, or how many; the others that take part own
    nothing. Of a number ``placement: best`` chooses which, of those with room and no
    gpu where these are enough, else of all; another policy takes the first of them.
    With ``auto`` best chooses the number, too, of all. By default each that takes part
    has one."""

    _pool: Names = PrivateAttr(default=())
    """Machines of which some are chosen, those with room for a store first."""

    @property
    def _store(self) -> Resources:
        """Resources that one store needs."""
        demands: Any = self.demands
        store: Resources = demands.graph_store
        return store

    @property
    def has_stores_apart(self) -> bool:
        """True where some machines that take part may own nothing."""
        return isinstance(self.stores, tuple | int)

    @property
    def store_keys(self) -> Keys:
        """The key as a file states it, none where it does not."""
        return self.model_dump(
            mode="json",
            exclude_none=True,
            include={"stores"},
        )

    @override
    def owners(self, machines: Sequence[str]) -> Names:
        if isinstance(self.stores, tuple):
            return self.stores
        if isinstance(self.stores, int):
            # The pool says which, the cluster in which order: parts go by that.
            pool = self.choice_pool(machines)
            first = pool[: self.stores]
            return tuple(name for name in machines if name in first)
        return self.ranks(machines)

    def candidates(self, machines: Sequence[str]) -> Names:
        """Return the machines on which stores may stand."""
        if self.machines is None:
            return tuple(machines)
        return self.machines

    @property
    @override
    def chosen_count(self) -> int | None:
        if isinstance(self.stores, int):
            return self.stores
        return None

    @override
    def choice_pool(self, machines: Sequence[str]) -> Names:
        return self._pool or self.candidates(machines)

    @override
    def on_cluster(self, cluster: ClusterSection) -> Self:
        if self.stores is None:
            return self
        sections = cluster.by_name
        candidates = self.candidates(cluster.names)
        names = [name for name in candidates if name in sections]
        needed = self._store.amounts()
        with_room = cluster.roomy(needed)
        # A stable sort: within those with room and without the cluster's order stays.
        names.sort(key=lambda name: name not in with_room)

        roomy = [name for name in names if name in with_room]
        # A store needs no gpu: machines that have one are left to workers.
        storage = [name for name in roomy if not sections[name].gpu]
        count = self.stores
        if isinstance(count, int) and count <= len(storage):
            names = storage
        # Where no machine has room, all stay: placement then says what is lacking.
        elif self.stores == "auto" and roomy:
            names = roomy
        job = self.model_copy()
        # A private field: a scenario that is written back must not show it.
        job._pool = tuple(names)  # noqa: SLF001 - its own class
        return job

    def with_stores(self, names: Sequence[str], memory: float | None) -> Self:
        """Return the job with stores on these machines, of so much memory each."""
        store = self._store
        if memory is not None:
            store = store.model_copy(update={"memory": memory})
        demands = self.demands.model_copy(update={"graph_store": store})
        keys = {"stores": tuple(names), "demands": demands}
        return self.model_copy(update=keys)

    @override
    def on_machines(self, names: Sequence[str], count: int) -> Self | None:
        """Return the job with graph stores on these machines; None where it has some.

        The user states the memory of one store of a number; with ``auto`` that of one
        on each of ``count`` machines, and fewer need more each.
        """
        if isinstance(self.stores, int):
            if len(names) != self.stores:
                return None
            # The memory of one store of a number is stated, and stays.
            return self.with_stores(names, None)
        if self.stores != "auto":
            return None
        memory = self.memory_of_each(names, count)
        return self.with_stores(names, memory)

    def memory_of_each(self, names: Sequence[str], count: int) -> float | None:
        """Return the memory of stores on these machines, stated of one of ``count``."""
        memory = self._store.memory
        if memory is None:
            return None
        # All stores together hold the same graph, however many there are.
        total = memory * count
        return math.ceil(total / len(names))

    @override
    def machine_keys(self) -> Edit:
        if not isinstance(self.stores, tuple):
            return {}
        return {"job.stores": [*self.stores], **self.memory_key}

    @property
    def memory_key(self) -> Edit:
        """The key of a store's memory, none where it is not stated."""
        memory = self._store.memory
        if memory is None:
            return {}
        size = SIZE.exact(memory)
        return {"job.demands.graph_store.memory": size}

    def check_parts(self, stores: int, vertices: int) -> None:
        """Raise ScenarioError where some of the stores would own nothing."""
        if stores > vertices:
            problem = f"{stores} graph stores for {vertices:,} vertices: write fewer"
            raise ScenarioError(problem, key="job.stores")

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        yield from super().problems(cluster)
        names = self.candidates(cluster.names)
        most = len(names)
        if isinstance(self.stores, tuple):
            yield from name_problems("stores", self.stores, cluster.names)
        elif isinstance(self.stores, int) and self.stores > most:
            problem = (
                f"found {self.stores}, {most} machines may have one: write "
                f"{most} or fewer"
            )
            yield ("job", "stores"), problem
