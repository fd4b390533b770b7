"""Whether this process itself stood still: stopped, or starved of the cores.

Everybody else then looks dead, and a coordinator that is not heard of for seconds is
given up by its agents; so a failure soon after has no other cause.
"""

from __future__ import annotations

import math
import time


class Standstill:
    """Follows how much wall time passes between two looks at the clock.

    Parameters
    ----------
    fatal
        Wall seconds after which others give this process up.
    """

    def __init__(self, fatal: float) -> None:
        self._fatal = fatal
        self._looked = time.monotonic()
        self._pause, self._resumed = 0.0, -math.inf

    def look(self) -> float:
        """Look at the clock; return the wall seconds since the last look."""
        now = time.monotonic()
        pause, self._looked = now - self._looked, now
        if pause > self._fatal:
            self._pause, self._resumed = pause, now
        return pause

    def story(self) -> str:
        """Return what happened if this process was just given up, else nothing."""
        self.look()
        if time.monotonic() - self._resumed > 2 * self._fatal:
            return ""
        return (
            f"the coordinator, this process, stood still for {self._pause:.1f} s of "
            f"wall time: agents give it up after {self._fatal:g} s"
        )
