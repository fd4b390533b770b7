"""How the scheduler is compiled and when a kept result is thrown away."""

from __future__ import annotations

from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from emu.scheduling import compiled
from emu.scheduling.service_clocks import heap_pop, heap_push


def double(value: float) -> float:
    return 2.0 * value


def test_without_a_writable_cache_directory_it_compiles_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(Dispatcher, "enable_caching", refuse)

    assert compiled.compiled(double)(21.0) == 42.0


def test_inlined_functions_are_plain_functions_to_a_reader() -> None:
    push: Any = heap_push
    keys, items = [0.0] * 3, [0] * 3

    for size, key in enumerate((3.0, 1.0, 2.0)):
        push.py_func(keys, items, 0, size, key, int(10 * key))

    assert (keys[0], items[0]) == (1.0, 10)


@pytest.mark.parametrize("size", range(1, 9))
def test_heaps_give_their_entries_back_in_order(size: int) -> None:
    push: Any = heap_push
    pop: Any = heap_pop
    keys, items = [0.0] * size, [0] * size
    for i in range(size):
        push.py_func(keys, items, 0, i, float(5 * i % 8), i)

    found = []
    for left in range(size, 0, -1):
        found.append((keys[0], items[0]))
        pop.py_func(keys, items, 0, left)

    assert found == sorted((float(5 * i % 8), i) for i in range(size))
