"""Parts of a rank: types, splits, barriers, groups, output and figures."""

from __future__ import annotations

import os
import resource
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")

from emu.virtual.rank import rank_main  # noqa: E402
from emu.virtual.rank.tensor_rules import TensorRules  # noqa: E402
from tests.virtual.ranks_in_threads import Rank, run_in_threads  # noqa: E402

NIC = 1e6


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
    """A program starts by its path, or as a module of the folder it starts in."""
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
