"""The arrays of a run directory: rates, times, frames, traffic, learnt weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np

from emu.array_types import Array
from emu.emulation.wire.frame_layout import KEPT_ROWS
from emu.errors import DataError
from emu.host.input_file import array_names, one_error, read_arrays
from emu.prediction.analysis.traffic import CALL, OWNER, PACKET, Traffic, messages
from emu.problem import Job, Problem, RateHistory, Realization
from emu.runs.problem_json import MOST
from emu.runs.run_directory import RunDirectory

Arrays: TypeAlias = dict[str, Array]

#: Measured times and volumes, handoffs included: the schedule files hold no bytes of
#: what stayed within a machine, and placing the job anew needs them.
REALIZATION = "realization.npz"
#: Starts and ends as processes reported them: what an audit computes everything from.
REPORTS = "reports.npz"
#: Arrays of reports.npz of (task, iteration).
_OF_TASKS = (
    "task_start",
    "task_end",
    "late",  # run seconds
    "cpu",  # seconds of CPU
    "task_settled",
)
#: Arrays of reports.npz of (edge, iteration).
_OF_FLOWS = (
    "flow_ready",
    "flow_start",
    "flow_end",
    "flow_settled",
)
#: Arrays of reports.npz that a `Schedule` holds; ``quotas`` where some are tuned.
SCHEDULED = ("task_start", "task_end", *_OF_FLOWS, "task_settled", "quotas")
#: Files of a lab: its packets, its samples over time, and the lines of its programs.
FILE = "traffic.npz"
SAMPLES = "samples.npz"
LINES = "lines.npz"
_TRAFFIC = ("packets", "machines", "nics", "programs", "owners")
#: Axes of the arrays of samples.npz, of which the first is the sample. All but the last
#: are counts since the programs began.
_SAMPLED_AXES = {
    "time": 1,  # seconds
    "ran": 1,  # seconds of CPU that they had
    "waited": 1,  # seconds that they waited for a core
    "retransmitted": 2,  # TCP segments that were sent again, by machine
    "timeouts": 2,  # by machine
    "dropped": 3,  # packets that queues dropped, by way (out, in) and machine
    "queued": 3,  # bytes that wait in them likewise
}
SAMPLED = tuple(_SAMPLED_AXES)
#: What was learnt: one flat array, and the names, shapes and offsets of its parts.
NAME = "weights.npz"
_ARRAYS = ("parameters", "names", "shapes", "offsets")
_NONE = -1  # stands in ``shapes`` for the dimensions that a part does not have


def _read(path: Path, names: Collection[str], /, **shapes: tuple[int, ...]) -> Arrays:
    """Return arrays of a run, some of numbers in a shape; NaN: it did not happen.

    Raises DataError as `read_arrays`, when a number is so large that sums of such are
    none, and when an array has another shape.
    """
    arrays = read_arrays(path, names)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            # Products of two such numbers, and sums of them, are numbers, too.
            numbers = array.astype(np.float64)
            # Not `< MOST` of all: NaN compares to nothing,
            # and stands for what did not happen.
            is_beyond = np.abs(numbers) >= MOST
            _require(not is_beyond.any(), f"{name} holds what is no number", path)
        shape = shapes.get(name)
        if shape is not None:
            fits = array.shape == shape and array.dtype == np.float64
            _require(fits, f"{name} has shape {array.shape}, not {shape}", path)

    return arrays


def _require(condition: object, problem: str, path: Path) -> None:
    """Raise DataError with a problem of a file unless a condition holds."""
    if not condition:
        raise DataError(problem, path=path)


def read_realization(job: Job, path: Path) -> Realization:
    """Return the content of realization.npz."""
    arrays = _read(path, ("times", "volumes"))
    try:
        realization = Realization(arrays["times"], arrays["volumes"])
        realization.check_shapes(job)
    except ValueError as error:
        raise DataError(f"cannot be used: {error}", path=path) from error
    return realization


def read_frames(job: Job, path: Path) -> Arrays:
    """Return what processes noted of frames, by the names of `Evidence`.

    ``sent``, ``received``, ``connections`` and ``waits`` are rows of
    `emu.emulation.wire.frame_layout`; ``notified`` arrivals of (edge, iteration) as
    reported to the coordinator; ``began`` when (task, iteration) began to compute;
    ``turns`` of the coordinator; ``board`` as senders found it. Runs of an earlier emu
    have no rows of connections and boards and no turns, and NaN for ``began``.
    """
    of_tasks = (len(job.tasks), job.iterations)
    of_edges = (len(job.edges), job.iterations)
    # What runs of an earlier emu lack.
    arrays: Arrays = {
        "began": np.full(of_tasks, np.nan),
        "turns": np.empty((0, 4)),
    }
    for name in ("connections", "waits", "board"):
        kind = KEPT_ROWS[name]
        arrays[name] = np.empty(0, kind)

    known = array_names(path)
    names = [name for name in arrays if name in known]
    names += ["sent", "received", "notified"]
    arrays |= _read(path, names, notified=of_edges, began=of_tasks)

    turns = arrays["turns"]
    are_turns = turns.shape[1:] == (4,)
    _require(are_turns, "holds no turns of the coordinator", path)
    for name, kind in KEPT_ROWS.items():
        rows = arrays[name]
        are_rows = rows.dtype == kind and rows.ndim == 1
        _require(are_rows, "holds no rows of frames", path)
    return arrays


def read_reports(problem: Problem, path: Path) -> Arrays:
    """Return starts and ends as they were reported, seconds, and what goes with them.

    By (task, iteration) ``task_start`` and ``task_end``, run seconds ``late``, CPU
    seconds ``cpu``; by (edge, iteration) ``flow_ready``, ``flow_start``, ``flow_end``
    and the iteration in ``reads``; ``task_settled`` and ``flow_settled`` of the
    schedule; ``sends``: rows of `emu.emulation.network.send_log.SendLog`; ``quotas`` of
    the schedule where some are tuned.
    """
    job = problem.job
    tuners = len(problem.cluster.tuned_names)
    of_tasks = (len(job.tasks), job.iterations)
    of_edges = (len(job.edges), job.iterations)
    shapes = dict.fromkeys(_OF_TASKS, of_tasks)
    shapes |= dict.fromkeys(_OF_FLOWS, of_edges)
    names = [*shapes, "reads", "sends"]
    if tuners:
        names.append("quotas")
    arrays = _read(path, names, **shapes)

    reads = arrays["reads"]
    sends = arrays["sends"]
    fits = reads.shape == of_edges or not reads.size  # where nothing reads the latest
    fits = fits and reads.dtype == np.int64
    fits = fits and sends.dtype == np.float64
    _require(fits, "holds no iterations that were read", path)
    if tuners:
        quotas = arrays["quotas"]
        are_whole = quotas.dtype == np.int64
        are_of_tuners = quotas.shape[1:] == (tuners,)
        fits = are_whole and are_of_tuners and not (quotas < 0).any()
        _require(fits, f"holds no quotas of {tuners} tuners", path)
    return arrays


def read_rates(job: Job, path: Path) -> RateHistory:
    """Return the content of rates.npz."""
    arrays = _read(path, ("time", "rate", "edge", "iteration"))
    try:
        rates = RateHistory(
            time=arrays["time"].astype(np.float64),
            rate=arrays["rate"].astype(np.float64),
            edge=arrays["edge"].astype(np.int64),
            iteration=arrays["iteration"].astype(np.int64),
        )
    except ValueError as error:
        raise DataError(f"holds no numbers: {error}", path=path) from error

    shapes = {array.shape for array in arrays.values()}
    _require(len(shapes) == 1, "holds arrays of different lengths", path)
    edges = len(job.edges)
    # numpy would take -1 for the last flow.
    is_edge = (rates.edge >= 0) & (rates.edge < edges)
    is_iteration = (rates.iteration >= 0) & (rates.iteration < job.iterations)
    is_known = is_edge & is_iteration
    _require(is_known.all(), "names flows that the job does not have", path)
    return rates


def write_traffic(run: Path, traffic: Traffic) -> None:
    """Write traffic.npz: the fields of `Traffic`, and the ``messages`` in it."""
    RunDirectory(run).write_arrays(
        FILE,
        packets=traffic.packets,
        messages=messages(traffic.packets),
        machines=np.array(traffic.machines, dtype=np.str_),
        nics=traffic.nics,
        programs=np.array(traffic.programs, dtype=np.str_),
        owners=traffic.owners,
        calls=traffic.calls,
    )


def read_samples(run: Path) -> Arrays:
    """Return the samples of a lab, arrays by the names of `SAMPLED`."""
    path = run / SAMPLES
    # `np.savez` compresses nothing: an archive that
    # unpacks to more was not written here.
    arrays = read_arrays(path, SAMPLED, inflation=1)
    time = arrays["time"]
    samples = len(time) if time.ndim else 0

    for name, array in arrays.items():
        has_samples = samples > 0 and array.shape[:1] == (samples,)
        has_axes = array.ndim == _SAMPLED_AXES[name]
        are_numbers = array.dtype.kind in "iuf"
        fits = has_samples and has_axes and are_numbers
        problem = f"{name} has shape {array.shape} for {samples} samples"
        _require(fits, problem, path)
        numbers = array.astype(np.float64)
        # NaN is refused here, as all of these are counts: it compares to nothing.
        is_number = np.abs(numbers) < MOST
        _require(is_number.all(), f"{name} holds what is no number", path)
    return arrays


def write_lines(run: Path, times: Sequence[Array]) -> None:
    """Write lines.npz: ``program`` and ``time`` of every line that was printed.

    ``times``: seconds by line, of every program in the order of lab.json.
    """
    programs = np.arange(len(times), dtype=np.uint16)
    counts = [len(row) for row in times]
    # An empty array first: numpy refuses to join none.
    all_times = np.concatenate([np.zeros(0), *times])
    RunDirectory(run).write_arrays(
        LINES,
        program=np.repeat(programs, counts),
        time=all_times,
    )


def read_lines(run: Path) -> Arrays:
    """Return the arrays of `write_lines`."""
    path = run / LINES
    arrays = _read(path, ("program", "time"))
    program = arrays["program"]
    time = arrays["time"]
    fits = program.shape == time.shape and time.ndim == 1
    _require(fits, "is damaged: holds no times of lines", path)
    are_numbers = program.dtype.kind == "u" and time.dtype.kind == "f"
    has_times = are_numbers and bool((time >= 0).all())
    _require(has_times, "is damaged: a line has no time", path)
    return arrays


def read_traffic(run: Path) -> Traffic:
    """Return the traffic of a lab."""
    path = run / FILE
    if not path.exists():
        _require(run.is_dir(), "there is no such run directory", run)
        is_lab = (run / "lab.json").exists()
        _require(is_lab, "is no run of a lab: `emu lab FILE` writes one", run)
        raise DataError(f"has no {FILE}: the lab ran with capture: false", path=run)

    with one_error(path):
        # A lab of an earlier emu noted no calls.
        names = [*_TRAFFIC]
        if "calls" in array_names(path):
            names.append("calls")
        arrays = read_arrays(path, names, inflation=1)
        packets = arrays["packets"]
        nics = arrays["nics"]
        owners = arrays["owners"]
        calls = arrays.get("calls", np.empty(0, CALL))
        machines = arrays["machines"].tolist()
        programs = arrays["programs"].tolist()
        traffic = Traffic(
            packets=packets.astype(PACKET),
            machines=tuple(map(str, machines)),
            nics=nics.astype(np.float64),
            programs=tuple(map(str, programs)),
            owners=owners.astype(OWNER),
            calls=calls.astype(CALL),
        )
        _check(traffic)
    return traffic


def _check(traffic: Traffic) -> None:
    """Raise ValueError where arrays of a lab's traffic do not fit together."""
    nics = traffic.nics
    packets = traffic.packets
    owners = traffic.owners
    calls = traffic.calls
    machines = len(traffic.machines)

    distinct_names = set(traffic.machines)
    has_every_nic = nics.shape == (2, machines)
    if not has_every_nic or len(distinct_names) != machines:
        raise ValueError(f"it holds NICs of shape {nics.shape}")
    has_rate = (nics > 0) & (nics < MOST)
    if not has_rate.all():
        raise ValueError("a NIC has no rate")
    if {packets.ndim, owners.ndim, calls.ndim} != {1}:
        raise ValueError("its packets are no rows")
    for times in (packets["time"], calls["begin"], calls["end"]):
        has_time = (times >= 0) & (times < MOST)
        if not has_time.all():
            raise ValueError("a packet or a call has no time")

    named_machines = [
        packets["source"],
        packets["destination"],
        owners["machine"],
        calls["machine"],
        calls["peer"],
    ]
    for numbers in named_machines:
        is_beyond = numbers >= machines
        if is_beyond.any():
            raise ValueError(f"it names a machine beyond the {machines} that it lists")
    for numbers in (owners["program"], calls["program"]):
        is_beyond = numbers >= len(traffic.programs)
        if is_beyond.any():
            raise ValueError("it names a program that it does not list")


