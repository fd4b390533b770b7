"""Threads of a rank on several cores: time by the CPU that they say they used."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab
from emu.virtual.launch import nodes_of_command, plan_ranks
from emu.virtual.rank.thread_cpu import ThreadCpu
from emu.virtual.run_virtual import Settings, find_shared_cores, run_virtual
from tests import draws

pytest.importorskip("torch", reason="ranks need torch")

#: Threads hash so many blocks each, without the interpreter's lock.
PROGRAM = """
import hashlib, json, threading, time
import torch.distributed as dist
dist.init_process_group("gloo")
data = bytes(1 << 20)

def hash_blocks(blocks, used):
    begin = time.thread_time()
    for _ in range(blocks):
        hashlib.sha256(data)
    used.append(time.thread_time() - begin)

for parts in ((120, 40), (40, 120), (80, 80, 80)):
    dist.barrier()
    used = []
    begin = time.perf_counter()
    threads = [threading.Thread(target=hash_blocks, args=(n, used)) for n in parts[1:]]
    for thread in threads:
        thread.start()
    hash_blocks(parts[0], used)
    for thread in threads:
        thread.join()
    dist.barrier()
    print(json.dumps([time.perf_counter() - begin, used]), flush=True)
"""


def cluster_file(folder: Path, cores: str = "") -> Path:
    file = folder / "cluster.yaml"
    machine = f"{{name: m, count: 2, nic: 1 Gbit/s{cores}}}"
    file.write_text(f"cluster:\n  machines:\n    - {machine}\n")
    return file


@pytest.mark.slow
@pytest.mark.cold  # pages of a copy are copied when they are first written to
@pytest.mark.timeout(60)
@pytest.mark.parametrize("cores", [draws.rarely(1), 2, draws.rarely(3)])
def test_a_rank_takes_as_long_as_its_busiest_thread(tmp_path: Path, cores: int) -> None:
    """Of one core all threads take their turns; three on two cores take half of all."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    file = load_lab(cluster_file(tmp_path))
    nodes = nodes_of_command([str(program)], file.cluster.names, 2)
    directory = RunDirectory.create("run", tmp_path)
    settings = Settings(at_once=1, threads=cores, free_messages=True)
    run_virtual(file, plan_ranks(nodes, cores), directory, settings, lambda *_: None)

    lines = (directory.path / "rank0.log").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        passed, used = json.loads(line)
        expected = max(*used, sum(used) / cores)
        assert passed == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("ends", ["noted", "not noted"])
def test_threads_that_have_ended_count(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """One that nobody noted is what is left of the CPU of the process."""
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    machine = ThreadCpu(cores=16)
    if ends == "noted":
        machine.note_ends()
    used: list[float] = []

    def compute() -> None:
        begin = time.thread_time()
        while time.thread_time() < begin + 0.05:
            sum(range(1000))
        used.append(time.thread_time() - begin)

    machine.mark()
    for _ in range(3):
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        # Python joins it a moment before the kernel has ended it.
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0.001)

    expected = max(used) if ends == "noted" else sum(used)
    assert machine.passed() == pytest.approx(expected, rel=0.1)


def test_messages_have_a_core_of_their_own_where_there_are_two(tmp_path: Path) -> None:
    file = load_lab(cluster_file(tmp_path, ", cpu: 3"))

    assert find_shared_cores(file, [0, 1], threads=1) == [False, False]
    assert find_shared_cores(file, [0, 0, 1], threads=1) == [True, True, False]
    unstated = load_lab(cluster_file(tmp_path))
    assert find_shared_cores(unstated, [0, 1], threads=1) == [True, True]
    assert find_shared_cores(unstated, [0, 1], threads=2) == [False, False]
