"""Settings that every test shares."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

from tests.one_thread import one_thread  # before numpy is imported

# isort: split
from emu.emulation.coordinator import run as coordinator_run
from emu.graph_data import drawn_graph, opened
from emu.host import confinement
from emu.prediction.analysis import task_moves
from emu.prediction.placement import affordable
from emu.scenario import machine_choice
from tests import draws
from tests.bytecode import compile_product, kept_bytecode
from tests.leaks import Held, left_since
from tests.leftovers import leftovers
from tests.warm_agents import agents_are_warm, warm_agents
from tests.warm_commands import warm_commands

__all__ = ["agents_are_warm", "leftovers", "warm_agents", "warm_commands"]

# Their own hosts are shared, and no test publishes the times that it measured.
os.environ.setdefault("EMU_FORCE", "1")

# Ignored under nohup, and in the background of a shell without job control; programs
# that tests start would ignore them as well.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# deadline=None: the machines that run this are shared and noisy.
settings.register_profile(
    "dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=60,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
# Of a property of every rule for rates, 300 draws in all; nightly more, as of others.
settings.register_profile("each_rule", max_examples=settings().max_examples // 3)

#: How many tests were collected that `make nightly` alone tries.
LEFT_OUT = pytest.StashKey[int]()


@cache
def _says_so(path: Path) -> bool:
    """Return True where a file spells that it has tests over sockets."""
    text = path.read_text()
    return "mark.emulation" in text or "mark.netns" in text


def pytest_configure(config: pytest.Config) -> None:
    """Compile the product before workers are there, and processes of tests."""
    if not hasattr(config, "workerinput"):
        compile_product()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Try what a busy host makes fail again; beside others it is always busy.

    Of draws, those that `tests.draws` says.
    """
    tried = draws.select(items, config.args)
    left_out = [*{*items} - {*tried}]
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = len(left_out)
    items[:] = tried
    for item in items:
        sockets = any(map(item.get_closest_marker, ("emulation", "netns")))
        if sockets and not _says_so(item.path):
            said = "write mark.emulation or mark.netns: tools/check looks for it"
            raise pytest.UsageError(f"{item.path}: {said}")
        if sockets and item.get_closest_marker("untimed") is None:
            item.add_marker("emu_retry")
    # They end what others have forked: what is started before them is started again.
    items.sort(key=lambda item: item.get_closest_marker("cold") is None)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say how many tests were left out, and how they are tried."""
    count = config.stash.get(LEFT_OUT, 0)
    said = f"{count} left to make nightly: name them, or set EMU_DRAWS=all"
    return [said] if count else []


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(
    settings: SimpleNamespace,
) -> Generator[None, object, object]:
    """Have the time of a test run out again, every 20 s.

    Hypothesis catches the first error and tries examples that are alike, without a
    limit: a property that hung once kept CI for all of its 90 minutes.
    """
    set_timer = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, 20.0)
    return set_timer


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, of which all is kept.

    That was a third of the CPU of collecting. Torch is imported then.
    """
    gc.disable()
    try:
        with one_thread(), kept_bytecode():
            return (yield)
    finally:
        gc.enable()
        # Looks for garbage took 4 % of the CPU of tests, 9 of those that draw figures.
        gc.set_threshold(5_000)


@pytest.fixture(scope="session", autouse=True)
def kept_commands() -> Iterator[None]:
    """Build the commands once, which the runner of typer builds anew at each call.

    Of 23 ms of CPU that `policies` took in a process that has them all, 17 were that.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """Keep later looks for garbage from what is there before the tests of a file.

    All that workers have imported takes 0.2 s of CPU to look through, and each restart
    of a job looks.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def kept_frozen() -> Iterator[None]:
    """Keep runs from thawing what `collected` froze: all would be looked through again.

    A run over sockets freezes what is there and thaws it behind itself, but where the
    collector is off. Runs of commands that are processes of their own do so.
    """
    never = SimpleNamespace(isenabled=lambda: False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator_run, "gc", never)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> Iterator[None]:
    """Search placements with a tenth of what users spend.

    Whole searches were two thirds of the CPU of all that prepares, explains or compares
    scenarios. A file that asks how good they are has a fixture of this name in place of
    this one.
    """
    flows, most = affordable.__defaults__ or ()
    # Its package has a function of that name.
    search: Any = importlib.import_module("emu.prediction.placement.search")
    low, high, proposals = search.SKETCH
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affordable, "__defaults__", (flows // 10, most // 10))
        patch.setattr(machine_choice, "FLOWS", flows // 10)
        patch.setattr(task_moves, "FLOWS", task_moves.FLOWS // 10)
        patch.setattr(search, "SKETCH", (low, high, proposals // 10))
        patch.setattr(search, "LISTING_STEPS", search.LISTING_STEPS // 10)
        yield


@pytest.fixture
def read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files of others in this process, as a confined reader does that it calls.

    For files of few lines, where the question is what they say: to copy a process of
    the whole suite takes longer than to read them. Bounds, and what comes back from a
    child, are asked for in tests/host/test_confinement.py; mutants are read apart.
    """
    monkeypatch.setattr(confinement, "_files", [tmp_path])


@pytest.fixture
def short_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Find how often drawn graphs draw an edge with a tenth of what users spend.

    For tests that ask whether a file is read, and not how good such a graph is: each of
    another size takes 2 s of CPU. What is kept of them fits no graph of users.
    """
    cache = tmp_path_factory.getbasetemp() / "short_draws"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    draws_per_search = drawn_graph._SAMPLE_DRAWS
    monkeypatch.setattr(drawn_graph, "_SAMPLE_DRAWS", draws_per_search // 10)
    kept = (drawn_graph.draw_structure, opened._draw)
    for cached in kept:
        cached.cache_clear()
    yield
    for cached in kept:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Fail a test that leaves a thread, a process, an open file or a socket."""
    before = Held.now()
    yield
    if left := left_since(before):
        pytest.fail(f"left behind: {'; '.join(sorted(left))}", pytrace=False)
