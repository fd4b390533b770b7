"""The two settings of the paper's simulation study, and the machines drawn for them.

Demands: the testbed's, section VI-A, which are in logical cores (two per core of its
CPU), while the simulated machines have 4 to 16 CPU cores. Read alike, the jobs need 81
and 181 of 80 and 160 cores on average, and hardly a draw holds a placement, let alone
a second one. So a core counts as two logical ones: 40.5 and 90.5 cores. Machines are
drawn anew until IFS finds a placement, and the draws are counted. The literal reading
is kept as ``logical``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from emu.errors import InfeasiblePlacement
from emu.prediction.placement.baselines import place_ifs
from emu.problem import Cluster, Job, Machine
from emu.systems.dgtp.section import DgtpJobSection
from emu.systems.job_section import BuildContext
from emu.units import SIZE

GB = 1e9
GBIT = 1e9 / 8
NIC_GBITS = (10, 20, 50)
LOGICAL_PER_CORE = {"cores": 2.0, "logical": 1.0}


def demands(reading: str) -> dict[str, dict[str, float]]:
    """Return demand by kind of task and resource, see `LOGICAL_PER_CORE`."""
    core = 1 / LOGICAL_PER_CORE[reading]
    return {
        "graph_store": {},
        "sampler": {"memory": 7 * GB, "cpu": 2 * core},
        "worker": {"memory": 3 * GB, "cpu": 1 * core, "gpu": 1.0},
        "parameter_server": {"memory": 5 * GB, "cpu": 1 * core},
    }


MOST_DRAWS = 10_000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of section VI-B.

    Parameters
    ----------
    dataset, scale
        The synthetic graph whose samples give the volumes, and its size.
    vertices_trained
        Training vertices of the published graph.
    hidden, layers
        Of GraphSAGE.
    search_seconds
        Time that each search has at least when they are compared.
    """

    name: str
    dataset: str
    scale: float
    machines: int
    workers: int
    samplers_per_worker: int
    epochs: int
    fanouts: tuple[int, ...]
    feature_length: int
    classes: int
    vertices_trained: int
    search_seconds: float
    hidden: int = 256
    layers: int = 3

    def job(self, iterations: int, reading: str = "cores") -> Job:
        """Return the job with so many iterations and one reading of its demands."""
        section = DgtpJobSection.model_validate(
            {
                "system": "dgtp",
                "dataset": {"name": self.dataset, "scale": self.scale},
                "model": {"hidden": self.hidden, "layers": self.layers},
                "fanouts": [*self.fanouts],
                "batch_size": self.samplers_per_worker,
                "workers": self.workers,
                "samplers_per_worker": self.samplers_per_worker,
                "iterations": iterations,
                "demands": {
                    kind: {
                        name: SIZE.exact(amount) if name == "memory" else amount
                        for name, amount in amounts.items()
                    }
                    for kind, amounts in demands(reading).items()
                },
            }
        )
        machines = tuple(f"m{m}" for m in range(self.machines))
        return section.build(BuildContext(machines, None, seed=0))

    def whole_run(self, batch: int) -> int:
        """Return the iterations of the training: every sampler walks all vertices."""
        return self.epochs * math.ceil(self.vertices_trained / batch)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            name="products",
            dataset="products-like",
            scale=0.05,
            machines=8,
            workers=16,
            samplers_per_worker=2,
            epochs=5,
            fanouts=(5, 10, 15),
            feature_length=100,
            classes=47,
            vertices_trained=196_615,
            search_seconds=1.5,
        ),
        Setting(
            name="papers100M",
            dataset="papers100m-like",
            scale=0.002,
            machines=16,
            workers=20,
            samplers_per_worker=4,
            epochs=25,
            fanouts=(12, 12, 12),
            feature_length=128,
            classes=172,
            vertices_trained=1_207_179,
            search_seconds=6.0,
        ),
    )
}


def generator(setting: Setting, draw: int, stream: int) -> np.random.Generator:
    """Return an independent generator per setting, draw and purpose."""
    return np.random.default_rng([len(setting.name), draw, stream])


def draw_cluster(
    machines: int, rng: np.random.Generator, nics: str = "symmetric"
) -> Cluster:
    """Return machines of 32-128 GB, 4-16 cores, 1-4 GPUs and a NIC of 10, 20 or 50.

    Whole numbers, uniform. NICs are the same in both directions, or ``asymmetric``:
    each direction is drawn by itself.
    """
    drawn = []
    for m in range(machines):
        nic = float(rng.choice(NIC_GBITS)) * GBIT
        resources = {
            "memory": float(rng.integers(32, 129)) * GB,
            "cpu": float(rng.integers(4, 17)),
            "gpu": float(rng.integers(1, 5)),
        }
        out = nic
        if nics == "asymmetric":
            out = float(rng.choice(NIC_GBITS)) * GBIT
        drawn.append(Machine(f"m{m}", nic, out, resources))
    return Cluster(tuple(drawn))


def feasible_cluster(
    job: Job, rng: np.random.Generator, nics: str = "symmetric"
) -> tuple[Cluster, int]:
    """Return machines that hold ``job`` and how many draws that took.

    Raises InfeasiblePlacement when `MOST_DRAWS` were in vain.
    """
    machines = sum(task.kind == "graph_store" for task in job.tasks)
    for draws in range(1, MOST_DRAWS):
        cluster = draw_cluster(machines, rng, nics)
        # IFS takes a second to say no to 101 tasks; most draws lack cores in all.
        if not _enough_in_all(job, cluster):
            continue
        try:
            place_ifs(job, cluster, rng)
        except InfeasiblePlacement:
            continue
        return cluster, draws
    raise InfeasiblePlacement(
        f"none of {MOST_DRAWS} draws of {machines} machines holds the job",
        resource="cpu",
        shortfall=0.0,
    )


def _enough_in_all(job: Job, cluster: Cluster) -> bool:
    return all(
        sum(task.demands.get(resource, 0.0) for task in job.tasks)
        <= sum(machine.resources[resource] for machine in cluster.machines)
        for resource in cluster.machines[0].resources
    )
