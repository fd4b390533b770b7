"""Parts of a rank and of its start: clocks, memory, splits, commands and names."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")

from emu.errors import ScenarioError  # noqa: E402
from emu.scenario.scenario_file import load_lab  # noqa: E402
from emu.virtual import nccl_operations as nccl  # noqa: E402
from emu.virtual.call_group import CallForm, CallGroup  # noqa: E402
from emu.virtual.calls import Call  # noqa: E402
from emu.virtual.launch import (  # noqa: E402
    _expand,
    _read_torchrun,
    _whole,
    _without_python,
    nodes_of_command,
    nodes_of_lab,
)
from emu.virtual.rank import rank_main  # noqa: E402
from emu.virtual.rank.rank_clock import EPOCH, RankClock  # noqa: E402
from emu.virtual.rank.tensor_rules import TensorRules  # noqa: E402
from emu.virtual.rank.thread_cpu import ThreadCpu, _cpu_of_threads  # noqa: E402
from emu.virtual.stall_watch import _cpu_use  # noqa: E402
from emu.virtual.transports import Transport  # noqa: E402
from emu.virtual.verdict import COPYING, MOST, Evidence, judge  # noqa: E402
from emu.virtual.virtual_time import VirtualTime  # noqa: E402
from tests.virtual.ranks_in_threads import Rank, run_in_threads  # noqa: E402

NIC = 1e6


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
    """That of this thread is among them, a little before and a little after."""
    before = time.thread_time()
    found = _cpu_of_threads()[threading_id()]
    assert before <= found <= time.thread_time()


def threading_id() -> int:
    """Return the kernel's number of this thread."""
    import threading

    return threading.get_native_id()


def test_a_machine_takes_as_long_as_its_busiest_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10 s one thread has 6, an ended one 3, and one that nobody saw 1."""
    import emu.virtual.rank.thread_cpu as module

    threads = {1: 4.0, 2: 1.0}
    process = [20.0]
    monkeypatch.setattr(module, "_cpu_of_threads", lambda: dict(threads))
    clock = SimpleNamespace(process_time=lambda: process[0])
    monkeypatch.setattr(module, "time", clock)
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
    """Those of its own and of its children; who runs is never as before."""
    own = _cpu_use(os.getpid())
    assert len(own) == 1
    assert own != _cpu_use(os.getpid())
    child = os.fork()
    if child == 0:
        time.sleep(30.0)
        os._exit(0)
    try:
        use: tuple[str, ...] = ()
        while use[:1] != ("S",):
            use = _cpu_use(child)
        assert len(use) == 5
        stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        assert [*use] == ["S", *stat[11:15]]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("is_gloo", "given", "wanted", "is_taken"),
    [
        (True, (2, 3), (2, 3), True),
        (True, (3, 2), (2, 3), False),
        (False, (3, 2), (2, 3), True),
        (False, (5,), (2, 3), False),
    ],
)
def test_gloo_compares_shapes_and_nccl_counts(
    given: tuple[int, ...], wanted: tuple[int, ...], *, is_gloo: bool, is_taken: bool
) -> None:
    rules = TensorRules(2, is_gloo)
    tensors = [torch.zeros(wanted), torch.zeros(given)]
    if is_taken:
        rules.check_each("x", tensors, torch.zeros(wanted))
        return
    with pytest.raises(RuntimeError, match="x: invalid tensor size at index 1"):
        rules.check_each("x", tensors, torch.zeros(wanted))
    if is_gloo:
        with pytest.raises(RuntimeError, match="gloo has no int16"):
            rules.check_type("int16")
        TensorRules(2, is_gloo=False).check_type("int16")


def splits(rank: Rank) -> list[str]:
    """Split tensors by rows, evenly or as stated."""
    group = rank.group([rank.number])
    group._members = 3
    told = [
        str(group._split(torch.zeros(6, 2), [])),
        str(group._split(torch.zeros(6, 2), [1, 2, 3])),
        str(group._split(torch.zeros(0, 2), [0, 0, 0])),
        str(group._split(torch.zeros(1, 2), [1, 0, 0])),
    ]
    for rows in ([], [1, 1, 1]):
        with pytest.raises(ValueError, match="rows") as caught:
            group._split(torch.zeros(4, 2), rows)
        told.append(str(caught.value))
    return told


def test_rows_are_split_evenly_or_as_stated() -> None:
    (told,) = run_in_threads(splits, [NIC]).values.values()
    assert told == [
        "[16, 16, 16]",
        "[8, 16, 24]",
        "[0, 0, 0]",
        "[8, 0, 0]",
        "4 rows are no multiple of 3",
        "splits [1, 1, 1] are not the 4 rows there are",
    ]


def barriers(rank: Rank) -> str:
    """Miss a monitored barrier of a group that states its timeout."""
    group = rank.group([0, 1], timeout=timedelta(seconds=7))
    if rank.number == 1:
        rank.end.sleep(50.0)
        return ""
    with pytest.raises(RuntimeError) as caught:
        group.monitored_barrier()
    return f"{rank.end.now():.0f} {caught.value}"


def test_a_monitored_barrier_has_the_timeout_of_its_group() -> None:
    told = run_in_threads(barriers, [NIC] * 2).values[0]
    assert told.startswith("7 [Rank 0]: Rank 1 failed to pass monitoredBarrier in 7000")


def named(rank: Rank) -> tuple[Any, ...]:
    """Ask a group for its names, and make one without ranks."""
    group = rank.group([0, 1])
    group.setGroupName("x")
    everyone = rank.groups(
        SimpleNamespace(
            group_rank=rank.number,
            group_size=2,
            global_ranks_in_group=[],
            group_id="all",
            timeout=timedelta(minutes=30),
        ),
        rank.end,
        "gloo",
    )
    tensor = torch.ones(1)
    everyone.allreduce([tensor]).wait()
    group._set_default_timeout(timedelta(seconds=3))
    work = group.recv([tensor], 1 - rank.number, 4)
    limit = work.timeout
    rank.end.forget(work)
    return (
        group.getBackendName(),
        group.getGroupName(),
        group.group_name,
        everyone._ranks,
        tensor.item(),
        limit,
    )


def test_a_group_of_all_has_their_numbers() -> None:
    ran = run_in_threads(named, [NIC] * 2)
    assert ran.values[0] == ran.values[1] == ("emu", "x", "x", [0, 1], 2.0, 3.0)
    assert {*ran.server.groups} == {name for name in ran.server.groups if "." in name}


def late(rank: Rank) -> tuple[float, float]:
    """Come to a barrier while a sum is under way, of 400 kB."""
    group = rank.group([0, 1])
    tensor = torch.ones(100_000)
    group.allreduce([tensor])
    group.barrier().wait()
    after = rank.end.now()
    group.barrier().wait()
    return after, rank.end.now()


def test_a_barrier_waits_for_what_is_under_way() -> None:
    ran = run_in_threads(late, [NIC] * 2)
    for first, second in ran.values.values():
        assert first > 0.4
        assert second - first < 0.001


@pytest.mark.parametrize("scale", [0.999, 1.0, 1.001])
def test_a_share_that_is_allowed_is_no_reason(scale: float) -> None:
    """At the bound itself nothing is in doubt."""
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
    """Nor before the network's time, of 4 s."""
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
    """Of 64 MiB so many pieces may come before the first is handed on."""
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


