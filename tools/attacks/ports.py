"""Hostile frames into every port of a run that goes on, beside a run left alone.

    tools/hostile ports OUT --frames 10000 --seconds 180

Runs ``emu run golden`` with a dashboard twice, as long as asked. Into every port that
the second listens on (coordinator, node processes, dashboard) go frames and requests
that were good until bytes were flipped, cut, repeated, moved or replaced; one in ten
connections stays open and sends no more. A line per run: makespan error, verdict,
memory of the command. The exit status is 1 when the run failed, or anything raised what
is no error of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from emu.emulation.wire.encoding import encode_data, encode_message
from emu.emulation.wire.frame_layout import Kind
from tools.attacks.chaos import settings
from tools.attacks.mutations import mutated

ROOT = Path(__file__).parents[2]
_TOGETHER = 24  # connections at a time
_ANSWER = 0.02  # wall seconds to listen to what comes back
_KEPT = 0.1  # share of the connections that stay open
_MOST_KEPT = 100
_TIME_SCALE = 0.2


def good_frames() -> list[bytes]:
    """Return what honest peers send first, and later, and a browser's request."""
    nonce = bytes(range(32))
    hellos: list[dict[str, Any]] = [
        {"role": role, "name": name, "nonce": nonce}
        for role, name in (("agent", "localhost"), ("process", "g0"))
    ]
    frames = [encode_message(Kind.CONTROL, fields) for fields in hellos]
    frames += [encode_message(Kind.HELLO, {"edge": 0, "nonce": nonce})]
    frames += [encode_message(Kind.HELLO, {"proof": nonce})]
    frames += [encode_message(Kind.CONTROL, {"is": "Stop", "reason": "no"})]
    payload = {"x": np.arange(64, dtype=np.float32)}
    frames.append(b"".join(bytes(part) for part in encode_data(0, 0, payload)))
    frames.append(
        b"GET /api/status?token=abc HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Authorization: Bearer abc\r\nContent-Length: 3\r\n\r\nabc"
    )
    return frames


def ports_of(process: psutil.Process) -> set[tuple[str, int]]:
    """Return where a process and all that it started listen."""
    found = set()
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            for connection in each.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip, connection.laddr.port))
    return found


async def attack(
    ports: Iterable[tuple[str, int]],
    count: int,
    rng: np.random.Generator,
    per_second: float = 1e9,
) -> Counter[tuple[str, int]]:
    """Send so many hostile frames to each of these ports in turn; return how many went.

    A port that is closed has no more to take.
    """
    good, there = good_frames(), sorted(ports)
    sent: Counter[tuple[str, int]] = Counter()
    kept: list[asyncio.StreamWriter] = []
    room, begun = asyncio.Semaphore(_TOGETHER), time.monotonic()

    async def one(at: tuple[str, int], data: bytes, *, keep: bool) -> None:
        async with room:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(*at)
                writer.write(data)
                await writer.drain()
                sent[at] += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 16), _ANSWER)
                if keep and len(kept) < _MOST_KEPT:
                    kept.append(writer)
                else:
                    writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            data = mutated(good[rng.integers(len(good))], rng)
            at, keep = there[number % len(there)], rng.random() < _KEPT
            group.create_task(one(at, data, keep=keep))
            late = number / per_second - (time.monotonic() - begun)
            await asyncio.sleep(max(late, 0.0))
    for writer in kept:
        writer.close()
    return sent


def carried(out: Path, seconds: float, frames: int, seed: int) -> dict[str, Any]:
    """Return what a run came to that took so long, and so many hostile frames."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    output = out / "output"
    command = [sys.executable, "-P", "-m", "emu", "run", "golden", "--dashboard"]
    command += ["--json", str(out / "result.json"), "--runs", str(out / "runs")]
    command += settings("golden", [], _TIME_SCALE, seconds)
    with output.open("wb") as file:
        run = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT
        )
    process, sent, memory = psutil.Process(run.pid), Counter[tuple[str, int]](), 0
    try:
        while run.poll() is None and len(ports := ports_of(process)) < 8:
            time.sleep(0.1)
        if frames and run.poll() is None:
            rate = frames / (0.8 * seconds)
            work = attack(ports, frames, np.random.default_rng(seed), rate)
            sent = asyncio.run(work)
        while run.poll() is None:
            with contextlib.suppress(psutil.Error):
                memory = max(memory, process.memory_info().rss)
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    logs = [output, *(out / "runs").glob("*/agent.log")]
    printed = "".join(log.read_text(errors="replace") for log in logs)
    row = {"frames": sum(sent.values()), "ports": len(sent), "exit": run.returncode}
    row |= {
        "tracebacks": printed.count("Traceback"),
        "refused": printed.count("refused"),
    }
    row |= {"memory_mb": memory / 2**20, "fewest": min(sent.values(), default=0)}
    if run.returncode == 0:
        result = json.loads((out / "result.json").read_text())
        row |= {"error": result["makespan_error"], "trust": result["verdict"]["trust"]}
    return row


def main() -> int:
    """Carry out both runs; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("alone", "hostile"))
    options = parser.parse_args()
    wrong = False
    for name, frames in {"alone": 0, "hostile": options.frames}.items():
        if options.only not in (None, name):
            continue
        row = carried(options.out / name, options.seconds, frames, options.seed)
        print(name, json.dumps(row), flush=True)
        wrong |= bool(row["exit"] or row["tracebacks"] or row["frames"] < frames)
    return int(wrong)