def write_weights(run: Path, parts: Mapping[str, Array]) -> None:
    """Write weights.npz: ``parameters``, and name, shape and offset of each part."""
    names = list(parts)
    arrays = list(parts.values())
    most = max(array.ndim for array in arrays)
    extents = np.full((len(arrays), most), _NONE, np.int64)
    flat_arrays = []
    sizes = []
    for row, array in zip(extents, arrays, strict=True):
        row[: array.ndim] = array.shape
        flat_arrays.append(array.ravel())
        sizes.append(array.size)

    ends = np.cumsum(sizes, dtype=np.int64)
    RunDirectory(run).write_arrays(
        NAME,
        parameters=np.concatenate(flat_arrays),
        names=np.array(names, dtype=np.str_),
        shapes=extents,
        offsets=ends - sizes,
    )


def read_weights(run: Path) -> Arrays:
    """Return the parts of weights.npz by name, in the order of the parameters."""
    path = run / NAME
    arrays = read_arrays(path, _ARRAYS)
    flat = arrays["parameters"]
    names = arrays["names"]
    shapes = arrays["shapes"]
    offsets = arrays["offsets"]
    is_whole = (
        flat.ndim == names.ndim == offsets.ndim == 1
        and shapes.ndim == 2
        and flat.dtype.kind == "f"
        and names.dtype.kind == "U"
        and shapes.dtype == np.int64
        and offsets.dtype == np.int64
        and len(shapes) == len(names)
        and len(offsets) == len(names)
        and len({*names}) == len(names)
    )
    _require(is_whole, "is damaged: holds no named parts", path)

    parts = {}
    start = 0
    for row, name in enumerate(names.tolist()):
        shape = [extent for extent in shapes[row].tolist() if extent != _NONE]
        end = start + prod(shape)
        offset = int(offsets[row])
        is_within = min(shape, default=0) >= 0 and end <= len(flat)
        if offset != start or not is_within:
            problem = f"is damaged: {name!r:.60} is not within its parameters"
            raise DataError(problem, path=path)
        # A view: copies of all weights would take their memory twice.
        part = flat[start:end]
        parts[name] = part.reshape(shape)
        start = end
    rest = len(flat) - start
    _require(not rest, f"is damaged: {rest} parameters have no name", path)
    return parts
