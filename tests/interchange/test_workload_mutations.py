"""One thing changed in a valid workload of others shows, is said, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.attacks.workload_mutations import Facts, cases, find_problem

CASES = cases()


@given(st.sampled_from(sorted(CASES)), st.integers(0, 2**32 - 1))
def test_a_change_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    assert not find_problem(CASES[name], folder, np.random.default_rng(seed))


@pytest.mark.usefixtures("read_here")
def test_what_is_read_otherwise_than_stated_is_found(tmp_path: Path) -> None:
    """The search can fail: a count of twice the bytes, and a key that nothing shows."""
    case = CASES["goal"]

    def twice(files: Any) -> Facts:
        facts = case.facts(files)
        return facts._replace(size=2 * facts.size, others=json.dumps(files))

    wrong = type(case)(case.files, case.write, case.free, twice)
    assert any(
        "by another count" in find_problem(wrong, tmp_path, np.random.default_rng(seed))
        for seed in range(60)
    )
