"""Guards, which say where a run reports what the cluster cannot have done.

Each is computed from what the receivers' kernels and the tasks reported, and shares no
code with the scheduler: nothing here imports `emu.scheduling` or `emu.simulation`, and
import-linter sees to it. A guard that fires makes the run untrusted.
"""

from emu.analysis.guards.evidence import Evidence
from emu.analysis.guards.examine import examine
from emu.analysis.violation import Finding

__all__ = ["Evidence", "Finding", "examine"]
