"""Members of a run who stay for the next one: agents, processes, their links.

To start anew takes 0.5 s of an agent, 2 s where torch is imported, and for every
process a fork, a rehearsal and pages that are written for the first time. What a run
counts, keeps and learns is made anew in all of them; data connections are, too, since
the kernel counts in them, and TCP learns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from emu.emulation.coordinator.deadlines import Deadlines
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch.signals import run_until_signalled
from emu.emulation.wire.process_spec import ProcessSpec

T = TypeVar("T")
#: Wall seconds in which the loop, which stands still between runs, hears who has gone.
_HEAR = 0.02


class Company:
    """Members who serve several runs, one after the other; a context manager.

    They stay while a run orders the same processes as the one before. Leaving the
    context ends them.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._members: Membership | None = None
        self._former: Membership | None = None
        self._specs: Sequence[ProcessSpec] = ()
        self.news = ""
        """Why the latest run has started anew; empty for the first, and where members
        have stayed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self.dismiss(), lambda: "ending the processes of a run")
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T], story: Callable[[], str]) -> T:
        """Run a coroutine in the loop of the members, as `run_until_signalled`."""
        return run_until_signalled(work, story, self._runner.run)

    def hear(self) -> None:
        """Hear who has gone since the last run: the loop stood still meanwhile."""
        self._runner.run(asyncio.sleep(_HEAR))

    def members(
        self,
        settings: RunSettings,
        log: Path,
        deadlines: Deadlines,
        specs: Sequence[ProcessSpec],
    ) -> Membership:
        """Return who serves a run that orders these processes.

        Those of the run before, where all are there and it ordered the same; else
        nobody has joined yet. Other parameters are those of `Membership`.
        """
        kept = self._members
        self.news = ""
        if kept is not None:
            if not kept.is_whole:
                self.news = "a process of the run before has gone"
            elif specs != self._specs:
                self.news = "its processes are others"
            else:
                kept.serve_next(log, deadlines)
                return kept
            self._former = kept
        self._members = Membership(settings, log, deadlines)
        self._specs = specs
        return self._members

    async def dismiss_former(self) -> None:
        """End the members of the run before, where this one has others."""
        if self._former is not None and self._former.stays:
            await self._former.dismiss()
        self._former = None

    async def dismiss(self) -> None:
        """End all members."""
        await self.dismiss_former()
        if self._members is not None and self._members.stays:
            await self._members.dismiss()


def runner_of(settings: RunSettings) -> Callable[..., Any]:
    """Return what runs a coroutine of a run, as `run_until_signalled`.

    In the loop of its company where it has one, which hears who has gone meanwhile.
    """
    company = settings.company
    if not isinstance(company, Company):
        return run_until_signalled
    company.hear()
    return company.run


def members_of(
    settings: RunSettings,
    log: Path,
    deadlines: Deadlines,
    specs: Sequence[ProcessSpec],
) -> Membership:
    """Return who serves a run: of the company of its settings, where it has one."""
    company = settings.company
    if not isinstance(company, Company):
        return Membership(settings, log, deadlines)
    return company.members(settings, log, deadlines, specs)
