"""The interface between the runtime of a node process and a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray
from typing_extensions import override

from emu.emulation.wire.data_reader import Sink
from emu.emulation.wire.process_spec import EdgeEnd, ProcessTask
from emu.errors import NodeMisbehaved
from emu.problem.workloads import CHECKPOINT

Array: TypeAlias = NDArray[Any]
#: Tensor name -> C-contiguous array. The bytes of a flow are the sum of their nbytes.
Payload: TypeAlias = dict[str, Array]
#: What goes over out-edges, by their positions.
Payloads: TypeAlias = dict[int, Payload]
#: What came over in-edges, by their positions.
Inputs: TypeAlias = Mapping[int, Payload]
#: Settings of a job or task, by name.
Settings: TypeAlias = Mapping[str, Any]
#: What the tasks of one process share, by name: a partition, weights.
Shared: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class EdgeSpec:
    """One edge as its end sees it."""

    edge: int
    """Position in ``Job.edges``."""
    peer: str
    peer_kind: str
    """Name and kind of the task at the other end."""
    lag: int
    """The destination's iteration n gets what the source produced in n - lag."""
    sent: int
    """Iterations of the source that it carries, from the first on."""


@dataclass(frozen=True)
class TaskSpec:
    """Specification of a task for its program: credit edges are not among its edges.

    Names are those in its own job, of several or the only one: it knows of no other.
    """

    name: str
    kind: str
    iterations: int
    inputs: tuple[EdgeSpec, ...]
    outputs: tuple[EdgeSpec, ...]
    settings: Settings
    job_settings: Settings
    first: int = 0
    """Its first iteration: the others are done, of an attempt before."""


def task_brief(task: ProcessTask, job_settings: Settings, first: int) -> TaskSpec:
    """Return the specification of a task for its program, which begins at ``first``."""

    def local_name(name: str) -> str:
        return name.rpartition("/")[2]

    def brief_edges(ends: Iterable[EdgeEnd]) -> tuple[EdgeSpec, ...]:
        return tuple(
            EdgeSpec(
                edge=end.edge,
                peer=local_name(end.peer),
                peer_kind=end.peer_kind,
                lag=end.lag,
                sent=end.sent + first,
            )
            for end in ends
            if end.peer_kind != CHECKPOINT  # to copies of its state the runner sends
        )

    return TaskSpec(
        name=local_name(task.name),
        kind=task.kind,
        iterations=task.iterations + first,
        inputs=brief_edges(task.inputs),
        outputs=brief_edges(task.outputs),
        settings=task.settings,
        job_settings=job_settings,
        first=first,
    )


class Program(Protocol):
    """The work of one task.

    ``__init__`` loads data and may take its time: the run starts after it. ``process``
    is one plain dict for all tasks of a process: what they share, a partition or
    weights, the first of them puts there.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None: ...

    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        """Return the payload of every out-edge that sends in this iteration.

        Called in a compute thread, one call at a time per process. Input arrays are
        pooled: they are valid during the call only, and those from a task of the same
        process are its own, so they cannot be written. What was returned must not be
        changed afterwards: it may be on its way still.
        """
        ...

    def report(self) -> dict[str, float]:
        """Return figures of the last iteration (loss, accuracy); may be empty."""
        ...

    def result(self) -> Payload:
        """Return the arrays left after the last iteration; by default none."""
        return {}


class TaskProgram(Program):
    """Base of programs: an iteration is `work`, then a `payload` per out-edge."""

    def sinks(self) -> Mapping[int, Sink]:
        """Return what takes the payloads of in-edges as they come, by their positions.

        The inputs of these are empty; all others are kept until they are read.
        """
        return {}

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        self._brief = brief
        self._process = process
        self._figures: dict[str, float] = {}
        self._reads: Mapping[int, int] = {}

    def read(self, iterations: Mapping[int, int]) -> None:
        """Take which iteration every in-edge brings that reads the newest."""
        self._reads = iterations

    @override
    def run(self, iteration: int, inputs: Inputs) -> Payloads:
        content = self.work(iteration, inputs)
        return {
            output.edge: self.payload(output, iteration, content)
            for output in self._brief.outputs
            if sends(output, iteration)
        }

    def work(self, _iteration: int, _inputs: Inputs) -> Any:
        """Return what `payload` takes from: by default what goes over every edge."""
        return {}

    def payload(self, _output: EdgeSpec, _iteration: int, made: Any) -> Payload:
        """Return what goes over one out-edge, of what `work` has made."""
        payload: Payload = made
        return payload

    @override
    def report(self) -> dict[str, float]:
        return self._figures


class TaskByPeer(TaskProgram):
    """Base of programs whose `work` returns payloads by the task at the other end."""

    @override
    def payload(self, output: EdgeSpec, _iteration: int, made: Any) -> Payload:
        payload: Payload = made.get(output.peer, {})
        return payload


class Copy(TaskProgram):
    """Takes the state of a task on another machine."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self.owner: str = brief.settings["of"]
        self.kept: dict[int, Payload] = {}
        """State that the last iteration brought, if it brought one, by its cut."""

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        (payload,) = inputs.values()
        state = {name: array.copy() for name, array in payload.items()}
        cut = iteration - self._brief.settings["missed"]
        self.kept = {cut: state} if state else {}
        return {}


class KeepsState(Protocol):
    """Further members of a program that a job can go on from after a cut.

    Everything else that it holds must follow from its settings and the iteration.
    ``missed`` and ``late_updates`` it has only where updates of earlier iterations are
    on their way at a cut.
    """

    missed: int
    """Iterations from a cut until the last of them has come."""

    def state(self, iteration: int) -> Payload:
        """Return copies of all that it has before an iteration; not empty."""
        ...

    def restore(self, state: Mapping[str, Payload]) -> None:
        """Begin with what tasks had before iteration ``brief.first``, by their names.

        The arrays must be copied: other tasks may begin with them, too.
        """
        ...

    def late_updates(self, iteration: int) -> Payload:
        """Return, before iteration cut + ``missed``, what has come since the cut."""
        ...


def tensor(
    payload: Payload,
    name: str,
    sender: EdgeSpec,
    shape: tuple[int, ...] | None = None,
) -> Array:
    """Return one tensor of an input.

    Raises NodeMisbehaved when the sender left it out, or it is not of this shape.
    """
    if name not in payload:
        raise NodeMisbehaved(f"{sender.peer} sent {sorted(payload)}, not {name}")
    array = payload[name]
    if shape is not None and array.shape != shape:
        raise NodeMisbehaved(
            f"{sender.peer} sent {name} of shape {array.shape}, not {shape}"
        )
    return array


def pick(payload: Payload, prefix: str) -> Payload:
    """Return the arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in payload.items()
        if name.startswith(prefix)
    }


def sends(output: EdgeSpec, iteration: int) -> bool:
    """Return True where an out-edge has data for ``iteration``, as ``Job.sends``."""
    return iteration < output.sent
