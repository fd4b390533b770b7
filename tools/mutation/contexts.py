"""A plugin of pytest that tells coverage which test runs.

Coverage itself can only see that a function called ``test_...`` is entered: of tests
that Hypothesis calls, all drawn ones, that is a function of Hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Have lines noted with the test, whose fixtures are part of it."""
    measured = Coverage.current()
    if measured is not None:
        # Of a test with parameters all are one: they stand in square brackets.
        measured.switch_context(item.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        if measured is not None:
            measured.switch_context("")
