"""Control groups with quotas: as fast as stated, and nothing left of any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import RunError
from emu.lab.machines import cpu_groups
from emu.lab.machines.cpu_groups import (
    CpuGroups,
    CpuQuota,
    Hierarchy,
    plan_cpu,
    remove_left_behind,
)

QUARTER = plan_cpu(1.0, 4.0)


@pytest.fixture(scope="session")
def at() -> Hierarchy:
    """Return where groups are made, if they can be made here."""
    try:
        found = Hierarchy.find()
        CpuGroups({"m": QUARTER}).close()
    except RunError as error:
        pytest.skip(f"no groups here: {error}")
    return found


def groups(at: Hierarchy) -> set[Path]:
    return {*at.folder.glob(f"emu-lab-{os.getpid()}-*")}


LOOP = """
import time
end = time.thread_time() + 0.2
while time.thread_time() < end: pass
ran, waited, _ = open("/proc/self/schedstat").read().split()
print(int(waited) / int(ran))
"""


def test_a_loop_takes_as_long_as_its_quota_says(at: Hierarchy) -> None:
    """Another load of this computer only adds to that, so there is no upper limit."""
    taken = CpuGroups({"m": QUARTER})
    program = subprocess.Popen(
        [sys.executable, "-c", f"input();{LOOP}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    taken.take("m", program.pid)
    said, _ = program.communicate("\n")
    taken.close()

    assert float(said) > 0.9 * 3
    assert groups(at) == set()


KILLED = """
import subprocess, time
from emu.lab.machines.cpu_groups import CpuGroups
from emu.lab.machines.cpu_groups import plan_cpu
groups = CpuGroups({"a": plan_cpu(1.0, 4.0), "b": plan_cpu(0.5, 4.0)})
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
groups.take("a", child.pid)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_a_killed_owner_left_goes_with_the_next_start(at: Hierarchy) -> None:
    """Also with a process in it that outlives the owner for a while."""
    owner = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        (mine,) = at.folder.glob(f"emu-lab-{owner.pid}-*")
        remove_left_behind(at)
        stayed = (mine / "1").exists()  # its owner lives
        owner.kill()
    assert mine.exists()
    os.kill(child, signal.SIGKILL)
    CpuGroups({"m": QUARTER}).close()

    assert stayed
    assert not mine.exists()
    assert groups(at) == set()


def test_emu_clean_removes_what_a_killed_owner_left(
    at: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_groups, "_GOING", 0.2)
    owner = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        (mine,) = at.folder.glob(f"emu-lab-{owner.pid}-*")
        lives = CliRunner().invoke(app, ["clean", "--runs", str(tmp_path)])
        owner.kill()
    where = ["clean", "--runs", str(tmp_path)]
    seen = CliRunner().invoke(app, [*where, "--dry-run"])
    there = mine.exists()
    stays = CliRunner().invoke(app, where)
    os.kill(child, signal.SIGKILL)
    done = CliRunner().invoke(app, where)

    assert str(mine) not in lives.output
    assert f"found {mine}" in seen.output
    assert there
    assert stays.exit_code == 3
    assert "processes are in it" in " ".join(stays.output.split())
    assert f"removed {mine}" in done.output
    assert not mine.exists()


def test_a_program_that_made_groups_of_its_own_leaves_none(at: Hierarchy) -> None:
    taken = CpuGroups({"m": QUARTER})
    (top,) = groups(at)
    (top / "0" / "nested").mkdir()
    taken.close()

    assert groups(at) == set()


def test_a_process_that_stays_is_left_to_the_next(
    at: Hierarchy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_groups, "_GOING", 0.05)
    taken = CpuGroups({"m": QUARTER})
    with subprocess.Popen(["sleep", "600"]) as stays:
        taken.take("m", stays.pid)
        began = time.monotonic()
        taken.close()
        assert time.monotonic() < began + 5.0
        assert len(groups(at)) == 1
        stays.kill()
    remove_left_behind(at)

    assert groups(at) == set()


def test_a_quota_that_the_kernel_refuses_is_named_and_leaves_nothing(
    at: Hierarchy,
) -> None:
    with pytest.raises(RunError, match="takes no groups with these quotas"):
        CpuGroups({"m": CpuQuota(quota=10, period=10)})
    assert groups(at) == set()


@pytest.mark.usefixtures("at")
def test_a_machine_that_has_gone_is_named() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    taken = CpuGroups({"m": QUARTER})
    with pytest.raises(RunError, match="machine m has gone"):
        taken.take("m", gone.pid)
    taken.close()


# Of version 2, whose cpu controller is not to be had where version 1 has it: what is
# read and written there.

MOUNT2 = "40 30 0:38 {root} {at} rw,relatime - cgroup2 cgroup2 rw"
MOUNT1 = "32 31 0:29 {root} {at} rw - cgroup cgroup rw,cpu,cpuacct"


@pytest.mark.parametrize(
    ("root", "own", "folder"),
    [("/", "/", "."), ("/", "/user/x", "user/x"), ("/docker/7", "/docker/7/y", "y")],
)
@pytest.mark.parametrize("version", [1, 2])
def test_one_s_own_group_is_below_the_mount(
    version: int, root: str, own: str, folder: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    mounts = (MOUNT1 if version == 1 else MOUNT2).format(root=root, at=tmp_path)
    groups = f"4:cpu,cpuacct:{own}" if version == 1 else f"0::{own}"
    controller = "cpu" if version == 1 else ""

    found = [*cpu_groups._list_mounts(mounts, groups, controller)]

    assert found == [(tmp_path, tmp_path / folder)]


def test_a_group_of_version_2_gets_what_its_files_take(tmp_path: Path) -> None:
    at = Hierarchy(2, tmp_path, tmp_path)
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    assert at.offers_cpu()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    at.limit(tmp_path, QUARTER)
    at.weigh(tmp_path)

    assert (tmp_path / "cpu.max").read_text() == "1000 4000"
    assert (tmp_path / "cpu.weight").read_text() == "10000"
    assert at.cores() == pytest.approx(0.25)


def test_the_least_quota_of_all_groups_around_counts(tmp_path: Path) -> None:
    """Neither ``max`` nor -1 is a quota, and what no group states limits nothing."""
    everywhere = len(os.sched_getaffinity(0))
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "cpu.max").write_text("max 100000")
    assert Hierarchy(2, inner, tmp_path).cores() == everywhere
    (inner / "cpu.max").write_text("50000 100000")
    (tmp_path / "outer" / "cpu.max").write_text("10000 100000")
    assert Hierarchy(2, inner, tmp_path).cores() == 0.1
    for name in ("cpu.max", "outer/cpu.max", "outer/inner/cpu.max"):
        (tmp_path / name).unlink()

    (inner / "cpu.cfs_period_us").write_text("1000")
    (inner / "cpu.cfs_quota_us").write_text("-1")
    assert Hierarchy(1, inner, tmp_path).cores() == everywhere
    (inner / "cpu.cfs_quota_us").write_text("300")
    assert Hierarchy(1, inner, tmp_path).cores() == 0.3
