"""Programs of a lab: how they start, and what is done while they run."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.lab import run as lab_run
from emu.lab.machines.lab import LabMachine
from emu.lab.machines.programs import TIME_SCALE, LabProgram
from emu.lab.run import LabPrograms, ProgramRun

MACHINES = (LabMachine("a", 1e6, 2e6, 0.5), LabMachine("b", 3e6, 4e6))


def test_nics_change_when_their_time_has_come() -> None:
    """One at its second, one behind it; each is noted when it came about."""
    told: list[Any] = []
    said: list[str] = []
    events = [(1.0, MACHINES[0]), (2.0, MACHINES[1]), (2.5, MACHINES[0])]
    lab: Any = SimpleNamespace(
        _events=list(events),
        samples=SimpleNamespace(seconds=2.0),
        _lab=SimpleNamespace(change_nic=told.append),
        changes=[],
        _watch=said.append,
    )

    LabPrograms._change_nics(lab)

    assert told == [*MACHINES]
    assert lab.changes == [(2.0, MACHINES[0]), (2.0, MACHINES[1])]
    assert lab._events == events[2:]
    assert said == ["the NIC of a has changed", "the NIC of b has changed"]


def test_events_after_the_end_of_a_lab_are_named() -> None:
    """The programs end at 0.3 s, and a NIC was to change at 100."""
    said: list[str] = []
    events = [SimpleNamespace(time=instant) for instant in (0.2, 100.0)]
    run = ProgramRun("p", "a", 0.0)

    def collect(*_: object) -> list[int]:
        run.end, run.code = 0.3, 0
        return [1]

    lab: Any = SimpleNamespace(
        _file=SimpleNamespace(lab=SimpleNamespace(until=None), events=events),
        _lab=SimpleNamespace(time_scale=1.0, signal_all=lambda _: None),
        runs={1: run},
        samples=SimpleNamespace(seconds=0.3),
        _watch=said.append,
        _change_nics=lambda: None,
        _collect_ends=collect,
        _survivors=list,
        _name_survivors=lambda: None,
    )

    lab._tell_idle_events = partial(LabPrograms._tell_idle_events, lab)
    LabPrograms.until_end(lab)

    assert said == [
        "p on a ended: well",
        "events[1]: at 100 s the job has ended, at 0.3 s: it changes nothing",
    ]


@pytest.mark.parametrize(
    ("due", "patience", "timeout"),
    [(None, 0.5, 0.5), (3.01, 0.5, 0.04), (9.0, 0.5, 0.5), (1.0, 0.5, 0.0)],
)
def test_ends_are_collected_until_a_nic_is_due(
    due: float | None, patience: float, timeout: float
) -> None:
    """The wait at 3 s lasts until a NIC is due; a call by ssh is no program."""
    waits: list[float] = []
    taken: list[bool] = []

    def wait(span: float, sockets: object, take: object) -> list[Any]:
        assert (sockets, take) == ("sockets", "take")
        waits.append(span)
        codes = {1: 0, 2: 7, 3: 5, 8: 1}
        return [SimpleNamespace(number=n, code=code) for n, code in codes.items()]

    runs = {n: ProgramRun(f"p{n}", "a", 0.0) for n in (1, 2, 3, 4)}
    lab: Any = SimpleNamespace(
        _events=[] if due is None else [(due, MACHINES[0])],
        samples=SimpleNamespace(
            seconds=3.0, take=lambda *, when_due: taken.append(when_due)
        ),
        _ssh=SimpleNamespace(
            sockets="sockets", take="take", tell=lambda program: program.number == 3
        ),
        _lab=SimpleNamespace(time_scale=4.0, wait=wait),
        runs=runs,
    )

    assert LabPrograms._collect_ends(lab, patience) == [1, 2]
    assert waits == pytest.approx([timeout])
    assert taken == [True]
    assert [(run.end, run.code) for run in runs.values()] == [
        (3.0, 0),
        (3.0, 7),
        (None, None),
        (None, None),
    ]


class Parts:
    """Doubles of the parts of a lab's programs, which note what they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: float) -> None:
        self.preloaded: list[Any] = []
        self.told: list[str] = []
        samples = SimpleNamespace(seconds=1.25, began=77.0, close=lambda: {"a": 1})
        output = SimpleNamespace(add=self.add, close=lambda: ["times"])
        notes = SimpleNamespace(environment={"LD_PRELOAD": "notes.so"})
        replaced = {
            "Samples": lambda _: samples,
            "OutputLines": lambda _: output,
            "CallNotes": lambda: notes,
            "SshServer": self.serve,
            "cores_here": lambda: cores,
            "write_lines": lambda _, times: self.told.append(f"{times}"),
        }
        for name, value in replaced.items():
            monkeypatch.setattr(lab_run, name, value)
        self.started: list[Any] = []
        self.lab: Any = SimpleNamespace(
            machines=MACHINES,
            time_scale=2.5,
            address={"a": "10.0.0.1", "b": "10.0.0.2"}.__getitem__,
            start=self.start,
        )

    def add(self, log: Path) -> int:
        """Return a descriptor that takes output."""
        return os.open(log, os.O_CREAT | os.O_WRONLY)

    def serve(self, _: object, preload: dict[str, str]) -> Any:
        """Return a server of ssh."""
        self.preloaded.append(preload)
        close = partial(self.told.append, "ssh closed")
        return SimpleNamespace(path="/bin:ssh", close=close)

    def start(self, machine: str, command: list[str], **options: Any) -> Any:
        """Start a program."""
        self.started.append((machine, command, options["environment"]))
        os.fstat(options["output"])
        return SimpleNamespace(number=10 + len(self.started))


