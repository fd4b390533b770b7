"""Every test of the asyncio edge runs on the standard loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[
    str, Callable[[], asyncio.AbstractEventLoop]
]:
    """Return the loops by name."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
