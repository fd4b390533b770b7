"""Groups of processes with a quota of CPU time: control groups, version 1 or 2.

By its quota of every period a machine computes as fast as the cores that it states.

A lab has one folder of them, named by the process that made it, which holds a lock on
it: the kernel lets go when that ends, however it does. A folder without a lock has no
owner any more: the next lab with quotas and ``emu clean`` remove it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from emu.errors import RunError

#: Microseconds of a quota: the least that the kernel takes. What a program has not used
#: of a period is a gift after a pause, as at full speed: tasks of 10 ms of CPU behind
#: pauses took 3.5 times as long with a quarter of a core; of 5 ms in 20 ms, 2.0 times.
QUOTA = 1000
#: Microseconds of a period: below 2 ms the kernel's own timer is late, above 100 ms a
#: program stands still for longer than its peers wait.
SHORTEST = 2000
LONGEST = 100_000
#: Share of this computer's cores that `scale_for` hands out: packets, and who reads
#: their headers, take of the rest.
HANDED_OUT = 0.5


@dataclass(frozen=True)
class CpuQuota:
    """CPU time that a machine may take per period, both in microseconds."""

    quota: int
    period: int

    @property
    def cores(self) -> float:
        """Cores of this computer that it is at most."""
        return self.quota / self.period


def plan_cpu(cores: float, time_scale: float) -> CpuQuota:
    """Return the quota of a machine of so many cores, in dilated time.

    Raises ValueError when it would have less than 1 ms of the longest period.
    """
    share = cores / time_scale
    period = max(SHORTEST, QUOTA / share)
    # Half a microsecond of 1 ms may be missing to what is held to be enough.
    if not round(period) <= LONGEST:
        milliseconds = 1000 * share
        least = 1e6 * QUOTA / LONGEST / 1e3
        raise ValueError(
            f"{cores:g} cores at time scale {time_scale:g} are {milliseconds:.3g} ms "
            f"per second of a core, a quota has {least:g} ms at "
            "least: state more cores, or a smaller time scale"
        )
    quota = share * period
    return CpuQuota(
        quota=round(quota),
        period=round(period),
    )


def scale_for(machines: Sequence[float], cores: float) -> float:
    """Return the least time scale at which a part of a computer's cores is enough."""
    handed_out = HANDED_OUT * cores
    needed = sum(machines)
    return max(1.0, needed / handed_out)


_NAME = "emu-lab-"
#: Largest weight among groups of this computer: a lab gets its quotas beside others.
_SHARES = "262144"
_WEIGHT = "10000"
#: Wall seconds that processes may take to go after they were killed, and between two
#: looks.
_GOING = 2.0
_LOOK = 5e-3
#: Times that a folder is made anew because another lab removed it unlocked.
_TRIES = 5


@dataclass(frozen=True)
class Hierarchy:
    """Where groups with quotas of CPU time are made on this computer."""

    version: int
    folder: Path
    """Group below which a lab makes its own."""
    mount: Path

    @classmethod
    def find(cls) -> Self:
        """Return this process's own. Raises RunError when the kernel offers none."""
        mounts = Path("/proc/self/mountinfo").read_text()
        groups = Path("/proc/self/cgroup").read_text()
        hierarchies = []
        for mount, group in _list_mounts(mounts, groups):
            # In version 2 no group with processes of its own can limit those below it.
            parent = group.parent
            folder = parent if (parent / "cgroup.procs").exists() else group
            hierarchies.append(cls(version=2, folder=folder, mount=mount))
        for mount, group in _list_mounts(mounts, groups, "cpu"):
            hierarchies.insert(0, cls(version=1, folder=group, mount=mount))

        for hierarchy in hierarchies:
            if hierarchy.version == 1 or hierarchy.offers_cpu():
                return hierarchy
        place = hierarchies[0].folder if hierarchies else "/sys/fs/cgroup"
        raise RunError(
            "this computer has no control group with a quota of CPU time: mount cgroup "
            f"v1 with cpu, or v2 with cpu in cgroup.subtree_control of {place}"
        )

    def offers_cpu(self) -> bool:
        """Return whether groups of version 2 below the folder have quotas."""
        controllers = self.folder / "cgroup.subtree_control"
        with contextlib.suppress(OSError):
            if "cpu" not in controllers.read_text().split():
                controllers.write_text("+cpu")
            return True
        return False

    def cores(self) -> float:
        """Return the cores that this process's group may use at most."""
        least = float(len(os.sched_getaffinity(0)))
        for group in (self.folder, *self.folder.parents):
            if group == self.mount.parent:
                break
            with contextlib.suppress(OSError, ValueError):  # it states no quota
                file = group / "cpu.max"
                if file.exists():
                    quota, period = file.read_text().split()
                else:
                    quota = (group / "cpu.cfs_quota_us").read_text()
                    period = (group / "cpu.cfs_period_us").read_text()
                if int(quota) > 0:
                    cores = int(quota) / int(period)
                    least = min(least, cores)
        return least

    def limit(self, group: Path, limit: CpuQuota) -> None:
        """Give a group its quota. Raises OSError when the kernel refuses."""
        if self.version == 2:
            (group / "cpu.max").write_text(f"{limit.quota} {limit.period}")
        else:
            (group / "cpu.cfs_period_us").write_text(f"{limit.period}")
            (group / "cpu.cfs_quota_us").write_text(f"{limit.quota}")

    def weigh(self, top: Path) -> None:
        """Put a lab's groups before whatever else wants a core; OSError if refused."""
        if self.version == 2:
            (top / "cpu.weight").write_text(_WEIGHT)
            (top / "cgroup.subtree_control").write_text("+cpu")
        else:
            (top / "cpu.shares").write_text(_SHARES)


