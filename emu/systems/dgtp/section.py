"""Section ``job`` of ``system: dgtp``: sampled GNN training with parameter servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from typing_extensions import override

from emu.fields.quantities import Few  # noqa: TC001 - for pydantic
from emu.fields.section import Resources, Section
from emu.problem import Realization
from emu.systems.dgtp.job import DgtpConfig, dgtp_job, dgtp_times
from emu.systems.dgtp.volumes import realize_volumes
from emu.systems.training_section import TrainingSection
from emu.workloads.all_reduce import all_reduce_edge_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.fields.cluster_section import ClusterSection
    from emu.graph_data import Dataset
    from emu.problem import Cluster, Job
    from emu.systems.job_section import BuildContext, Problems, Times


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


class DgtpJobSection(TrainingSection):
    """DGTP: stores -> samplers -> workers -> parameter servers -> workers."""

    traced: ClassVar[bool] = True

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
    ring: Literal["rank", "placed"] = "rank"
    """Order of the workers in ``sync: ring``, by number or ``placed``: with the fewest
    neighbours across a NIC or slow link. Searches judge by number."""
    parameter_servers: Few = 1
    """Parameters are sharded over them; not counted where workers sum."""
    demands: DemandsSection = DemandsSection()
    """Resources per process of each kind."""
    sampling: Literal["oneshot", "multiround"] = "oneshot"
    """``oneshot``: stores have all structure; ``multiround``: a request per hop."""

    grows_with: ClassVar[tuple[str, ...]] = (
        "workers",
        "samplers_per_worker",
        "parameter_servers",
    )

    @override
    def least_edges(self, machines: Sequence[str]) -> int:
        """Return those between stores and samplers, and those of gradients."""
        samplers = self.workers * self.samplers_per_worker
        rounds = 1 if self.sampling == "oneshot" else 2 * (self.hops + 1)
        fetched = (len(machines) * rounds + 1) * samplers
        if self.sync == "parameter_server":
            return fetched + 2 * self.workers * self.parameter_servers
        return fetched + all_reduce_edge_count(self.workers, self.sync)

    @property
    @override
    def rings_follow_placement(self) -> bool:
        """True where the ring is put in order again after placement."""
        return self.ring == "placed"

    @property
    @override
    def asks_for_gpus(self) -> str:
        """The key that a gpu per worker would go without, empty where it is stated."""
        return "demands.worker.gpu" if self.demands.worker.gpu is None else ""

    @override
    def on_gpus(self) -> Self:
        """Return the job with a gpu for each worker, where nothing is said of gpus."""
        worker = self.demands.worker
        if worker.gpu is None:
            worker = worker.model_copy(update={"gpu": 1.0})
        demands = self.demands.model_copy(update={"worker": worker})
        return self.model_copy(update={"demands": demands})

    @property
    @override
    def sampler_batch(self) -> int:
        """Seeds per sampler and iteration, B_s."""
        return self.batch_size // self.samplers_per_worker

    @override
    def samplers(self, machines: Sequence[str]) -> int:
        """Return the number of samplers, of all workers."""
        return self.workers * self.samplers_per_worker

    @override
    def problems(self, cluster: ClusterSection) -> Problems:
        """Yield (where, what is wrong and what would be right) between its keys."""
        yield from super().problems(cluster)
        if self.batch_size % (samplers := self.samplers_per_worker):
            each = self.batch_size // samplers
            even = [str(n * samplers) for n in (each, each + 1) if n]
            problem = (
                f"{self.batch_size} seeds cannot be shared evenly by {samplers} "
                "samplers (job.samplers_per_worker), write batch_size: "
                f"{' or '.join(even)}"
            )
            yield ("job", "batch_size"), problem
        if self.sync == "halving_doubling" and self.workers & (self.workers - 1):
            problem = (
                f"halving and doubling needs 2, 4, 8, ... workers, found "
                f"{self.workers}: write ring"
            )
            yield ("job", "sync"), problem
        if self.ring == "placed" and self.sync != "ring":
            problem = f"sync is {self.sync}, which has no ring: write sync: ring"
            yield ("job", "ring"), problem

    @override
    def build(self, context: BuildContext) -> Job:
        """Return the job; see `dgtp_job`."""
        return dgtp_job(self.config(context))

    def config(self, context: BuildContext) -> DgtpConfig:
        """Return the shape of the job, with the settings of its node programs."""
        demands = {kind: amounts.amounts() for kind, amounts in self.demands}
        return DgtpConfig(
            machines=context.machines,
            workers=self.workers,
            samplers_per_worker=self.samplers_per_worker,
            parameter_servers=self.parameter_servers,
            iterations=self.count_batches(context),
            hops=self.hops,
            sampling=self.sampling,
            sync=self.sync,
            window=context.window,
            demands=demands,
            settings=self._settings(context),
        )

    def _settings(self, context: BuildContext) -> dict[str, Any]:
        return {
            **self.training_settings(context),
            "partitioner": self.partitioner,
            "sampler_batch_size": self.sampler_batch,
            "parts": len(context.machines),
            "workers": self.workers,
            "samplers_per_worker": self.samplers_per_worker,
            "parameter_servers": self.parameter_servers,
            "sampling": self.sampling,
        }

    @override
    def realize_sampled(
        self,
        job: Job,
        times: Times,
        dataset: Dataset,
        context: BuildContext,
        cluster: Cluster,
    ) -> Realization:
        """Return seconds and real bytes of ``job`` on its data set."""
        return Realization(dgtp_times(job, times), realize_volumes(job, dataset))
