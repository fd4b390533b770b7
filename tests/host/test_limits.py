"""Limits against files of strangers, and other small things of a host, by numbers."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.errors import DataError
from emu.host import confinement, files, interruption
from emu.host.files import cache_home, scratch_folder
from emu.host.interruption import deadline
from emu.host.limits import are_large, large_files, limit, say_memory
from emu.host.stream_key import stream_key

MIB = 1 << 20


def sized(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_limits_hold_outside_of_blocks_that_lift_them() -> None:
    assert (limit(7), are_large()) == (7, False)
    with large_files(None):
        assert (limit(7), are_large()) == (7, False)
    with large_files(print):
        assert are_large()
        with large_files(None):
            assert limit(7) > 1 << 60
    assert limit(7) == 7


def test_a_large_scenario_takes_40_bytes_of_memory_per_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 4 MiB on it is said; 160 MiB may be all that is free."""
    free = SimpleNamespace(available=160 * MIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    large = sized(tmp_path / "large", 4 * MIB)
    lines: list[str] = []
    say_memory(large)
    with large_files(lines.append):
        say_memory(sized(tmp_path / "small", 4 * MIB - 1))
        assert lines == []
        say_memory(large)
        text = "takes about 0.2 GB of memory, 0.2 GB are free"
        assert lines == [f"{large}: {text}"]
        free.available -= 1
        with pytest.raises(DataError, match=text):
            say_memory(large)


def test_a_reader_has_bounds_by_the_bytes_of_all_its_files(tmp_path: Path) -> None:
    """A minute and 0.5 GB, and 20 s and 100 MB for each megabyte."""
    paths = [sized(tmp_path / name, size) for name, size in (("a", 10**6), ("b", 5))]
    bounds = confinement._Bounds.of([tmp_path, *paths[1:]])
    assert bounds.seconds == 80
    assert bounds.memory == (1 << 29) + 100 * (10**6 + 5 + 5)
    assert not bounds.are_lifted


def test_keys_of_streams_are_those_of_splitmix64() -> None:
    """Known first numbers of the seeds 0 and 1234567, and the second of 0."""
    assert int(stream_key(0)) == 0xE220A8397B1DCDAF
    assert int(stream_key(1234567)) == 6457827717110365317
    assert len({int(stream_key(*parts)) for parts in ((1, 2), (2, 1), (1, 2, 0))}) == 3


def test_a_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_home() == Path("/somewhere/emu")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_home() == Path("/home/me/.cache/emu")


def test_a_deadline_leaves_a_timer_the_rest_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block of 300 s within a timer of 1000 s leaves it 700."""
    times = iter([50.0, 350.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(interruption, "time", clock)
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with deadline(500.0):
            pass
        rest, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 600.0 < rest <= 700.0
        assert signal.getsignal(signal.SIGALRM) == handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    times = iter([50.0, 350.0])
    with deadline(500.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_ranks_hand_on_lies_in_memory_and_nothing_else_does() -> None:
    in_memory = {}
    for purpose in ("virtual", "trial", "metis"):
        with scratch_folder(purpose) as folder:
            assert folder.name.startswith(f"emu-{purpose}-")
            in_memory[purpose] = folder.parent == files._MEMORY
        assert not folder.exists()
    assert in_memory == {"virtual": True, "trial": False, "metis": False}
