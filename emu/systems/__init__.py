"""Systems: each in a room of its own, found by the entry-point group ``emu.systems``.

A room ``emu/systems/NAME`` holds the keys of its ``job`` section, the tasks, edges and
volumes that follow from them, and what its results mean; its node programs stand in
``emu_nodes``. Nothing outside the rooms names a system. docs/systems.md adds one.

Must not know: scenario files, sockets, other rooms than those that it builds on.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Edit", "Problems", "Times"]

#: Keys and positions down to a value.
Path: TypeAlias = tuple[str | int, ...]
#: Errors of a section: where its value is, what is wrong with it.
Problems: TypeAlias = Iterator[tuple[Path, str]]
#: Kind of task, or device -> seconds.
Times: TypeAlias = Mapping[str, float]
#: Key -> value, as ``--set`` takes them.
Edit: TypeAlias = dict[str, Any]
#: Keys and values of a section, as a scenario states them.
Keys: TypeAlias = dict[str, Any]
#: What every program of a job gets, ``Job.settings``; msgpack-able.
Settings: TypeAlias = dict[str, Any]
#: The same, to read.
JobSettings: TypeAlias = Mapping[str, Any]
#: Times or volumes, by task or edge and iteration where nothing else is said.
Floats: TypeAlias = "NDArray[np.float64]"
#: Names of machines, in their order.
Names: TypeAlias = tuple[str, ...]
#: What returns a stated time, rate or volume times a factor.
Scale: TypeAlias = Callable[[Any], Any]
#: A time or rate of all devices, or one per device.
PerDevice: TypeAlias = float | dict[str, float]
#: An edit that scales times or links, and the names of those that it covers.
Scaling: TypeAlias = tuple[Edit, set[str]]
