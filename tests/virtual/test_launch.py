"""Parts of ranks and of their start without torch: clocks, commands, verdicts."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.scenario.scenario_file import load_lab
from emu.virtual import nccl_operations as nccl
from emu.virtual.call_group import CallForm, CallGroup
from emu.virtual.calls import Call
from emu.virtual.launch import (
    _expand,
    _read_torchrun,
    _whole,
    _without_python,
    nodes_of_command,
    nodes_of_lab,
)
from emu.virtual.rank import thread_cpu
from emu.virtual.rank.rank_clock import EPOCH, RankClock
from emu.virtual.rank.thread_cpu import ThreadCpu, _cpu_of_threads
from emu.virtual.stall_watch import _cpu_use
from emu.virtual.transports import Transport
from emu.virtual.verdict import COPYING, MOST, Evidence, judge
from emu.virtual.virtual_time import VirtualTime


def test_time_of_a_program_is_that_of_its_clock() -> None:
    """Dates count from a day of 2023; what undoes it gives the real time back."""
    clock = RankClock(speed=1.0, charge=0.0)
    clock.go_to(2.5)
    slept: list[float] = []
    functions = vars(time)
    real = functions["time"]
    give_back = clock.take_over(slept.append)
    try:
        found = (
            functions["time"](),
            time.time_ns(),
            time.monotonic(),
            time.perf_counter_ns(),
        )
        time.sleep(7.0)
    finally:
        give_back()
    assert found == (EPOCH + 2.5, int((EPOCH + 2.5) * 1e9), 2.5, 2_500_000_000)
    assert slept == [7.0]
    assert functions["time"] is real


def test_cpu_of_threads_is_that_of_the_kernel_s_clocks() -> None:
    """The time of this thread lies between two looks at its clock."""
    before = time.thread_time()
    found = _cpu_of_threads()[threading.get_native_id()]
    assert before <= found <= time.thread_time()


def test_a_machine_takes_as_long_as_its_busiest_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread has 6 of 10 s, an ended thread has 3, and an unseen thread has 1."""
    threads = {1: 4.0, 2: 1.0}
    process = [20.0]
    monkeypatch.setattr(thread_cpu, "_cpu_of_threads", lambda: dict(threads))
    clock = SimpleNamespace(process_time=lambda: process[0])
    monkeypatch.setattr(thread_cpu, "time", clock)
    cpu = ThreadCpu(cores=3)
    process[0] = 30.0
    threads[1] = 10.0
    del threads[2]
    cpu._ended = {2: 4.0}
    assert cpu._used() == [3.0, 6.0]
    assert cpu.passed() == 6.0
    # All of it over all cores, or what nobody saw, may be longer.
    process[0] = 50.0
    assert cpu.passed() == 30.0 - 9.0
    threads |= {3: 11.0, 4: 10.0}
    assert cpu.passed() == 11.0
    process[0] = 56.0
    threads |= {3: 9.0, 4: 9.0}
    assert cpu.passed() == 12.0
    process[0] = 57.0
    assert cpu.mark() == 1.0
    assert cpu._ended == {}
    alone = ThreadCpu(cores=1)
    process[0] = 59.0
    assert alone.passed() == 2.0


def test_use_of_a_process_that_sleeps_is_its_ticks() -> None:
    """Ticks are its own and its children's; the use of one that runs always differs."""
    running = _cpu_use(os.getpid())
    assert len(running) == 1
    assert running != _cpu_use(os.getpid())
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            use = _cpu_use(child.pid)
            deadline = time.monotonic() + 10.0
            while use[0] != "S" and time.monotonic() < deadline:
                time.sleep(0.001)
                use = _cpu_use(child.pid)
            text = Path(f"/proc/{child.pid}/stat").read_text()
            fields = text.rpartition(")")[2].split()
            assert [*use] == ["S", *fields[11:15]]
        finally:
            child.kill()


