"""A runtime that does what the name of its process says."""

from __future__ import annotations

import time
from typing import Any


def main(descriptions: list[dict[str, Any]]) -> int:
    """Exit with a status, raise, or sleep."""
    what, _, status = descriptions[0]["process"].partition(" ")
    if what == "raise":
        raise ArithmeticError(what)
    if what == "sleep":
        time.sleep(60)
    return int(status)
