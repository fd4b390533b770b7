"""Name of a host in a run where none is stated."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How engines number what they start: mpirun, PMIx, PMI, srun, torchrun, a Job's pods.
_RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "GROUP_RANK",
    "JOB_COMPLETION_INDEX",
)


def own_host_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return ``hostN`` where an engine gave the rank N, else the name of this host.

    Which hosts an engine hands out is not known before it does; ranks are.
    """
    for variable in _RANKS:
        rank = environment.get(variable, "")
        if rank.isascii() and rank.isdecimal():
            return f"host{rank}"
    return platform.node() or "host"
