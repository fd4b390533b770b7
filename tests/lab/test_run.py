"""Programs of a lab, watched and judged, with no lab below them."""

from __future__ import annotations

import contextlib
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError, RunError
from emu.lab import run as lab_run
from emu.lab import samples as lab_samples
from emu.lab.machines import nic_check
from emu.lab.machines.lab import LabMachine
from emu.lab.run import LabPrograms, ProgramRun, _end_of, _foretell, summary
from emu.lab.samples import Samples
from emu.prediction.analysis.traffic import CALL, OWNER, PACKET, SEND, WAIT, Traffic

MACHINES = (LabMachine("a", 1e6, 2e6, 0.5), LabMachine("b", 3e6, 4e6))


def sampled(ran: float, waited: float, seconds: float) -> dict[str, Any]:
    """Return samples at the beginning and at the end, with drops by way and machine."""
    return {
        "time": np.array([0.0, seconds]),
        "ran": np.array([0.0, ran]),
        "waited": np.array([0.0, waited]),
        "dropped": np.array([[[9, 9], [9, 9]], [[1, 2], [3, 4]]]),
    }


@pytest.mark.parametrize(
    ("ran", "waited", "early", "trust"),
    [
        (9.5, 0.5, (0.0, 0.0), "trusted"),  # one twentieth
        (9.5, 0.51, (0.0, 0.0), "degraded"),
        (0.0, 0.0, (0.0, 0.0), "trusted"),
        (0.25, 0.75, (0.0, 0.0), "degraded"),
        # Machines gained 0.5 s in 10 s on average, or more.
        (9.5, 0.0, (0.75, 0.25), "trusted"),
        (9.5, 0.0, (1.0, 0.25), "degraded"),
    ],
)
def test_a_lab_is_trusted_up_to_a_twentieth_of_waits_or_gains(
    ran: float, waited: float, early: tuple[float, ...], trust: str
) -> None:
    """Waits are a share of what was ready, gains one of the time."""
    found = summary(MACHINES, [], sampled(ran, waited, 10.0), early)

    assert found["trust"] == trust
    assert (found["computed_seconds"], found["waited_seconds"]) == (ran, waited)
    share = {0.5: 0.05, 0.51: 0.51 / 10.01, 0.0: 0.0, 0.75: 0.75}[waited]
    assert found["waited_share"] == pytest.approx(share)
    assert found["early_seconds"] == max(early)
    assert found["early_share"] == pytest.approx(sum(early) / 20)
    assert found["dropped"] == {"a": {"out": 1, "in": 3}, "b": {"out": 2, "in": 4}}
    assert (found["programs"], found["failed"]) == ([], None)


def test_the_program_that_failed_first_is_named() -> None:
    """A program that the lab ended, or that ended well, did not fail."""
    runs = [
        ProgramRun("well", "a", 0.0, 1.0, 0),
        ProgramRun("late", "a", 0.0, 9.0, 3),
        ProgramRun("first", "b", 1.0, 5.0, -11),
        ProgramRun("ended", "b", 0.0, 2.0, -15, stopped=True),
        ProgramRun("goes on", "b", 0.0),
    ]
    found = summary(MACHINES, runs, sampled(1.0, 0.0, 9.0))

    assert found["failed"] == {"program": "first", "machine": "b", "code": -11}
    assert found["programs"][2] == {
        "program": "first",
        "machine": "b",
        "start": 1.0,
        "end": 5.0,
        "code": -11,
        "stopped": False,
    }
    assert [_end_of(run) for run in runs] == [
        "well",
        "exit code 3",
        "killed by SIGSEGV",
        "killed by SIGTERM",
        "well",
    ]


def calls_of(*rows: tuple[float, float, int, int, int, int]) -> Any:
    """Return calls: seconds, kind, machine, program and port."""
    calls = np.zeros(len(rows), CALL)
    names = ("begin", "end", "kind", "machine", "program", "port")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        calls[name] = values
    return calls


