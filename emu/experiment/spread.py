"""Independent pieces of work in forked processes, one for each core."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import traceback
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from emu.emulation.launch.host_report import usable_cores
from emu.emulation.launch.signals import die_with_parent
from emu.errors import EmulatorError, RunError

T = TypeVar("T")


def spread(
    work: Callable[[int], T], count: int, jobs: int = 0
) -> Generator[tuple[int, T | EmulatorError], None, None]:
    """Yield the number and result of every piece of work, as they end.

    An error of ours is a result; any other ends all. Processes are forked, so that
    nothing of the work has to be sent to them; they end with this generator, whatever
    ends it, and by the kernel where this process is killed.

    ``work`` is called with 0 to ``count`` - 1, its results must pickle; ``jobs`` are
    processes, 0 is one for each core. One, or one piece, needs none.

    Raises RunError when a process was killed; it names the number of its piece.
    """
    jobs = min(jobs or usable_cores(), count)
    if jobs < 2:
        yield from ((n, _carry_out(work, n)) for n in range(count))
        return
    fork = multiprocessing.get_context("fork")
    rest = iter(range(count))
    busy: dict[Connection, int] = {}
    children = []
    try:
        for _ in range(jobs):
            ours, theirs = fork.Pipe()
            child = fork.Process(target=_serve, args=(work, theirs), daemon=True)
            child.start()
            theirs.close()
            children.append(child)
            ours.send(n := next(rest))
            busy[ours] = n
        while busy:
            ready = wait([*busy])
            for ours in [one for one in busy if one in ready]:
                n = busy.pop(ours)
                try:
                    is_done, result = ours.recv()
                except EOFError:
                    raise RunError(f"the process of piece {n} was killed") from None
                if not is_done:  # a mistake of ours, with its trace
                    raise RuntimeError(result)
                if (coming := next(rest, None)) is not None:
                    ours.send(coming)
                    busy[ours] = coming
                yield n, result
    finally:
        for child in children:
            child.kill()
            child.join()


def spread_over_ray(
    work: Callable[[Any], T], pieces: Sequence[Any], address: str
) -> Generator[tuple[int, T | EmulatorError], None, None]:
    """Yield as `spread`, each piece a task of a Ray cluster that has emu installed.

    ``work`` and pieces pickle. Raises RunError without ray, or without a cluster there.
    """
    try:
        ray = import_module("ray")
        (host, _, port) = address.rpartition(":")
        socket.create_connection((host, port), 5).close()  # ray.init tries for minutes
        ray.init(address, log_to_driver=False, logging_level="error")
    except (ImportError, OSError, ValueError) as error:
        raise RunError(f"--ray {address}: {error}; the extra is [ray]") from error
    try:
        task = ray.remote(_carry_out).remote
        number = {task(work, piece): n for n, piece in enumerate(pieces)}
        while number:
            (done,), _ = ray.wait([*number])
            yield number.pop(done), ray.get(done)
    finally:
        ray.shutdown()


def _carry_out(work: Callable[[Any], T], n: Any) -> T | EmulatorError:
    try:
        return work(n)
    except EmulatorError as error:
        return error


def _serve(work: Callable[[int], T], orders: Connection) -> None:
    """Carry out what is ordered, in a forked process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who ordered it ends this
    try:
        while True:
            orders.send((True, _carry_out(work, orders.recv())))
    except EOFError:
        pass
    except Exception:  # noqa: BLE001 -- its trace is for who ordered it
        orders.send((False, traceback.format_exc()))
    os._exit(0)
