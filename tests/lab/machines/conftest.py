"""Labs need namespaces and a kernel with HTB: where there are none, tests say so."""

from __future__ import annotations

import pytest

from emu.lab.machines.lab import missing_needs


@pytest.fixture(scope="session")
def _a_lab_can_be_had() -> None:
    needs = missing_needs()
    if needs:
        pytest.skip(f"no lab here: {'; '.join(needs)}")