def test_traffic_has_all_programs_by_name_and_their_ports() -> None:
    """Ports are of samples, and of calls on connections; a wait has no port."""
    calls = calls_of(
        (0.0, 1.0, SEND, 1, 0, 70),
        (0.0, 1.0, WAIT, 0, 1, 0),
        (0.0, 1.0, SEND, 0, 1, 80),
    )
    packets = np.zeros(3, PACKET)
    lab: Any = SimpleNamespace(
        _lab=SimpleNamespace(machines=MACHINES),
        samples=SimpleNamespace(owners={("b", 90, "middle"), ("a", 80, "alone")}),
        _read_calls=lambda: (calls, ["zebra", "alone"]),
    )

    found = LabPrograms.traffic(lab, packets)

    assert found.packets is packets
    assert found.machines == ("a", "b")
    assert found.programs == ("alone", "middle", "zebra")
    assert found.owners.tolist() == [(0, 80, 0), (1, 70, 2), (1, 90, 1)]
    assert found.calls["program"].tolist() == [2, 0, 0]
    assert found.nics.tolist() == [[1e6, 3e6], [2e6, 4e6]]
    assert len(lab.samples.owners) == 2


def test_calls_are_in_emulated_seconds_and_programs_that_noted_none_are_named() -> None:
    """Calls take a quarter of their seconds at time scale 4."""
    asked = []
    said: list[str] = []

    def problem(programs: set[str]) -> str:
        asked.append(programs)
        return "c noted nothing"

    calls = SimpleNamespace(
        read=lambda began: (calls_of((4.0, 8.0 + began, SEND, 0, 0, 1)), ["a"]),
        problem=problem,
    )
    lab: Any = SimpleNamespace(
        _calls=calls,
        _lab=SimpleNamespace(time_scale=4.0),
        samples=SimpleNamespace(began=4.0),
        runs={1: ProgramRun("a", "a", 0.0), 2: ProgramRun("c", "a", 0.0)},
        _watch=said.append,
    )

    found, names = LabPrograms._read_calls(lab)

    assert (found["begin"].tolist(), found["end"].tolist()) == ([1.0], [3.0])
    assert (names, asked, said) == (["a"], [{"a", "c"}], ["c noted nothing"])
    lab._calls = None
    found, names = LabPrograms._read_calls(lab)
    assert (len(found), found.dtype, names) == (0, CALL, [])


def test_machines_are_described_with_their_cores_and_changes() -> None:
    """Wall seconds are emulated ones times the scale; who states no cores has none."""
    lab: Any = SimpleNamespace(
        _lab=SimpleNamespace(machines=MACHINES, time_scale=4.0, startup_seconds=0.5),
        _file=SimpleNamespace(lab=SimpleNamespace(sharing="tcp")),
        changes=[(1.5, LabMachine("b", 7.0, 8.0))],
    )
    assert LabPrograms.describe(lab, 3.0) == {
        "wall_seconds": 12.0,
        "time_scale": 4.0,
        "startup_seconds": 0.5,
        "nics": {"a": {"out": 1e6, "in": 2e6}, "b": {"out": 3e6, "in": 4e6}},
        "cpu": {"a": 0.5},
        "events": [{"time": 1.5, "machine": "b", "nic_out": 7.0, "nic_in": 8.0}],
        "sharing": "tcp",
    }