def _list_mounts(
    mounts: str,
    groups: str,
    controller: str = "",
) -> Iterator[tuple[Path, Path]]:
    """Yield mounts of a controller, of version 2 without one, and one's own group."""
    paths: dict[str, str] = {}  # group by controller
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)

    version = "cgroup" if controller else "cgroup2"
    for line in mounts.splitlines():
        first, last = line.split(" - ")
        root, point = first.split()[3:5]
        kind, _, options = last.split(" ", 2)
        if kind != version:
            continue
        if controller and controller not in options.split(","):
            continue

        path = paths.get(controller, "/")
        if root != "/" and path.startswith(root):
            path = path[len(root) :]  # the mount shows a part of the groups
        mount = Path(point)
        group = mount / path.lstrip("/")
        yield mount, group if group.is_dir() else mount


class CpuGroups:
    """A group per machine of a lab, by its quota, from the making to `close`.

    Raises RunError when this computer has no such groups, or refuses a quota.
    """

    def __init__(self, quotas: Mapping[str, CpuQuota]) -> None:
        self._hierarchy = Hierarchy.find()
        remove_left_behind(self._hierarchy)
        self._top, self._lock = _make_locked_folder(self._hierarchy.folder)
        self._groups: dict[str, Path] = {}

        try:
            self._hierarchy.weigh(self._top)
            for number, (machine, limit) in enumerate(quotas.items()):
                group = self._top / str(number)
                group.mkdir()
                self._groups[machine] = group
                self._hierarchy.limit(group, limit)
        except OSError as error:
            self.close()
            raise RunError(
                f"{self._hierarchy.folder} takes no groups with these quotas of CPU "
                f"time: {error.strerror}"
            ) from error

    def take(self, machine: str, process: int) -> None:
        """Put a process, and what it starts, in a group; RunError if it has ended."""
        try:
            (self._groups[machine] / "cgroup.procs").write_text(f"{process}")
        except OSError as error:
            problem = f"machine {machine} has gone: {error.strerror}"
            raise RunError(problem) from error

    def close(self) -> None:
        """Remove the groups; those whose processes do not go are left to the next."""
        _remove(self._top)
        os.close(self._lock)


def _make_locked_folder(parent: Path) -> tuple[Path, int]:
    """Return a new group of this process and a lock on it; RunError if refused."""
    number = 0
    while True:
        top = parent / f"{_NAME}{os.getpid()}-{number}"
        number += 1
        try:
            top.mkdir()
            lock = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock), top.stat()):
                return top, lock
        except (FileExistsError, FileNotFoundError) as error:
            if number > _TRIES and isinstance(error, FileNotFoundError):
                raise RunError(f"{top} is removed as soon as it is made") from error
        except OSError as error:
            raise RunError(
                f"{parent} takes no groups of processes: {error.strerror}; run it as "
                "root"
            ) from error


def groups_left_behind(hierarchy: Hierarchy) -> list[Path]:
    """Return the groups of labs whose owners have ended."""
    groups = []
    for top in sorted(hierarchy.folder.glob(f"{_NAME}*")):
        with contextlib.suppress(OSError):  # it has just gone, or its owner lives
            lock = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                groups.append(top)
            finally:
                os.close(lock)
    return groups


def remove_left_behind(hierarchy: Hierarchy) -> list[Path]:
    """Remove the groups of labs whose owners have ended; return those that stay."""
    for top in groups_left_behind(hierarchy):
        _remove(top)
    return groups_left_behind(hierarchy)


def _remove(top: Path) -> None:
    """Remove a group and all below it, once their processes have gone."""
    deadline = time.monotonic() + _GOING
    while top.exists():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # processes of it are going
                Path(folder).rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK if top.exists() else 0)


def join_group_of(process: int) -> None:
    """Enter the lab's group of a process, if any; RunError when this user may not."""
    mounts = Path("/proc/self/mountinfo").read_text()
    groups = Path(f"/proc/{process}/cgroup").read_text()
    for controller in ("cpu", ""):
        for _, group in _list_mounts(mounts, groups, controller):
            if group.parent.name.startswith(_NAME):
                try:
                    (group / "cgroup.procs").write_text("0")
                except OSError as error:
                    problem = f"cannot join the machine's quota: {error.strerror}"
                    raise RunError(problem) from error
