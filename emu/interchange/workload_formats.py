"""The job that a workload of others states, whichever format its file has."""

from __future__ import annotations

from pathlib import Path

from emu.errors import DataError
from emu.host.confinement import confine
from emu.host.limits import large_files
from emu.interchange.chakra import read_chakra
from emu.interchange.coflow_trace import read_trace
from emu.interchange.goal import read_schedule
from emu.interchange.kineto import read_traces
from emu.interchange.known_formats import WORKLOAD_FORMATS
from emu.interchange.recognise import WORKLOAD, recognise, refuse_other_formats
from emu.interchange.wfcommons import read_workflow
from emu.interchange.workload import Workload

#: Readers of what is one file, and knows no options.
_READERS = {"wfcommons": read_workflow, "goal": read_schedule, "coflows": read_trace}


@confine
def read_workload(
    *paths: Path,
    copies: int = 0,
    in_order: bool = False,
    time_scale: float = 1.0,
    large: bool = False,
) -> Workload:
    """Return the workload of a file, or of one per rank, whichever format it has.

    Parameters
    ----------
    paths
        One; of traces of torch.profiler one per rank.
    copies
        Ranks that have one Chakra trace.
    in_order
        Ranks of traces are in the order of the files, where these do not say it.
    time_scale
        Seconds of traces of torch.profiler per second of the job.
    large
        True to take more than is safe with files of strangers.

    Raises DataError when it is none of these, cannot be, or an option is of another
    format.
    """
    path = paths[0]
    refuse_other_formats(path, WORKLOAD, WORKLOAD_FORMATS)
    row = recognise(path, WORKLOAD_FORMATS)
    if row is None:
        raise DataError(
            "is no trace of torch.profiler, coflow-benchmark, GOAL or Chakra, and "
            "no workflow of WfCommons",
            path=path,
        )

    with large_files((lambda _: None) if large else None):
        if row.reader == "kineto":
            if copies:
                raise DataError(f"is {row.name}: name one of every rank", path=path)
            return read_traces(paths, in_order=in_order, time_scale=time_scale)
        is_chakra = row.reader == "chakra"
        options = {
            "--in-order": in_order,
            "--time-scale": time_scale != 1,
            "--copies": bool(copies) and not is_chakra,
        }
        # Ignored, an option would give another job than its user meant.
        for option, is_given in options.items():
            if is_given:
                raise DataError(
                    f"is {row.name}: {option} is for another format",
                    path=path,
                )
        if len(paths) > 1:
            raise DataError(
                f"is {row.name}, and {len(paths)} files are given: name one",
                path=path,
            )
        if is_chakra:
            return read_chakra(path, copies=copies, large=large)
        return _READERS[row.reader](path)
