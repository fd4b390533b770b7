"""For the tests of users and our own: problems with known answers, strategies.

Must not know: processes and sockets. `emu.testing.strategies` needs Hypothesis.
"""

from emu.testing.problems import two_machine_example
from emu.testing.workloads import bench_directory, load_workload

__all__ = ["bench_directory", "load_workload", "two_machine_example"]