@pytest.mark.parametrize("scale", [0.999, 1.0, 1.001])
def test_a_share_that_is_allowed_is_no_reason(scale: float) -> None:
    """A share exactly at the bound leaves nothing in doubt."""
    evidence = Evidence(
        makespan=1.0,
        steps=[],
        busiest=round(scale * MOST / COPYING),
        computed=1.0,
        small_calls=30,
        children_cpu=MOST,
        cpu=1.0,
        stalls=0,
        others=0.1,
    )
    assert bool(judge(evidence)) == (scale > 1)


def test_what_a_rank_says_is_no_earlier_than_what_it_said() -> None:
    """A rank that says 3 s and then 2 s is at 3 s, due at the 4 s of the network."""
    network: Any = SimpleNamespace(now=4.0)
    clocks = VirtualTime(network, 1, 1)
    clocks.say(0, 3.0, lambda: None)
    clocks.say(0, 2.0, lambda: None)
    assert clocks.ranks[0].clock == 3.0
    assert [due for due, *_ in clocks._due] == [4.0]
    clocks.say(0, 9.0, lambda: None)
    assert clocks.ranks[0].clock == 9.0
    assert len(clocks._due) == 1


@pytest.mark.parametrize(
    ("algorithm", "kind", "room"),
    [("ring", "broadcast", 8), ("ring", "allreduce", 4), ("tree", "allreduce", 8)],
)
def test_a_receiver_has_room_for_a_buffer(algorithm: str, kind: str, room: int) -> None:
    """Four or eight pieces of 64 MiB may come before the first is handed on."""
    call = Call(kind, {"size": 1 << 26, "root": 0, "element": 4}, "")
    lanes = Transport((algorithm,)).lanes(call, 1, 2)
    kinds = [lane.steps.rows[:, 0].tolist() for lane in lanes]
    ahead = {rows[: rows.index(2)].count(1) for rows in kinds if rows[0] == 1}
    assert ahead == {room}


@pytest.mark.parametrize(
    ("chunk", "sizes"),
    [
        (0, []),
        (16, [16]),
        (32_768, [32_768]),
        (65_536, [32_768, 32_768]),
        (65_552, [32_784, 32_768]),
        (2_000_000, [1_000_000, 1_000_000]),
        (2_000_001, [1_000_016, 999_985]),
    ],
)
def test_a_chunk_is_sent_in_two_halves_of_whole_words(
    chunk: int, sizes: list[int]
) -> None:
    """A slice has 32 KiB at the least, the last one what is left."""
    assert nccl._slices(chunk) == sizes


@pytest.mark.parametrize(
    ("algorithms", "kind", "goes_in_order"),
    [
        ((), "allreduce", False),
        ((), "send", False),
        (("ring",), "send", False),
        (("ring",), "allreduce", True),
    ],
)
def test_collectives_of_nccl_go_in_order(
    algorithms: tuple[str, ...], kind: str, *, goes_in_order: bool
) -> None:
    group = CallGroup([0, 1], "nccl", Transport(algorithms))
    figures = {"size": 8, "element": 4, "peer": 1, "tag": 0}
    form = CallForm(group, 0, Call(kind, figures, ""))
    assert form.goes_in_order == goes_in_order
    assert form.is_message == (kind == "send")


def lab_of(folder: Path, run: str, on: str = "all") -> Any:
    """Return a lab of three machines and one program."""
    file = folder / "lab.yaml"
    file.write_text(
        "cluster:\n  machines:\n    - {name: m, count: 3, nic: 1 Gbit/s}\n"
        f"lab: {{programs: [{{name: t, on: {on}, run: '{run}', env: {{A: b}}}}]}}\n"
    )
    return load_lab(file)