@pytest.mark.parametrize(("sharing", "shared"), [("fair", 1), ("tcp", 0)])
def test_what_crossed_is_told_by_pair_and_as_a_share_of_nics(
    sharing: str, shared: int
) -> None:
    """Two connections share a leaf of 512: ports that are 512 apart do.

    In 60 s of 60 bins; the NIC of b takes half of what it did from 30 s on.
    """
    packets = np.array(
        [
            (0.5, 0, 1, 100, 20, 250_000),
            (0.501, 0, 1, 100, 20, 250_000),
            (0.6, 0, 1, 100, 532, 250_000),
            (0.601, 0, 1, 100, 532, 250_000),
            (30.5, 0, 1, 100, 20, 1_000_000),
            (40.5, 1, 0, 20, 100, 500),
        ],
        PACKET,
    )
    traffic = Traffic(
        packets=packets,
        machines=("a", "b"),
        nics=np.array([[1e6, 3e6], [2e6, 4e6]]),
        programs=(),
        owners=np.empty(0, OWNER),
    )
    lab: Any = SimpleNamespace(
        changes=[(30.0, LabMachine("b", 3e6, 2e6))],
        _file=SimpleNamespace(lab=SimpleNamespace(sharing=sharing)),
    )

    found = LabPrograms.sum_traffic(lab, traffic, 60.0)

    use = found.pop("nic_use")
    assert found == {
        "packets": 6,
        "connections": 3,
        "messages": 4,
        "shared_queues": shared,
        "bytes": {"a": {"a": 0, "b": 2_000_000}, "b": {"a": 500, "b": 0}},
        "bin_seconds": 1.0,
    }
    assert {name: {*ways} for name, ways in use.items()} == {
        "a": {"out", "in"},
        "b": {"out", "in"},
    }
    assert use["a"]["out"][0] == pytest.approx(1.0)
    assert use["b"]["in"][0] == pytest.approx(0.25)
    assert use["b"]["in"][30] == pytest.approx(0.5)
    assert use["a"]["in"][40] == pytest.approx(500 / 2e6)


class Ends:
    """Programs of a lab that end as is stated, by turns."""

    def __init__(self, until: str | None, turns: list[dict[int, int]]) -> None:
        self.now = 100.0
        self.runs = {
            1: ProgramRun("train", "a", 0.0),
            2: ProgramRun("train", "b", 0.0),
            3: ProgramRun("serve", "b", 0.0),
        }
        self._file = SimpleNamespace(lab=SimpleNamespace(until=until))
        self._lab = SimpleNamespace(time_scale=4.0, signal_all=self.signal_all)
        self.turns = turns
        self.signals: list[tuple[int, float]] = []
        self.said: list[str] = []
        self._watch = self.said.append
        self._survivors = partial(LabPrograms._survivors, self)  # type: ignore[arg-type]
        self._name_survivors = partial(
            LabPrograms._name_survivors,
            self,  # type: ignore[arg-type]
        )

    def signal_all(self, number: int) -> None:
        """Note when everything is asked to end; a machine has gone."""
        self.signals.append((number, self.now))
        raise RunError("machine b has gone")

    def _collect_ends(self, patience: float = 0.5) -> list[int]:
        self.now += patience
        ended = self.turns.pop(0) if self.turns else {}
        for number, code in ended.items():
            self.runs[number].end = self.now
            self.runs[number].code = code
        return [*ended]

    def _change_nics(self) -> None:
        pass

    def _tell_idle_events(self) -> None:
        pass


