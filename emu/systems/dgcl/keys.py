"""Keys of ``job`` of ``system: dgcl``, which its builder reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from emu.problem.fields.quantities import Duration, Few, Name, Seed
from emu.problem.fields.section import Section
from emu.systems.whole_graph_section import TimePerLayer, WholeGraphSection


class DgclTimesSection(Section):
    """Seconds of a device's layers; of the last, both passes are one task."""

    forward: TimePerLayer | None = None
    """Forward pass of a layer: one time, or one per layer."""
    backward: TimePerLayer | None = None
    """Backward pass of a layer likewise."""
    gather: Duration = 0.0
    """Collect the rows that a stage sends."""
    scatter: Duration = 0.0
    """Sum gradients for a stage back, and collect them."""
    receive: Duration = 0.0
    """Take in one transfer of either."""
    coordination: Duration = 0.0
    """Time of a gate before a stage, for ``coordination: central``."""


class DgclKeys(WholeGraphSection):
    """Keys of a DGCL job, as a scenario states them."""

    system: Literal["dgcl"]
    """Kind of job."""
    plan: Literal[
        "spst", "peer_to_peer", "best_of", "swap", "replication", "dgcl_r"
    ] = "spst"
    """Way of rows: ``spst`` along trees of links; ``peer_to_peer`` straight from their
    owner; ``best_of`` the one of the shorter epochs, as simulated under the schedule's
    policy; ``swap`` all into the memory of a host, and back where they are needed;
    ``replication`` none, each device computes all that its own vertices need;
    ``dgcl_r`` that between ``boxes``, and trees within."""
    host: Name = "host"
    """Machine that ``swap`` leaves rows on, no device; ``topology: dgx1`` and
    ``pcie_8`` have one then."""
    plan_seed: Seed | None = None
    """Seed of the order of the vertices; default is the scenario's."""
    # The released code's. With 0 a path takes detours over links that cost nothing:
    # plans of 8 GPUs and 4,000 vertices cost 14.1, with 1e-6 13.4, with 1e-2 13.3.
    plan_eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4
    """Cost of a link of a way, over a row's time on the fastest."""
    # One by one as in the paper; ten cost 1 to 2 % in t(S), and a tenth of the time.
    plan_group: Few = 1
    """Vertices of equal owner and readers planned at a time."""
    plan_sweeps: Annotated[int, Field(strict=True, ge=0, le=100)] = 0
    """Sweeps in which vertices are planned again."""
    coordination: Literal["decentralized", "central"] = "decentralized"
    """A device begins a stage when its own stage before is over, or, ``central``, when
    everybody's is."""
    backward: Literal["nonatomic", "atomic"] = "nonatomic"
    """``nonatomic``: a stage of gradients is split so that vertices have one writer at
    a time."""
    cache_features: Annotated[bool, Field(strict=True)] = True
    """Keep features of remote vertices: no gather before layer 1."""
    times: DgclTimesSection = DgclTimesSection()
    """Times of the tasks; those of layers are of a device's own vertices, and replicas
    take theirs by the number of their edges."""

    @override
    def ranks(self, machines: Sequence[str]) -> tuple[str, ...]:
        """Return the machines that hold a part: by default all but the host."""
        ranks = super().ranks(machines)
        if self.plan != "swap" or self.machines is not None:
            return ranks
        # The host keeps rows for others, and has no part of its own.
        return tuple(name for name in ranks if name != self.host)