def test_the_program_of_a_lab_runs_on_the_machines_that_it_names(
    tmp_path: Path,
) -> None:
    """Programs start by words of a shell, with or without `exec`, or by torchrun."""
    pytest.importorskip("torch", reason="torchrun is of torch")
    (tmp_path / "a.py").write_text("")
    for words in ("{python}", "exec {python}"):
        stated = lab_of(tmp_path, f'{words} {tmp_path}/a.py --x "1 2" $A', "[m2, m1]")
        nodes = nodes_of_lab(stated)
        assert [node.machine for node in nodes] == [2, 1]
        assert nodes[0].command == (f"{tmp_path}/a.py", "--x", "1 2", "b")
        assert [node.ranks for node in nodes] == [1, 1]
        assert nodes[0].environment["A"] == "b"
    line = f"torchrun --nproc-per-node 2 --nnodes 3 {tmp_path}/a.py -y"
    nodes = nodes_of_lab(lab_of(tmp_path, line))
    assert [(node.machine, node.ranks) for node in nodes] == [(0, 2), (1, 2), (2, 2)]
    assert nodes[0].command == (f"{tmp_path}/a.py", "-y")
    lab = lab_of(tmp_path, line)
    assert _expand("a 'b c' $X", {"X": "d", "PATH": ""}, lab) == ["a", "b c", "d"]
    assert _expand("exec a b", {}, lab) == ["a", "b"]
    assert _expand("a exec", {}, lab) == ["a", "exec"]


def test_python_is_taken_off_a_command(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torchrun is of torch")
    file = str(tmp_path / "a.py")
    Path(file).write_text("")
    for words in (["python", "-u", "-u", file, "-u"], ["/x/python3.11", file, "-u"]):
        assert _without_python(words) == [file, "-u"]
    assert _without_python([file, "x"]) == [file, "x"]
    assert _without_python(["python", "-m", "x"]) == ["-m", "x"]
    run = ["-m", "torch.distributed.run"]
    assert _without_python(["/x/torchrun", "-u"]) == [*run, "-u"]
    for words in (["python"], ["python", "-u"], ["b.py"]):
        with pytest.raises(ScenarioError, match="write torchrun with its arguments"):
            _without_python(words)
    assert _read_torchrun([file]) is None
    assert _read_torchrun([*run, "--nproc-per-node=2", file]) == ((file,), 2, 1)
    launch = ["-m", "torch.distributed.launch", "-m", "x", "y"]
    assert _read_torchrun(launch) == (("-m", "x", "y"), 1, 1)
    with pytest.raises(ScenarioError, match="--no-python is not modelled"):
        _read_torchrun([*run, "--no-python", file])


@pytest.mark.parametrize(
    ("text", "number"), [("4", 4), ("4:4", 4), ("1:4", 0), ("0", 0), ("x", 0)]
)
def test_a_number_of_torchrun_may_be_a_range_of_one(text: str, number: int) -> None:
    if number:
        assert _whole(text, "--nnodes") == number
        return
    with pytest.raises(ScenarioError, match=f"found {text}, write one number"):
        _whole(text, "--nnodes")


def test_as_many_ranks_as_machines_are_enough(tmp_path: Path) -> None:
    """A plain program has a rank on each machine; torchrun has its own number."""
    pytest.importorskip("torch", reason="torchrun is of torch")
    file = str(tmp_path / "a.py")
    Path(file).write_text("")
    names = ["m0", "m1"]
    assert [node.machine for node in nodes_of_command([file], names, None)] == [0, 1]
    assert len(nodes_of_command([file], names, 1)) == 1
    with pytest.raises(
        ScenarioError, match="3 ranks need as many machines, the cluster has 2"
    ):
        nodes_of_command([file], names, 3)
    line = ["torchrun", "--nnodes", "2", "--nproc-per-node", "5", file]
    nodes = nodes_of_command(line, names, None)
    assert [(node.machine, node.ranks) for node in nodes] == [(0, 5), (1, 5)]
    with pytest.raises(ScenarioError, match="leave --ranks out"):
        nodes_of_command(line, names, 2)
