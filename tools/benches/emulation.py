"""Cost of a run over sockets, beside a raw pair of sockets, and how fast it may go.

CPU is that of a run's processes, as /proc counts it, their start and their own work
(sampling, payloads) included; a raw pair of blocking sockets is both of its ends.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads
from tools.benches.figures import Figure

_MACHINES, _EACH, _ROUNDS = 20, 10, 10
#: Runs of each scale.
_RUNS = 5
#: Shipped scenarios and the wall seconds that an emulated one is to take.
_FASTEST = {"testbed_products": 1.0, "demo": 0.5}


def raw_pair(size: int, count: int) -> float:
    """Return CPU seconds of both ends of a blocking pair per message of ``size``."""
    here, there = os.pipe()
    server = socket.create_server(("127.0.0.1", 0))
    if not os.fork():
        sender = socket.create_connection(server.getsockname())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = bytes(size)
        sender.sendall(data)
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(count):
            sender.sendall(data)
        os.write(there, repr(_cpu_since(before)).encode())
        os._exit(0)
    receiver, _ = server.accept()
    with server, receiver:
        view = memoryview(bytearray(size))

        def receive() -> None:
            came = 0
            while came < size:
                came += receiver.recv_into(view[came:])

        receive()
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(count):
            receive()
        own = _cpu_since(before)
        other = float(os.read(here, 100))
        os.wait()
    os.close(here)
    os.close(there)
    return (own + other) / count


def _cpu_since(before: resource.struct_rusage) -> float:
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


def many_tasks(machines: int, each: int, rounds: int) -> str:
    """Return a scenario of tasks that send 1 MB to two others in every iteration."""
    count = machines * each
    flows = "".join(
        f"  - {{from: t{n}, to: t{(n + far) % count}, lag: 1, volume: 1 MB}}\n"
        for n in range(count)
        for far in (7, 31)
    )
    return _job("many", machines, count, rounds, "10 Gbit/s", "5 ms", flows)


def small_messages(tasks: int, rounds: int) -> str:
    """Return a scenario of rings of messages of 2 to 20 kB, five per task and round."""
    rng = np.random.default_rng(1)
    flows = ""
    for n in range(tasks):
        for far in range(1, 6):
            sizes = rng.integers(2_000, 20_000, rounds)
            volume = ", ".join(f"{size} B" for size in sizes.tolist())
            ends = f"from: t{n}, to: t{(n + far) % tasks}"
            flows += f"  - {{{ends}, lag: 1, volume: [{volume}]}}\n"
    return _job("small", 5, tasks, rounds, "1 Gbit/s", "1 ms", flows)


def _job(
    name: str, machines: int, tasks: int, rounds: int, nic: str, time: str, flows: str
) -> str:
    named = "".join(f"  - {{name: t{n}, time: {time}}}\n" for n in range(tasks))
    places = "".join(f"    t{n}: m{n % machines}\n" for n in range(tasks))
    return (
        f"name: {name}\ncluster:\n  machines:\n"
        f"  - {{name: m, count: {machines}, nic: {nic}}}\n"
        f"job:\n  system: custom\n  iterations: {rounds}\n"
        f"  flows:\n{flows}  tasks:\n{named}"
        f"placement:\n  policy: explicit\n  tasks:\n{places}"
        "emulation: {time_scale: 10, deadline: 120 s}\n"
    )


def run(scenario: Scenario, **emulation: Any) -> dict[str, Any]:
    """Return the result of a run with these keys of ``emulation``."""
    edits = {f"emulation.{key}": value for key, value in emulation.items()}
    one = load(scenario, edits)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(scenario.name, Path(folder))
        return carry_out(prepare(one), emulation_settings(one), directory).content


def _per_gb(result: dict[str, Any]) -> float:
    sent = result["transport"]
    return float(sent["cpu_seconds"] / (sent["payload_bytes"] / 1e9))


def _said(result: dict[str, Any]) -> str:
    trust = result["verdict"]["trust"]
    return f"makespan error {result['makespan_error']:+.2%}, {trust}"


def emulation(_seconds: float) -> Iterator[Figure]:
    """Yield what a run costs this computer, and whether it is trusted in a hurry."""
    raw = min(raw_pair(1_000_000, 1000) for _ in range(3)) * 1e3
    yield Figure("raw pair, messages of 1 MB: CPU per GB", raw)
    testbed = run(load("testbed_products"), time_scale=3)
    share, note = _per_gb(testbed) / raw, _said(testbed)
    yield Figure("testbed_products at 3: CPU per GB", _per_gb(testbed), note=note)
    yield Figure("the same over a raw pair", share, "x", 12.0)
    yield from _of_tasks(raw)
    yield from _of_messages()
    for name, scale in _FASTEST.items():
        yield _in_a_hurry(name, scale)


def _of_tasks(raw: float) -> Iterator[Figure]:
    """Yield figures of many tasks, each a process, and all of a machine one."""
    count = _MACHINES * _EACH
    for how in ("task", "machine"):
        found = run(loads(many_tasks(_MACHINES, _EACH, _ROUNDS)), processes=how)
        name, aimed = f"{count} tasks, a process per {how}:", how == "machine"
        startup, share = found["startup"], _per_gb(found) / raw
        yield Figure(f"{name} CPU per GB", _per_gb(found), note=_said(found))
        yield Figure(f"{name} over a raw pair", share, "x", 6.0 if aimed else None)
        memory = startup["memory"] / 1e6
        yield Figure(f"{name} memory", memory, "MB", 800.0 if aimed else None)
        yield Figure(f"{name} start", startup["seconds"], aim=5.0 if aimed else None)


def _of_messages() -> Iterator[Figure]:
    tasks, rounds = 20, 100
    few = min(raw_pair(10_000, 20_000) for _ in range(3))
    yield Figure("raw pair, CPU per message of 10 kB", few)
    found = run(loads(small_messages(tasks, rounds)))
    seconds = found["transport"]["cpu_seconds"] / (tasks * 5 * rounds)
    what = "CPU per message of 2 to 20 kB"
    yield Figure(what, seconds, aim=1.5e-4, note=_said(found))


def _in_a_hurry(name: str, scale: float) -> Figure:
    """Return how many runs of a shipped scenario are trusted at a time scale."""
    results = [run(load(name), time_scale=scale) for _ in range(_RUNS)]
    trusted = sum(one["verdict"]["trust"] == "trusted" for one in results)
    errors = [abs(one["makespan_error"]) for one in results]
    middle, worst = statistics.median(errors), max(errors)
    note = f"makespan errors: median {middle:.2%}, worst {worst:.2%}"
    what = f"{name} at {scale:g}: trusted runs of {_RUNS}"
    return Figure(what, trusted, "", _RUNS, at_least=True, note=note)
