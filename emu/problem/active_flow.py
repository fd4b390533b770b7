"""An active flow as a rule of one's own sees it."""

from __future__ import annotations

from typing import NamedTuple


class ActiveFlow(NamedTuple):
    """A flow that waits for its rate; listed by ``serves``, destination, source."""

    edge: str
    """Name of its edge, as ``a->b``: unique, among flows that are active too."""
    source: str
    """Task that sends it."""
    destination: str
    """Task that waits for it: flows to one of its iterations are a coflow."""
    iteration: int
    """Iteration of the source, from 0."""
    serves: int
    """Iteration of the destination."""
    volume: float
    """Bytes in all."""
    links: tuple[str, ...]
    """Links that it crosses, ``m0 out`` and ``m1 in`` unless a route states others."""
    job: str
    """Job of its tasks, empty where there is one."""
    left: float
    """Bytes to go, above 0."""

    @property
    def name(self) -> str:
        """Name of it in errors."""
        return f"{self.edge} of iteration {self.iteration}"