def end_of(
    until: str | None, turns: list[dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Return programs that were watched until the end, in half seconds of a clock."""
    ends: Any = Ends(until, turns)
    clock = SimpleNamespace(monotonic=lambda: ends.now)
    monkeypatch.setattr(lab_run, "time", clock)
    LabPrograms.until_end(ends)
    return ends


def test_a_lab_ends_with_the_programs_that_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are asked to end, and ended after 2 emulated seconds of time scale 4."""
    ends = end_of("train", [{1: 0}, {}, {2: 0}, {}, {}], monkeypatch)

    assert ends.signals == [
        (signal.SIGTERM, 101.5),
        (signal.SIGKILL, pytest.approx(109.5, abs=0.11)),
    ]
    assert ends.now == pytest.approx(117.6, abs=0.21)
    assert ends.said == [
        "train on a ended: well",
        "train on b ended: well",
        "serve on b ran on for 2 s after SIGTERM: it is killed",
    ]
    assert [run.stopped for run in ends.runs.values()] == [False, False, True]


def test_a_lab_ends_with_the_first_failure_or_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who does not decide may fail as well; who ends when asked is not killed."""
    ends = end_of(None, [{1: 0}, {3: 9}, {2: -15}], monkeypatch)
    assert ends.said == ["train on a ended: well", "serve on b ended: exit code 9"]
    assert [number for number, _ in ends.signals] == [signal.SIGTERM, signal.SIGKILL]
    assert ends.now == pytest.approx(101.1)
    assert [run.stopped for run in ends.runs.values()] == [False, True, False]

    ends = end_of(None, [{1: 0, 3: 0}, {2: 0}], monkeypatch)
    assert ends.now == 101.0
    assert [run.stopped for run in ends.runs.values()] == [False] * 3


def test_a_prediction_is_judged_with_marks_nics_and_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timeouts are those of all machines; a mark that no line has is told."""
    section = SimpleNamespace(mark="step", skip=2, max_difference=0.04)
    lab: Any = SimpleNamespace(
        _file=SimpleNamespace(lab=SimpleNamespace(prediction=section)),
        _folder=Path("run"),
        _lab=SimpleNamespace(time_scale=4.0),
        runs={1: ProgramRun("p", "a", 0.0), 2: ProgramRun("q", "b", 0.0)},
    )
    judged: list[Any] = []
    monkeypatch.setattr(lab_run, "judge_lab", lambda *a, **k: judged.append((a, k)))
    monkeypatch.setattr(lab_run, "marks_of", lambda *arguments: arguments)
    tcp = {"a": {"timeouts": 3}, "b": {"timeouts": 4}}
    nics = {"a": {"out": 0.9, "in": 1.0}, "b": {"out": 1.1, "in": 1.2}}
    given: Any = ("traffic", "schedule", tcp, nics)

    assert LabPrograms.judge(lab, *given) == {"prediction": None}
    assert judged == [
        (
            ("traffic", "schedule"),
            {
                "threshold": 0.04,
                "skip": 2,
                "marks": (Path("run"), "step", [("p", "a"), ("q", "b")], "traffic"),
                "timeouts": 7,
                "time_scale": 4.0,
                "nics": {"a out": 0.9, "a in": 1.0, "b out": 1.1, "b in": 1.2},
            },
        )
    ]
    section.mark = ""
    LabPrograms.judge(lab, *given)
    assert judged[-1][1]["marks"] is None

    def no_marks(*_: object) -> None:
        raise DataError("has no line with 'step'", path="run")

    section.mark = "step"
    monkeypatch.setattr(lab_run, "marks_of", no_marks)
    found = LabPrograms.judge(lab, *given)["prediction"]
    assert (found["outcome"], found["threshold"]) == ("unknown", 0.04)
    assert "no line with" in found["reasons"][0]

    nothing: Any = ("traffic", None, tcp, nics)
    assert LabPrograms.judge(lab, *nothing) == {}
    lab._file.lab.prediction = None
    assert LabPrograms.judge(lab, *given) == {}


@pytest.mark.parametrize(
    ("sharing", "queue", "is_foretold"),
    [("tcp", None, True), ("tcp", 0.02, False), ("fair", None, False)],
)
def test_what_is_known_of_a_lab_is_told_before_it_runs(
    monkeypatch: pytest.MonkeyPatch,
    sharing: str,
    queue: float | None,
    *,
    is_foretold: bool,
) -> None:
    """Queues are known of labs that state none, shared as TCP does."""
    section = SimpleNamespace(sharing=sharing, queue=queue)
    file: Any = SimpleNamespace(lab=section)
    schedule: Any = "schedule"
    monkeypatch.setattr(lab_run, "idle_keys", lambda _: ["memory", "speed"])
    monkeypatch.setattr(lab_run, "fit_note", lambda _: "of a fit")
    monkeypatch.setattr(
        lab_run,
        "forecast",
        lambda *asked: SimpleNamespace(sentence=lambda: f"queues of {asked}"),
    )
    idle = "changes nothing in a lab: memory, speed of machines"
    queues = ["queues of ('schedule', 4.0)"] * is_foretold
    found = [*_foretell(file, schedule, 4.0)]
    assert found == [idle, "prediction: of a fit", *queues]
    assert [*_foretell(file, None, 4.0)] == [idle]
    monkeypatch.setattr(lab_run, "idle_keys", lambda _: [])
    assert [*_foretell(file, None, 4.0)] == []


def test_samples_are_taken_each_half_second_in_emulated_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samples are at time scale 4, and the last is taken at the end, due or not."""
    now = [100.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        clock_gettime=lambda _: 1e9 + now[0],
        CLOCK_REALTIME=0,
    )
    monkeypatch.setattr(lab_samples, "time", clock)
    done: list[str] = []
    waits = SimpleNamespace(
        sample=lambda: done.append("sample"),
        judge=lambda: done.append("judge"),
        seconds=lambda: (8.0, 2.0),
        early=(1.0, 6.0),
    )
    ports = SimpleNamespace(found={("a", 80, "p")}, sample=lambda: None)
    monkeypatch.setattr(lab_samples, "PortOwners", lambda _: ports)
    tcp = {
        "a": {"retransmitted": 1, "timeouts": 2},
        "b": {"retransmitted": 3, "timeouts": 4},
    }
    counters = SimpleNamespace(
        queues=lambda: ([[5, 6], [7, 8]], [[9, 10], [11, 12]]), tcp=lambda: tcp
    )
    lab: Any = SimpleNamespace(
        counters=counters, time_scale=4.0, core_waits=lambda: waits, holders={}
    )

    samples = Samples(lab)
    for instant in (100.4, 100.5, 100.9, 101.0):
        now[0] = instant
        samples.take(when_due=True)
    now[0] = 101.2
    assert samples.seconds == pytest.approx(0.3)
    assert (samples.began, samples.early) == (1e9 + 100.0, [0.25, 1.5])
    assert samples.owners == {("a", 80, "p")}
    rows = samples.close()

    assert done == ["sample"] * 4 + ["judge", "sample"]
    assert rows["time"].tolist() == pytest.approx([0.0, 0.125, 0.25, 0.3])
    assert rows["ran"].tolist() == [2.0] * 4
    assert rows["waited"].tolist() == [0.5] * 4
    assert rows["retransmitted"][-1].tolist() == [1, 3]
    assert rows["timeouts"][-1].tolist() == [2, 4]
    assert rows["dropped"][-1].tolist() == [[5, 6], [7, 8]]
    assert rows["queued"][-1].tolist() == [[9, 10], [11, 12]]


class Written:
    """A run directory that keeps what is written in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, Any] = {}

    def write_arrays(self, name: str, **arrays: Any) -> None:
        """Keep arrays."""
        self.files[name] = arrays

    def write_json(self, name: str, content: Any) -> None:
        """Keep what a file says."""
        self.files[name] = content


@pytest.mark.parametrize(
    ("captures", "pcap", "asked"),
    [(True, False, [None]), (False, False, []), (False, True, ["traffic.pcap"])],
)
def test_a_lab_runs_from_its_prediction_to_what_is_written(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    captures: bool,  # noqa: FBT001 -- of a parameter
    pcap: bool,  # noqa: FBT001 -- of a parameter
    asked: list[str | None],
) -> None:
    """Packets are judged where they are captured; samples are written in any case."""
    steps: list[Any] = []
    taken: list[Any] = []
    check = nic_check.NicCheck({"a": {"out": 1.0}}, 0.5, (), 0.01)

    def capture(path: Path | None) -> Any:
        taken.append(path and path.name)
        return SimpleNamespace(lost=3, cpu_seconds=0.75)

    def measure(most: float) -> nic_check.NicCheck:
        steps.append(("check", most))
        return check

    lab = contextlib.nullcontext(
        SimpleNamespace(
            machines=MACHINES,
            time_scale=2.0,
            startup_seconds=0.25,
            holders={},
            capture=capture,
            counters=SimpleNamespace(traffic=lambda: {"t": 1}, tcp=lambda: {"c": 2}),
            check_nics=measure,
        )
    )
    running = SimpleNamespace(
        samples=SimpleNamespace(seconds=6.5, early=(0.5, 0.25)),
        runs={1: ProgramRun("p", "a", 0.0, 1.0, 0)},
        start=lambda programs, command: steps.append((programs, command)),
        until_end=lambda: steps.append("ended"),
        close=lambda: sampled(1.0, 0.0, 8.0),
        packets=lambda capture: capture and "packets",
        describe=lambda seconds: {"seconds": seconds},
        traffic=lambda packets: f"traffic of {packets}",
        sum_traffic=lambda traffic, seconds: (traffic, seconds),
        judge=lambda *arguments: {"prediction": arguments},
    )
    written: list[Any] = []
    replaced = {
        "programs_of": lambda *_: ["programs"],
        "predict_lab": lambda _: "schedule",
        "open_lab": lambda _: lab,
        "_foretell": lambda *arguments: iter(["foretold", str(arguments[2])]),
        "LabPrograms": lambda *_: running,
        "running_lab": lambda *_: contextlib.nullcontext(),
        "write_traffic": lambda _, traffic: written.append(traffic),
    }
    for name, value in replaced.items():
        monkeypatch.setattr(lab_run, name, value)
    section = SimpleNamespace(max_nic_error=0.125, capture=captures)
    file: Any = SimpleNamespace(lab=section)
    directory: Any = Written(tmp_path)
    said: list[str] = []

    found = lab_run.run_lab(file, directory, ["true"], pcap=pcap, watch=said.append)

    assert steps == [("check", 0.125), (["programs"], ["true"]), "ended"]
    assert said == [
        "foretold",
        "2.0",
        "2 machines in 0.25 s",
        "NICs measured in 0.50 s",
    ]
    assert taken == asked
    assert directory.files["lab.json"] == found
    assert [*directory.files] == ["samples.npz", "lab.json"]
    assert (found["seconds"], found["traffic"], found["tcp"]) == (
        6.5,
        {"t": 1},
        {"c": 2},
    )
    assert found["measured"] == {"seconds": 0.5, "shares": {"a": {"out": 1.0}}}
    assert found["early_seconds"] == 0.5
    if not asked:
        assert "capture" not in found
        assert written == []
        return
    assert found["capture"] == {"lost": 3, "cpu_seconds": 0.75}
    assert found["crossed"] == ("traffic of packets", 6.5)
    assert found["prediction"] == (
        "traffic of packets",
        "schedule",
        {"c": 2},
        {"a": {"out": 1.0}},
    )
    assert written == ["traffic of packets"]


def test_a_nic_that_is_off_is_refused_with_the_key_that_decides() -> None:
    """The error is of the machines of the file."""
    check = nic_check.NicCheck({"a": {"out": 0.5}}, 0.5, ("a out carries half",), 0.01)
    trails: list[Any] = []

    def refuse(trail: tuple[str, ...], problem: str) -> RunError:
        trails.append(trail)
        return RunError(problem)

    file: Any = SimpleNamespace(
        lab=SimpleNamespace(max_nic_error=0.01), origin=SimpleNamespace(error=refuse)
    )
    lab: Any = SimpleNamespace(check_nics=lambda _: check)
    with pytest.raises(RunError, match=r"a out carries half.* lab.max_nic_error above"):
        lab_run._check_nics(file, lab)
    assert trails == [("cluster", "machines")]
