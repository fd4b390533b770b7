"""Every error that emu raises for a reason outside its own code.

    EmulatorError
    ├── ScenarioError(file, line, key)      the scenario file is wrong
    │   └── ScenarioErrors(errors)          in several places
    ├── DataError(path)                     a graph, profile or run file is wrong
    ├── PlacementError
    │   └── InfeasiblePlacement(resource)   the cluster is too small
    ├── SchedulingError                     an event that the schedule does not allow
    ├── WireError                           bytes from a peer that are not ours
    │   ├── FrameTooLarge
    │   ├── TruncatedFrame
    │   └── MalformedFrame
    ├── RunError                            an emulated run could not be finished
    │   ├── NodeLost                        a process died or was cut off
    │   ├── NodeMisbehaved                  a process broke the protocol
    │   └── DeadlineExceeded                no process died, but nothing came
    ├── ExpectationMissed                   the run ended, not as the scenario expects
    └── RunUntrusted                        the run ended, the host had not kept up

Misuse by the caller is a ValueError or TypeError, as everywhere in Python. Each class
names its exit code, so that ``emu`` ends a shell script with the cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override


class EmulatorError(Exception):
    """Base of all errors raised for a reason outside emu's own code."""

    exit_code: ClassVar[int] = 1

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes the same error in another process: pickle would call it."""
        return _make_again, (type(self), self.args, vars(self))


def _make_again(
    kind: type[EmulatorError], values: tuple[Any, ...], fields: dict[str, Any]
) -> EmulatorError:
    error = kind.__new__(kind, *values)
    vars(error).update(fields)
    return error


class ScenarioError(EmulatorError):
    """A scenario file that cannot be used.

    ``problem`` is what was found and what would be right; ``file``, ``line`` (from 1)
    and ``key`` (dotted) say where, empty or 0 when that is unknown.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: str = "",
        line: int = 0,
        key: str = "",
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.key = key
        where = f"{file}:{line}" if file and line else file
        parts = filter(None, (where, key, problem))
        super().__init__(": ".join(parts))


#: Lines of a file's errors: one mistake may be made in each of 500 rows.
_LINES = 20


class ScenarioErrors(ScenarioError):
    """Several errors of one scenario file, a line each, and how many are not shown.

    They are in the order of the file, at least one; its fields are those of the first.
    """

    def __init__(self, errors: Sequence[ScenarioError]) -> None:
        first = errors[0]
        super().__init__(first.problem, file=first.file, line=first.line, key=first.key)
        self.errors = tuple(errors)
        lines = [str(error) for error in errors[:_LINES]]
        if len(errors) > _LINES:
            place = f"{first.file}: " if first.file else ""
            count = len(errors) - _LINES
            words = "error is" if count == 1 else "errors are"
            lines.append(f"{place}{count} more {words} not shown")
        self.args = ("\n".join(lines),)


class DataError(EmulatorError):
    """A file of graph data, a profile or a run directory that cannot be used."""

    exit_code = 3

    def __init__(self, problem: str, *, path: Path | str = "") -> None:
        self.problem = problem
        self.path = str(path)
        super().__init__(f"{path}: {problem}" if self.path else problem)


class PlacementError(EmulatorError):
    """A placement that cannot be used; ``key`` of the scenario decides about it."""

    exit_code = 4
    key = "placement"


class InfeasiblePlacement(PlacementError):
    """No placement satisfies the capacities.

    ``problem`` says what does not fit. ``resource`` is the one that binds, empty when
    several bind together, and falls short by ``shortfall`` in its unit; ``key`` of the
    scenario decides about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        resource: str = "",
        shortfall: float = 0.0,
        key: str = "cluster.machines",
    ) -> None:
        self.resource = resource
        self.shortfall = shortfall
        self.key = key
        super().__init__(problem)


class SchedulingError(EmulatorError):
    """An event that does not fit the state of the schedule."""

    exit_code = 5


class WireError(EmulatorError):
    """Bytes from a peer that are not a frame of ours."""

    exit_code = 5


class FrameTooLarge(WireError):
    """A length beyond the agreed limit, refused before anything was allocated."""


class TruncatedFrame(WireError):
    """A connection that ended inside a frame."""


class MalformedFrame(WireError):
    """A frame whose prefix, header or tensor shapes contradict each other."""


class RunError(EmulatorError):
    """An emulated run that could not be finished.

    ``seen`` and ``noticed`` are when the first sign of it came, and when the run was
    given up, on the clock of the coordinator's host; NaN where none was under way.
    ``processes`` are those that have died, empty where it is not known which.
    """

    exit_code = 5
    seen: float = math.nan
    noticed: float = math.nan
    processes: tuple[str, ...] = ()


class NodeLost(RunError):
    """A node process or agent that died or was cut off."""


class NodeMisbehaved(RunError):
    """A node process that broke the protocol."""


class DeadlineExceeded(RunError):
    """A wait that outlived its deadline; the message names who waits for whom."""


class ExpectationMissed(EmulatorError):
    """A run that ended otherwise than the scenario's ``expect`` section says."""

    exit_code = 6


class RunUntrusted(EmulatorError):
    """A run whose verdict is not ``trusted``, where only that will do."""

    exit_code = 7
