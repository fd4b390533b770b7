"""Keys of ``job`` of ``system: dgtp``, which its builder reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from emu.problem.fields.quantities import Few, Name
from emu.problem.fields.section import Resources, Section
from emu.systems import Settings
from emu.systems.cache_section import CachedSection
from emu.systems.job_section import BuildContext


class DemandsSection(Section):
    """Resources that one process of each kind needs."""

    graph_store: Resources = Resources()
    """Needs of a graph store."""
    sampler: Resources = Resources()
    """Needs of a sampler."""
    worker: Resources = Resources()
    """Needs of a worker; one ``gpu`` where machines have any, ``gpu: 0`` for none."""
    parameter_server: Resources = Resources()
    """Needs of a parameter server."""


class DgtpKeys(CachedSection):
    """Keys of a DGTP job, as a scenario states them."""

    system: Literal["dgtp"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash", "imported"] = "metis"
    """Ownership of vertices. ``metis``: few edges between parts of equal size;
    ``metis-dgl``: as dgl does (Python 3.11 only); ``imported``: as the graph came
    (DistDGL)."""
    workers: Few = 1
    """Workers of the job."""
    samplers_per_worker: Few = 1
    """Sampler s serves worker s // samplers_per_worker."""
    sync: Literal["parameter_server", "ring", "halving_doubling"] = "parameter_server"
    """Sum of gradients, by parameter servers or an all-reduce of the workers
    (``halving_doubling``: 2, 4, 8, ... of them)."""
    machines: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """Machines that take part: a graph store on each, and all other tasks. By default
    all, of which ``placement: best`` may leave some out."""
    ring: Literal["rank", "placed"] = "rank"
    """Order of the workers in ``sync: ring``, by number or ``placed``: with the fewest
    neighbours across a NIC or slow link. Searches judge by number."""
    parameter_servers: Few = 1
    """Parameters are sharded over them; not counted where workers sum."""
    demands: DemandsSection = DemandsSection()
    """Resources per process of each kind."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    """``oneshot``: stores have all structure; ``multiround``: a request per hop."""

    def settings(self, context: BuildContext) -> Settings:
        """Return the settings that every node program of the job gets."""
        stores = len(self.ranks(context.machines))
        samplers = self.workers * self.samplers_per_worker
        return {
            **self.training_settings(context),
            **self.cache_settings(stores, samplers),
            "partitioner": self.partitioner,
            "sampler_batch_size": self.sampler_batch,
            "parts": stores,
            "workers": self.workers,
            "samplers_per_worker": self.samplers_per_worker,
            "parameter_servers": self.parameter_servers,
            "sampling": self.sampling,
        }