def test_a_rank_counts_the_seconds_and_bytes_of_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usages = {
        resource.RUSAGE_SELF: SimpleNamespace(ru_utime=1.0, ru_stime=2.0, ru_maxrss=3),
        resource.RUSAGE_CHILDREN: SimpleNamespace(ru_utime=5.0, ru_stime=7.0),
    }
    module = SimpleNamespace(
        getrusage=usages.__getitem__,
        RUSAGE_SELF=resource.RUSAGE_SELF,
        RUSAGE_CHILDREN=resource.RUSAGE_CHILDREN,
    )
    monkeypatch.setattr(rank_main, "resource", module)
    process = rank_main.RankProcess({}, {"environment": {"RANK": "0"}})
    figures = process._count(0.5)
    assert figures["cpu"] == 3.0
    assert figures["children_cpu"] == 12.0
    assert figures["memory"] == 3 * 1024


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
    """By a shell's words, with or without `exec`, alone or by torchrun."""
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
    """Of a program alone; nodes of torchrun have ranks of their own."""
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


def test_lines_of_a_rank_are_told_when_they_end(tmp_path: Path) -> None:
    """Every text goes to the log at once; a mark is in a line that is whole."""
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    told: list[tuple[str, ...]] = []
    reports = rank_main.LineReports("step", lambda *words: told.append(words), log)
    assert reports.write("a st") == 4
    assert told == []
    assert reports.write("ep 1\nb\nc step") == 13
    assert told == [("line", "a step 1"), ("mark",), ("line", "b")]
    assert reports.fileno() == log
    assert reports.writable()
    os.close(log)
    assert (tmp_path / "log").read_text() == "a step 1\nb\nc step"
    plain = rank_main.LineReports(
        "", lambda *words: told.append(words), os.open(os.devnull, os.O_WRONLY)
    )
    plain.write("step\n")
    os.close(plain.fileno())
    assert told[3:] == [("line", "step")]


PROGRAMS = {
    "well": ("import sys; sys.exit(0)", ""),
    "plain": ("x = 1", ""),
    "text": ("import sys; sys.exit('no data')", "no data"),
    "status": ("import sys; sys.exit(3)", "exit status 3, its last line was 'last'"),
    "error": ("x = 1\nraise ValueError('a\\nb')", "ValueError: a, at error.py:2"),
    "bare": ("raise KeyboardInterrupt", "KeyboardInterrupt, at bare.py:1"),
    "words": ("import sys; sys.exit(' '.join(sys.argv[1:]))", "x y"),
    "beside": ("import words_beside", "ImportError: of it, at words_beside.py:1"),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("as_module", [False, True])
def test_a_program_that_ends_badly_says_why(
    name: str, *, as_module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path, or as a module of the folder that it is started in."""
    text, problem = PROGRAMS[name]
    (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "words_beside.py").write_text("raise ImportError('of it')")
    (tmp_path / "log").write_text("first\nlast\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["emu"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "words_beside", raising=False)
    start = ["-m", name] if as_module else [str(tmp_path / f"{name}.py")]
    rank = {
        "environment": {"RANK": "4"},
        "command": [*start, "x", "y"],
        "log": str(tmp_path / "log"),
    }
    process = rank_main.RankProcess({}, rank)
    assert process._number == 4
    assert process._run_program() == problem
    assert Path(sys.path[0]) == tmp_path
    (tmp_path / "log").write_text("")
    if name == "status":
        assert process._run_program() == "exit status 3"


def test_a_rank_counts_its_memory_and_threads() -> None:

    figures = rank_main.RankProcess({}, {"environment": {"RANK": "0"}})._count(2.5)
    assert figures["own_cpu"] == 2.5
    assert figures["threads"] == threading.active_count()
    assert 1e7 < figures["memory"] < 1e11
    assert figures["cpu"] > 0.1
