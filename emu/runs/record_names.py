"""Names of the records of runs, labs and programs in virtual time.

Apart from what reads and writes them: every command asks for the names as it starts.
"""

from __future__ import annotations

#: Files that result.json follows from, and names the digests of.
RECORDS = (
    "manifest.json",
    "scenario.txt",
    "problem.json",
    "simulated.json",
    "processes.json",
    "rates.npz",
    "realization.npz",
    "reports.npz",
    "frames.npz",
    "training.csv",
    "weights.npz",
    "setup/result.json",
)
#: All that commands read of the directory of a run, of a lab, and of `emu virtual`.
READ = frozenset({
    *RECORDS,
    "result.json",
    "lab.json",
    "virtual.json",
    "traffic.npz",
    "samples.npz",
    "lines.npz",
})  # fmt: skip
