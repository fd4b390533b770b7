"""Kill runs that keep checkpoints; print which of them end with the same weights.

    tools/hostile recovery OUT [--restarts 300] [--resumes 100] [--seed N] [--only WORD]

RESTARTS times a process is killed: of every kind, in every system, on one host, on
kernel NICs and on three hosts under TLS, while processes start, while they run, while
they start again after another death, and by an event of the scenario as a task that was
drawn ends an iteration. The run goes on by itself; one whose
coordinator was killed, and RESUMES of which everything was, by ``emu run --resume``. A
trial is as it should be when it ends with the weights of a run to which nothing
happens, has named the culprit, and nothing is left of it.

Who is killed when is drawn from the seed, by default the date. Rows go to
OUT/rows.jsonl; those that are there already are not carried out again. Needs root and
a computer of its own for what it leaves to be its own, which namespaces are::

    unshare -nmpf --mount-proc --kill-child sh -c 'ip link set lo up;
        mkdir -p /run/netns; mount -t tmpfs netns /run/netns;
        mount -t tmpfs shm /dev/shm; mount -t sysfs sys /sys;
        exec tools/hostile recovery OUT'
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

from emu.runs.array_files import read_weights
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from tests.emulation.coordinator.hosts import namespaces
from tests.testing.trial_cases import CASES
from tools.attacks.chaos import Trial, family, gone, role_of

T = TypeVar("T")

#: Iterations of each system, a second or three, and those from cut to cut.
LENGTHS = {
    "dgtp": (20, 2),
    "ring": (24, 2),
    "data_parallel": (24, 2),
    "p3": (12, 1),
    "dgcl": (8, 1),
    "dorylus": (8, 1),
}
#: Options of `emu run` for each network.
NETWORKS = {
    "plain": (),
    "kernel": (
        "emulation.network=kernel",
        "schedule.policy=maxmin",
        "emulation.max_nic_error=90 %",
    ),
    "hosts": ("emulation.tls=all",),
}
#: Functions are behind racks, of which kernel NICs know nothing.
IMPOSSIBLE = {("dorylus", "kernel")}
PHASES = ("start", "run", "again", "event")
HOST = ("agent", "fork server", "coordinator")
_BOXES = "{topology: dgx1}", "{machines: [{name: d, count: 4, nic: 400 Mbit/s}]}"
#: In place of ssh -T -o BatchMode=yes HOST COMMAND: into the namespace of an address.
_SSH = """#!/bin/sh
exec ip netns exec {stem}h"${{4##*.}}" setsid --wait sh -c "$5"
"""
_GOES_ON = re.compile(r"^(?:(.*): )?goes on at iteration (\d+)", re.MULTILINE)
_POLL = 0.03
_PATIENCE = 60.0
_INTERFACES = Path("/sys/class/net")


def stated(system: str) -> str:
    """Return the scenario of a system."""
    iterations, every = LENGTHS[system]
    text = re.sub("(iterations|epochs): [23]", rf"\1: {iterations}", CASES[system])
    text = text.replace(*_BOXES).replace("machines: [d0, d1, d2, d5]", "")
    return (
        f"name: {system}\n{text}\nseed: 7\ncheckpoint: {{every: {every} iterations}}\n"
        "emulation: {compute: padded, deadline: 120 s}\n"
    )


def kind_of(role: str) -> str:
    """Return the kind of a process: its name without a number."""
    return role.rstrip("0123456789")


@dataclass(frozen=True)
class Draw:
    """One trial.

    Parameters
    ----------
    kind
        ``restart``, or ``resume`` where everything is killed.
    victim
        Kind of the process.
    share
        Moment in the phase.
    """

    kind: str
    number: int
    seed: int
    system: str
    network: str
    victim: str
    phase: str
    share: float


def draws(
    seed: int, restarts: int, resumes: int, victims: Mapping[str, Sequence[str]]
) -> list[Draw]:
    """Return all trials; every beginning of them is as mixed as the whole.

    ``victims``: kinds of processes by system.
    """
    where = [cell for cell in product(victims, NETWORKS) if cell not in IMPOSSIBLE]
    cells = {
        "restart": [
            (system, network, victim, phase)
            for system, network in where
            for victim, phase in product([*victims[system], *HOST], PHASES)
            if phase != "event" or victim not in HOST
        ]
        + [(system, "hosts", "host", "event") for system in victims],
        "resume": [
            (system, network, "everything", phase)
            for system, network in where
            for phase in ("start", *3 * ("run",))
        ],
    }
    found: list[tuple[float, Draw]] = []
    for kind, count in {"restart": restarts, "resume": resumes}.items():
        mine = cells[kind]
        chance = np.random.default_rng([seed, kind == "resume"])
        order = [mine[n] for n in chance.permutation(len(mine))]
        for number in range(count):
            system, network, victim, phase = order[number % len(order)]
            share = float(chance.uniform())
            draw = Draw(kind, number, seed, system, network, victim, phase, share)
            found.append(((number + 0.5) / count, draw))
    return [draw for _, draw in sorted(found, key=lambda each: each[0])]


def there(mark: str, kind: str) -> list[tuple[str, psutil.Process]]:
    """Return the processes of a kind, with the word that a message must hold."""
    found = []
    for process in family(mark):
        with contextlib.suppress(psutil.Error):
            role = role_of(process)
            if kind_of(role) == kind:
                found.append((_word(role, process), process))
    return found


def _word(role: str, process: psutil.Process) -> str:
    """Return the process's name, or that of the host of an agent or fork server."""
    if role not in HOST:
        return role
    agent = process if role == "agent" else psutil.Process(process.ppid())
    words = agent.cmdline()
    return words[words.index("--name") + 1] if "--name" in words else ""


