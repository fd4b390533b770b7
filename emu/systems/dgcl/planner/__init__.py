"""Plans of a graphAllgather: along which links every row travels to who needs it.

Pure and compiled; a plan follows from who needs which rows and from the links alone
(Cai et al., DGCL, EuroSys 2021, section 5).

Must not know: machines, jobs, files.
"""

from emu.systems.dgcl.planner.bound import lower_bound
from emu.systems.dgcl.planner.needs import Needs
from emu.systems.dgcl.planner.plan import (
    Plan,
    PlanError,
    check_plan,
    peer_to_peer,
    swap,
)
from emu.systems.dgcl.planner.spst import spst
from emu.systems.dgcl.planner.topology import Topology

__all__ = [
    "Needs",
    "Plan",
    "PlanError",
    "Topology",
    "check_plan",
    "lower_bound",
    "peer_to_peer",
    "spst",
    "swap",
]
