"""Bytes that timed tasks send, made once for the processes that are forked later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from emu.problem.job import TIMED
from emu_nodes import runtime, timed
from tests.emulation.launch.specs import process_spec, process_task


def test_all_payloads_of_a_seed_are_windows_of_one_pool() -> None:
    """Payloads may begin anywhere in it, however long."""
    seed = 20_261_129  # of no other test: pools are kept
    pool = timed.pool_of(seed, 10)
    assert len(pool) == 10 + timed.POOL
    assert timed.pool_of(seed, 9) is pool
    longer = timed.pool_of(seed, timed.POOL + 3)
    assert len(longer) == 2 * timed.POOL + 3
    assert (longer[: timed.POOL] == pool[: timed.POOL]).all()
    assert (longer[timed.POOL :] == longer[: timed.POOL + 3]).all()
    assert timed.pool_of(seed, timed.POOL + 3) is longer
    assert (timed.pool_of(6, 10)[:99] != pool[:99]).any()


def test_processes_find_the_pool_that_was_prepared_before_their_fork() -> None:
    """As long as the longest payload of timed tasks; of one seed at a time."""
    seed = 20_261_130  # of no other test
    rows = [[3, 200_000], [], [150_000, 7]]
    task = process_task(TIMED, settings={"payload_bytes": rows})
    other = process_task("x:X", settings={"payload_bytes": [[900_000]]})
    spec = process_spec("w0", other, task, job_settings={"seed": seed})
    runtime.prepare([msgpack.unpackb(msgpack.packb(spec, default=vars))])

    pool = timed._pools[seed]
    assert len(pool) == 200_000 + timed.POOL
    assert timed.pool_of(seed, 200_000) is pool

    negative = replace(spec, job_settings={"seed": -1})
    runtime.prepare([msgpack.unpackb(msgpack.packb(negative, default=vars))])
    assert set(timed._pools) == {2**64 - 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"process": 1},
        {"tasks": [{"task": 0}]},
        {"job_settings": []},
        {"job_settings": {"seed": "x"}},
    ],
)
def test_what_cannot_be_prepared_is_left_to_its_process(wrong: dict[str, Any]) -> None:
    spec = process_spec("w0", process_task(TIMED))
    fields = msgpack.unpackb(msgpack.packb(spec, default=vars))
    runtime.prepare([fields | wrong])


def test_a_pool_that_no_memory_holds_is_left_to_its_process() -> None:
    task = process_task(TIMED, settings={"payload_bytes": [[2**60]]})
    spec = process_spec("w0", task, job_settings={"seed": 20_261_131})
    pools = {**timed._pools}
    runtime.prepare([msgpack.unpackb(msgpack.packb(spec, default=vars))])
    assert timed._pools == pools
