"""Guards, which say where a run reports what the cluster cannot have done.

Each is computed from what the receivers' kernels and the tasks reported, and shares no
code with the scheduler: nothing here imports `emu.scheduling` or `emu.simulation`, and
import-linter sees to it. A guard that fires makes the run untrusted.
"""

from emu.trust.guards.evidence import Evidence
from emu.trust.guards.examine import examine
from emu.trust.violation import Finding

__all__ = ["Evidence", "Finding", "examine"]
