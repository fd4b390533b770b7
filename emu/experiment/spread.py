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
from emu.errors import EmulatorError, RunError
from emu.host.interruption import die_with_parent

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
        for number in range(count):
            yield number, _try(work, number)
        return
    fork = multiprocessing.get_context("fork")
    rest = iter(range(count))
    busy = {}
    children = []
    try:
        for _ in range(jobs):
            pipe, pipe_of_child = fork.Pipe()
            arguments = (work, pipe_of_child)
            # Daemons, so that they end as well where this
            # process leaves without its generator.
            child = fork.Process(target=_serve, args=arguments, daemon=True)
            child.start()
            pipe_of_child.close()  # or its end would not be seen when it dies
            children.append(child)
            busy[pipe] = next(rest)
            pipe.send(busy[pipe])

        while busy:
            ready = wait([*busy])
            for pipe in [pipe for pipe in busy if pipe in ready]:
                number = busy.pop(pipe)
                try:
                    is_done, result = pipe.recv()
                except EOFError:
                    problem = f"the process of piece {number} was killed"
                    raise RunError(problem) from None
                if not is_done:  # a mistake of ours, with its trace
                    raise RuntimeError(result)
                coming = next(rest, None)
                if coming is not None:
                    # The next piece is under way while the reader looks at this one.
                    pipe.send(coming)
                    busy[pipe] = coming
                yield number, result
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
        host, _, port = address.rpartition(":")
        socket.create_connection((host, port), 5).close()  # ray.init tries for minutes
        ray.init(address, log_to_driver=False, logging_level="error")
    except (ImportError, OSError, ValueError) as error:
        raise RunError(f"--ray {address}: {error}; the extra is [ray]") from error

    try:
        task = ray.remote(_try).remote
        numbers = {task(work, piece): number for number, piece in enumerate(pieces)}
        while numbers:
            (reference,), _ = ray.wait([*numbers])
            yield numbers.pop(reference), ray.get(reference)
    finally:
        ray.shutdown()


def _try(work: Callable[[Any], T], piece: Any) -> T | EmulatorError:
    try:
        return work(piece)
    except EmulatorError as error:
        return error


def _serve(work: Callable[[int], T], orders: Connection) -> None:
    """Carry out what is ordered, in a forked process."""
    die_with_parent()
    # They come to the group, as from a terminal or `timeout`: who ordered it ends this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        while True:
            result = _try(work, orders.recv())
            orders.send((True, result))
    except EOFError:
        pass
    except Exception:  # noqa: BLE001 -- its trace is for who ordered it
        orders.send((False, traceback.format_exc()))
    # Past exit handlers and unwritten output, which the fork has copied of its parent.
    os._exit(0)