def named(word: str, message: str) -> bool:
    """Return whether a message names the process or host that was killed."""
    if word == "localhost":
        return "agent" in message
    return bool(word and re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message))


class Victim:
    """A trial that is brought to the moment that was drawn, and killed.

    Parameters
    ----------
    starting
        Wall seconds that a start takes on the network, about.
    """

    trial: Trial

    def __init__(self, draw: Draw, starting: float) -> None:
        self.draw, self.starting = draw, starting
        self.chance = np.random.default_rng([draw.seed, draw.number, 1])
        self.row: dict[str, Any] = {"process": "", "named": True, "orphans": []}
        self.row |= {"noticed": None, "first": None, "first_error": ""}

    def await_true(self, found: Callable[[], T]) -> T | None:
        """Return what is found, once it is something; None when the run has ended."""
        while self.trial.command.poll() is None:
            if it := found():
                return it
            time.sleep(_POLL)
        return None

    def run(self) -> Path:
        """Return the one run directory."""
        (path,) = self.trial.runs.iterdir()
        return path

    def newest(self) -> int:
        """Return the iteration of the newest cut, 0 for none."""
        kept = self.trial.runs.glob("*/checkpoints/*/commit.json")
        return max((int(path.parent.name) for path in kept), default=0)

    def starts(self, kind: str, share: float) -> None:
        """Wait until a start has come so far, from the first process of a kind on.

        At the latest its first cut is there: starts differ by load and by system.
        """
        self.await_true(lambda: self.running(kind))
        until, before = time.monotonic() + share * self.starting, self.newest()
        self.await_true(lambda: time.monotonic() > until or self.newest() > before)

    def running(self, kind: str) -> list[tuple[str, psutil.Process]]:
        """Return the processes of a kind; the oldest is the coordinator."""
        if kind == "coordinator":
            return [("", psutil.Process(self.trial.command.pid))]
        return there(self.trial.mark, kind)

    def runs_until(self, share: float) -> None:
        """Wait until so many of the cuts are kept."""
        iterations, every = LENGTHS[self.draw.system]
        wanted = 1 + int(share * (iterations - 1) // every)
        self.await_true(lambda: self.running("agent"))
        began = time.monotonic()
        self.await_true(self.newest)
        self.starting = time.monotonic() - began
        self.await_true(lambda: self.newest() >= min(wanted, iterations - 1) * every)
        time.sleep(float(self.chance.uniform(0.0, 0.1)))

    def suffer(self, where: Sequence[str]) -> None:
        """Have happen to the trial what was drawn, and resume what was cut off."""
        if self.draw.phase == "event":
            self.await_event()
            return
        self.arrive()
        if self.draw.victim not in ("coordinator", "everything"):
            self.kill(self.draw.victim)
        elif self.trial.command.poll() is None:
            self.resume(where)

    def arrive(self) -> None:
        """Bring the run to its moment, past another death where it is ``again``."""
        draw = self.draw
        kind = "agent" if draw.victim in ("coordinator", "everything") else draw.victim
        if draw.phase == "start":
            self.starts(kind, draw.share)
            return
        self.runs_until(draw.share)
        if draw.phase == "again":
            self.kill(kind)
            self.starts(kind, draw.share)

    def kill(self, kind: str) -> None:
        """Kill a process of a kind, and wait until the run has gone on."""
        found = self.running(kind)
        if not found:
            return
        word, process = found[int(self.chance.integers(len(found)))]
        before = len(_GOES_ON.findall(self.trial.printed()))
        _kill(process)
        killed = time.monotonic()
        said = self.await_true(lambda: _GOES_ON.findall(self.trial.printed())[before:])
        if said:
            message, first = said[0]
            self.row |= {"process": word or kind, "noticed": time.monotonic() - killed}
            self.row |= {"first": int(first), "named": named(word, message)}
            self.row["first_error"] = message[-500:]

    def event(self, hosts: Sequence[str]) -> list[str]:
        """Return the words that have the scenario kill, and note whom."""
        problem = prepare(loads(stated(self.draw.system))).problem
        job, names = problem.job, [m.name for m in problem.cluster.machines]
        of_kind = [one for one in job.processes if kind_of(one) == self.draw.victim]
        edits = []
        if self.draw.victim == "host":
            of_kind = [*hosts]
            homes = zip(names, [*hosts] * len(names), strict=False)
            homes_of = ", ".join(f"{name}: {host}" for name, host in homes)
            edits = ["--set", f"emulation.hosts={{{homes_of}}}"]
        tasks = [t for own in job.processes.values() for t in own if job.rounds[t] > 1]
        task, process = self.chance.choice(tasks), str(self.chance.choice(of_kind))
        iteration = 1 + int(self.draw.share * (job.rounds[task] - 1))
        at = f"{{task: {job.tasks[task].name}, iteration: {iteration}}}"
        self.row |= {"process": process, "at": at}
        return [*edits, "--set", f"events=[{{at: {at}, kill: {process}}}]"]

    def await_event(self) -> None:
        """Wait until the run has gone on after what the scenario has killed."""
        said = self.await_true(lambda: _GOES_ON.findall(self.trial.printed()))
        message, first = said[0] if said else ("", "-1")
        word = self.row["process"] if self.draw.victim != "host" else "process"
        self.row |= {"first": int(first), "named": named(word, message)}
        self.row["first_error"] = message[-500:]

    def resume(self, words: Sequence[str]) -> None:
        """Kill the coordinator, or everything at once, and go on with what is kept."""
        self.row["process"] = self.draw.victim
        killed = time.monotonic()
        if self.draw.victim == "everything":
            for process in family(self.trial.mark):
                _kill(process)
        _kill(psutil.Process(self.trial.command.pid))
        self.trial.end()
        orphans = gone(self.trial.mark, set(), _PATIENCE)
        self.row["orphans"] = [each.name() for each in orphans]
        self.row["noticed"] = time.monotonic() - killed
        if not (self.run() / "result.json").exists():
            self.trial.start([*words, "--resume", str(self.run())])
            found = _GOES_ON.search(self.trial.end())
            self.row["first"] = int(found[2]) if found else None


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
        process.kill()


class Campaign:
    """Trials of one folder.

    Parameters
    ----------
    hosts
        File with the hosts' addresses.
    """

    def __init__(self, out: Path, hosts: Path) -> None:
        self._out, self._hosts = out, hosts
        self._starting = dict.fromkeys(NETWORKS, 3.0)
        for system in LENGTHS:
            (out / f"{system}.yaml").write_text(stated(system))

    def where(self, network: str) -> list[str]:
        """Return the words of a network's hosts."""
        return ["--hosts", str(self._hosts)] if network == "hosts" else []

    def words(self, system: str, network: str) -> list[str]:
        """Return the words behind ``emu run``."""
        edits = [part for edit in NETWORKS[network] for part in ("--set", edit)]
        return [str(self._out / f"{system}.yaml"), *edits, *self.where(network)]

    def calm(self, system: str) -> Path:
        """Return the run of a system to which nothing happens; carry it out once."""
        kept = self._out / "calm" / system
        if not kept.exists():
            trial = Trial(
                self._out / "trial", "calm", _PATIENCE, self.words(system, "plain")
            )
            printed = trial.end()
            if code := trial.command.returncode:
                sys.exit(f"a run to which nothing happens ends with {code}:\n{printed}")
            kept.parent.mkdir(exist_ok=True)
            (run,) = trial.runs.iterdir()
            shutil.move(run, kept)
            trial.close()
        return kept

    def carry_out(self, draw: Draw) -> dict[str, Any]:
        """Return the row of a trial."""
        expected, interfaces = read_weights(self.calm(draw.system)), _interfaces()
        words = self.words(draw.system, draw.network)
        by_itself = draw.victim not in ("coordinator", "everything")
        if by_itself or draw.phase == "again":
            words += ["--set", "on_failure=restart"]
        mark = f"{draw.kind}.{draw.seed}.{draw.number}.{time.time_ns()}"
        victim = Victim(draw, self._starting[draw.network])
        row = victim.row
        if draw.phase == "event":
            words += victim.event(self._hosts.read_text().split())
        victim.trial = trial = Trial(self._out / "trial", mark, _PATIENCE, words)
        try:
            victim.suffer(self.where(draw.network))
            printed = trial.end()
            row["code"], row["message"] = trial.command.returncode, printed[-900:]
            row["traceback"] = "Traceback (most recent" in printed
            row["left"] = [*trial.left(), *sorted(_interfaces() - interfaces)]
            row["identical"] = not row["code"] and same(victim.run(), expected)
            if complained := complaint(row):
                _keep(self._out / "wrong" / mark, trial)
        finally:
            trial.close()
        self._starting[draw.network] = victim.starting
        return asdict(draw) | row | {"complaint": complained}


def _interfaces() -> set[str]:
    return (
        {path.name for path in _INTERFACES.iterdir()} if _INTERFACES.is_dir() else set()
    )


def _keep(folder: Path, trial: Trial) -> None:
    """Keep what a trial that is not as it should be has printed and logged."""
    folder.mkdir(parents=True)
    (folder / "printed").write_text(trial.printed())
    for path in trial.runs.glob("*/*.log"):
        shutil.copy(path, folder)


def same(run: Path, weights: Mapping[str, Any]) -> bool:
    """Return whether a run's weights are these, bit by bit."""
    found = read_weights(run)
    return found.keys() == weights.keys() and all(
        np.array_equal(found[name], part) for name, part in weights.items()
    )


def complaint(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a trial, nothing if it is as it should be."""
    wrong = {
        f"exit code {row['code']}": row["code"] != 0,
        "a traceback": row["traceback"],
        "other weights": row["code"] == 0 and not row["identical"],
        "the culprit is not named": not row["named"],
        f"not ended: {', '.join(row['orphans'])}": row["orphans"],
        f"left {', '.join(row['left'])}": row["left"],
    }
    return "; ".join(words for words, is_so in wrong.items() if is_so)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line per kind of trial, and per part of those by each of its words."""
    form = "{:10} {:14} {:>6} {:>9} {:>9} {:>8} {:>6} {:>6} {:>6} {:>5} {:>6}"
    head = ["", "trials", "went on", "identical", "from cut"]
    yield form.format("kind", *head, "median", "p95", "most", "left", "wrong")
    groups = defaultdict[tuple[str, str], list[Any]](list)
    for row in rows:
        for key in (
            "",
            *(row[word] for word in ("network", "system", "phase", "victim")),
        ):
            groups[row["kind"], key].append(row)
    for (kind, key), group in sorted(groups.items()):
        firsts = [row["first"] for row in group if row["first"] is not None]
        times = [row["noticed"] for row in group if row["noticed"] is not None] or [0.0]
        counts = (
            sum(row["identical"] for row in group),
            sum(first > 0 for first in firsts),
            f"{statistics.median(times):.2f}",
            f"{np.percentile(times, 95):.2f}",
            f"{max(times):.2f}",
            sum(bool(row["left"] or row["orphans"]) for row in group),
            sum(bool(row["complaint"]) for row in group),
        )
        yield form.format(kind, key, len(group), len(firsts), *counts)


def victims() -> dict[str, list[str]]:
    """Return the kinds of processes of every system's tasks."""
    processes = {
        system: prepare(loads(stated(system))).problem.job.processes
        for system in LENGTHS
    }
    return {
        system: [*dict.fromkeys(map(kind_of, names))]
        for system, names in processes.items()
    }


@contextlib.contextmanager
def three_hosts(out: Path) -> Iterator[Path]:
    """Make three hosts that ssh reaches; yield the file with their addresses."""
    with namespaces(3) as (bridge, *names):
        stem, network = names[0].rpartition("h")[0], bridge.rpartition(".")[0]
        script, file = out / "ssh", out / "hosts"
        script.write_text(_SSH.format(stem=stem))
        script.chmod(0o700)
        lines = [f"{network}.{name.rpartition('h')[2]}\n" for name in names]
        file.write_text("".join(lines))
        os.environ["EMU_SSH"] = str(script)
        yield file


def main() -> int:
    """Carry out what is missing, and print the table; return 1 where one is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    today = int(datetime.now(UTC).strftime("%Y%m%d"))
    parser.add_argument("out", type=lambda text: Path(text).absolute())
    parser.add_argument("--restarts", type=int, default=300)
    parser.add_argument("--resumes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=today)
    parser.add_argument("--only", default="", help="trials of which a word is this")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "rows.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["kind"], row["number"], row["seed"]) for row in rows}
    drawn = draws(options.seed, options.restarts, options.resumes, victims())
    with three_hosts(options.out) as hosts:
        campaign = Campaign(options.out, hosts)
        for draw in drawn:
            words = asdict(draw)
            if (draw.kind, draw.number, draw.seed) in done:
                continue
            if options.only and options.only not in words.values():
                continue
            began = time.monotonic()
            rows.append(row := campaign.carry_out(draw))
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            took = time.monotonic() - began
            told = f"{draw.victim} {draw.phase}: {row['process']} from {row['first']}"
            where = f"{draw.number:4} {draw.system} {draw.network}"
            print(
                f"{draw.kind} {where} {told} ({took:.0f} s) {row['complaint']}",
                flush=True,
            )
    print("\n".join(table(rows)))
    return int(any(row["complaint"] for row in rows))
