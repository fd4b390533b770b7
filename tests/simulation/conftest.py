"""The oracle, and the compiled code ready before the first test's time runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emu.simulation import makespan
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from types import ModuleType

# A cold compilation takes 15-60 s, by how busy the machine is: more than a test may.
makespan(*two_machine_example(1))


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    return _load("oracle")


@pytest.fixture(scope="session")
def flat() -> ModuleType:
    return _load("flat")