def file_of(folder: Path, *, calls: bool = False, **cores: float) -> Any:
    """Return a lab's file with two events, of which the later comes first."""
    nic = SimpleNamespace(outward=5.0, inward=6.0)
    events = [
        SimpleNamespace(time=9.0, machine="b", nic=nic),
        SimpleNamespace(time=3.0, machine="a", nic=nic),
        SimpleNamespace(time=1.0, machine=None, nic=nic),
        SimpleNamespace(time=2.0, machine="a", nic=None),
    ]
    section = SimpleNamespace(calls=calls)
    return SimpleNamespace(events=events, lab=section, folder=folder, cores=cores)


@pytest.mark.parametrize(("cores", "is_told"), [(2.0, False), (1.5, True)])
def test_programs_start_in_order_with_the_settings_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: float, *, is_told: bool
) -> None:
    """More of them than cores are told; the command of a run stands in their place."""
    parts = Parts(monkeypatch, cores)
    said: list[str] = []
    running = LabPrograms(parts.lab, file_of(tmp_path), tmp_path, said.append)
    assert running._events == [
        (3.0, LabMachine("a", 5.0, 6.0)),
        (9.0, LabMachine("b", 5.0, 6.0)),
    ]
    assert parts.preloaded == [{}]

    running.start([LabProgram("p", ("a", "b"), "train {rank}", {"X": "1"})], [])

    assert [(machine, command[-1]) for machine, command, _ in parts.started] == [
        ("a", "train 0"),
        ("b", "train 1"),
    ]
    environment = parts.started[0][2]
    settings = (environment["X"], environment[TIME_SCALE], environment["PATH"])
    assert settings == ("1", "2.5", "/bin:ssh")
    assert "LD_PRELOAD" not in environment
    assert (tmp_path / "hosts.txt").read_text() == "10.0.0.1\n10.0.0.2\n"
    assert running.runs == {
        11: ProgramRun("p", "a", 1.25),
        12: ProgramRun("p", "b", 1.25),
    }
    assert bool(said) == is_told
    if is_told:
        assert said[0].startswith("2 programs, and this computer has 1.5 cores")

    assert running.close() == {"a": 1}
    assert parts.told == ["ssh closed", "['times']"]
    assert running.packets(None) is None
    capture: Any = SimpleNamespace(close=lambda began, scale: (began, scale))
    packets: Any = running.packets(capture)
    assert packets == (77.0, 2.5)


def test_calls_are_noted_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library is preloaded by programs and over ssh; quotas need no warning."""
    parts = Parts(monkeypatch, 0.5)
    said: list[str] = []
    file = file_of(tmp_path, calls=True, a=0.5, b=0.5)
    running = LabPrograms(parts.lab, file, tmp_path, said.append)
    command = [LabProgram("command", ("a",), 'exec "$@"')]
    running.start(command, ["hostname", "-f"])

    ((_, words, environment),) = parts.started
    assert words[-3:] == ["command", "hostname", "-f"]
    assert environment["LD_PRELOAD"] == "notes.so"
    assert parts.preloaded == [{"LD_PRELOAD": "notes.so"}]
    assert said == []
