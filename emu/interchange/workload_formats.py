"""Formats of workloads: what a file is, and the job that it states."""

from __future__ import annotations

from pathlib import Path

from emu.errors import DataError
from emu.host.limits import large_files
from emu.interchange.chakra import read_chakra
from emu.interchange.coflow_trace import read_trace
from emu.interchange.goal import read_schedule
from emu.interchange.kineto import read_traces
from emu.interchange.recognise import (
    PROFILE,
    SCENARIO,
    WORKLOAD,
    Format,
    recognise,
    refuse_other_formats,
)
from emu.interchange.wfcommons import read_workflow
from emu.interchange.workload import Workload

KINETO = Format(
    "a trace of torch.profiler (Kineto)",
    (WORKLOAD, PROFILE),
    left_out="ranges of Python and of the program's own names, arrows, memory",
    keys=frozenset({"traceEvents"}),
    pattern=r'"distributedInfo"|"cat":\s*"(cpu_op|kernel|user_annotation)"',
)
EXECUTION_TRACE = Format(
    "an execution trace of PyTorch that was not converted",
    conversion="chakra_trace_link --rank 0 --chakra-host-trace FILE "
    "--chakra-device-trace KINETO.json --output-file LINKED.json; chakra_converter "
    "PyTorch --input LINKED.json --output NAME.0.et (github.com/mlcommons/chakra)",
    keys=frozenset({"schema", "nodes"}),
    pattern=r'"(ctrl_deps":\s*\d|schema":\s*"[\d.]+-chakra)',
)
CHAKRA_JSON = Format(
    "a Chakra execution trace (JSON)",
    (WORKLOAD,),
    left_out="attributes beyond those of exchanges, inputs and outputs of nodes",
    pattern=r'"(workload_graph|nodes|data_?deps|ctrl_?deps|nodetype|node_type)"|"version"'
    r':\s*"0\.0\.4"|_NODE"',
    suffixes=(".json", ".et"),
)
CHAKRA = Format(
    "a Chakra execution trace (protobuf)",
    (WORKLOAD,),
    left_out=CHAKRA_JSON.left_out,
    suffixes=(".et",),
)
WFCOMMONS = Format(
    "a workflow of WfCommons",
    (WORKLOAD,),
    left_out="cores beyond one, memory, power, bytes of disks",
    keys=frozenset({"schemaVersion", "workflow"}),
)
GOAL = Format(
    "a GOAL schedule (LogGOPSim, ATLAHS)",
    (WORKLOAD,),
    left_out="network interfaces (nic), the costs of LogGOPS",
    pattern=r"\A(\s|//[^\n]*\n|/\*(.|\n)*?\*/)*num_ranks\s+\d+",
)
COFLOWS = Format(
    "a trace of coflow-benchmark (Facebook's)",
    (WORKLOAD,),
    pattern=r"\A\s*\d+[ \t]+\d+[ \t]*\r?\n(?s:.*?)\d:[\d.]",
)
#: In the order in which they are tried.
WORKLOAD_FORMATS = (
    KINETO,
    EXECUTION_TRACE,
    WFCOMMONS,
    CHAKRA_JSON,
    CHAKRA,
    GOAL,
    COFLOWS,
    Format(
        "a trace for chrome://tracing",
        (PROFILE,),
        keys=frozenset({"traceEvents"}),
    ),
    Format(
        "a scenario of emu",
        (SCENARIO,),
        keys=frozenset({"cluster", "job"}),
    ),
    Format(
        "a workload file of emu",
        (SCENARIO,),
        keys=frozenset({"machines", "edges", "volumes"}),
    ),
    Format(
        "a text workload of ASTRA-sim 1",
        conversion="chakra_converter Text --input FILE --output NAME --num-npus N "
        "--num-passes 1 (github.com/mlcommons/chakra), then NAME.0.et",
        pattern=r"\A(DATA|MODEL|HYBRID_\w+|MICRO|TRANSFORMER\w*|DLRM\w*)[^\n]*\n\s*\d+\s*\n",
    ),
    Format(
        "a log of jobs in the Standard Workload Format",
        conversion="it states no bytes between tasks: write its jobs as jobs of a "
        "scenario (docs/scenarios.md#jobs)",
        pattern=r"\A(;.*\n)+\s*\d+(\s+-?\d+(\.\d+)?){17}\s*$",
    ),
    Format(
        "a table of Alibaba's cluster trace",
        conversion="it states no bytes between tasks: write its jobs as jobs of a "
        "scenario (docs/scenarios.md#jobs)",
        pattern=r"\A\S+,[\d.]+,j_\d+,\d+,[A-Z][a-z]+,\d+,\d*,|\Ajob_name,task_name,inst_",
    ),
    Format(
        "a log of jobs of Philly (Microsoft)",
        conversion="it states no bytes between tasks: write its jobs as jobs of a "
        "scenario (docs/scenarios.md#jobs)",
        inner=frozenset({"attempts", "jobid", "vc"}),
    ),
    Format(
        "a Pegasus workflow (DAX)",
        conversion="PegasusLogsParser of WfCommons (pip install wfcommons) makes "
        "JSON of its run",
        pattern=r"<adag\b",
    ),
    Format(
        "an Nsight Systems report",
        conversion="trace the program by torch.profiler instead, a file per rank",
        suffixes=(".nsys-rep", ".qdrep"),
    ),
    Format(
        "a Paraver trace",
        conversion="it states no dependencies: a GOAL schedule of it can be read",
        magic=b"#Paraver",
    ),
    Format(
        "a binary GOAL schedule",
        conversion="emu import-workload of the text that txt2bin made it of",
        suffixes=(".goal", ".goal.bin"),
    ),
)


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
        problem = (
            "is no trace of torch.profiler, coflow-benchmark, GOAL or Chakra, and "
        )
        raise DataError(f"{problem}no workflow of WfCommons", path=path)

    with large_files((lambda _: None) if large else None):
        if row is KINETO:
            if copies:
                raise DataError(f"is {row.name}: name one of every rank", path=path)
            return read_traces(paths, in_order=in_order, time_scale=time_scale)
        is_chakra = row in (CHAKRA, CHAKRA_JSON)
        options = {
            "--in-order": in_order,
            "--time-scale": time_scale != 1,
            "--copies": bool(copies) and not is_chakra,
        }
        for option, is_given in options.items():
            if is_given:
                problem = f"is {row.name}: {option} is for another format"
                raise DataError(problem, path=path)
        if len(paths) > 1:
            problem = f"is {row.name}, and {len(paths)} files are given: name one"
            raise DataError(problem, path=path)
        if is_chakra:
            return read_chakra(path, copies=copies, large=large)
        readers = {WFCOMMONS: read_workflow, GOAL: read_schedule, COFLOWS: read_trace}
        return readers[row](path)
