"""How the scheduler is compiled and when a kept result is thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from numba.core.dispatcher import Dispatcher

from emu.scheduling import compiled, heap, state

if TYPE_CHECKING:
    from pathlib import Path


def double(value: float) -> float:
    return 2.0 * value


def test_without_a_writable_cache_directory_it_compiles_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(Dispatcher, "enable_caching", refuse)

    assert compiled.compiled(double)(21.0) == 42.0


def test_the_cache_is_stamped_with_every_source_that_is_compiled() -> None:
    function: Any = state.new_state

    _, sources = function._cache._cache_file._source_stamp
    names = {name for name, _, _ in sources}
    assert {
        "heap.py",
        "service_clocks.py",
        "events.py",
        "chain.py",
        "bounds.py",
    } <= names


def test_an_edit_to_any_compiled_file_makes_the_cache_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "scheduling/compiled.py"))
    edited = tmp_path / "simulation" / "events.py"
    edited.parent.mkdir()
    edited.write_text("now = 0.0\n")
    before = compiled._sources()

    edited.write_text("now = 0.25\n")

    assert before != compiled._sources()


def test_inlined_functions_are_plain_functions_to_a_reader() -> None:
    push: Any = heap.push
    keys, items = [0.0] * 3, [0] * 3

    for size, key in enumerate((3.0, 1.0, 2.0)):
        push.py_func(keys, items, 0, size, key, int(10 * key))

    assert (keys[0], items[0]) == (1.0, 10)


@pytest.mark.parametrize("size", range(1, 9))
def test_heaps_give_their_entries_back_in_order(size: int) -> None:
    push: Any = heap.push
    pop: Any = heap.pop
    keys, items = [0.0] * size, [0] * size
    for i in range(size):
        push.py_func(keys, items, 0, i, float(5 * i % 8), i)

    found = []
    for left in range(size, 0, -1):
        found.append((keys[0], items[0]))
        pop.py_func(keys, items, 0, left)

    assert found == sorted((float(5 * i % 8), i) for i in range(size))
