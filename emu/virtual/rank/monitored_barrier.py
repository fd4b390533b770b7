"""A monitored barrier: members report to the first, which names who did not come.

As torch's ProcessGroupGloo has it: messages of one number each, to the first member and
back, with what is left of the timeout for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import torch

from emu.virtual.rank.rank_end import RankEnd, VirtualWork

#: Tags of reports and answers are above those of programs.
_TAGS = 1 << 33
#: Seconds that are left at least for a member, where all are to be named.
_LEAST = 1e-3
#: Posts a send or receive of tensors to or from a member, with a tag.
_Post: TypeAlias = Callable[[Sequence[torch.Tensor], int, int], VirtualWork]


class MonitoredBarriers:
    """Monitored barriers of a group, one after the other.

    Parameters
    ----------
    group
        The group: its ``send`` and ``recv`` carry reports and answers.
    end
        Of this rank.
    member
        Number of this rank in the group.
    members
        Number of members.
    """

    def __init__(
        self,
        group: Any,
        end: RankEnd,
        member: int,
        members: int,
    ) -> None:
        self._group = group
        self._end = end
        self._member = member
        self._members = members
        self._count = 0

    def pass_one(self, timeout: timedelta, *, names_all: bool) -> None:
        """Wait until all members have come.

        Raises RuntimeError after the timeout, with the words that gloo has: which
        member did not come, or with ``names_all`` all of them.
        """
        tag = _TAGS + self._count
        self._count += 1
        if self._member > 0:
            self._report(tag, timeout)
            return

        reports = self._post_all(self._group.recv, tag)
        self._await(reports, timeout, names_all=names_all)
        answers = self._post_all(self._group.send, tag)
        self._await(answers, timeout, names_all=names_all)

    def _post_all(self, post: _Post, tag: int) -> dict[int, VirtualWork]:
        """Post a message with each member but the first; return them by member."""
        posted = {}
        for member in range(1, self._members):
            number = torch.zeros(1, dtype=torch.int32)
            posted[member] = post([number], member, tag)
        return posted

    def _report(self, tag: int, timeout: timedelta) -> None:
        number = torch.zeros(1, dtype=torch.int32)
        report = self._group.send([number], 0, tag)
        answer = self._group.recv([number], 0, tag)
        limit = max(timeout, timedelta(seconds=_LEAST))
        try:
            report.wait(limit)
            answer.wait(limit)
        except RuntimeError as error:
            self._end.forget(report)
            self._end.forget(answer)
            raise RuntimeError(
                f"Rank {self._member} successfully reached monitoredBarrier, but "
                "received errors while waiting for send/recv from rank 0. Please check "
                "rank 0 logs for faulty rank."
            ) from error

    def _await(
        self,
        works: Mapping[int, VirtualWork],
        timeout: timedelta,
        *,
        names_all: bool,
    ) -> None:
        limit = timeout.total_seconds()
        milliseconds = round(1000 * limit)
        end = self._end.now() + limit
        missing = []
        for member, work in works.items():
            left = end - self._end.now()
            if left <= 0 and not names_all:
                self._forget(works)
                raise RuntimeError(
                    f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms."
                )
            seconds = max(left, _LEAST)
            if not self._comes(work, seconds):
                missing.append(member)
                if not names_all:
                    break
        if missing:
            self._forget(works)
            ranks = "Ranks" if names_all else "Rank"
            names = ", ".join(map(str, missing))
            raise RuntimeError(
                f"[Rank 0]: {ranks} {names} failed to pass monitoredBarrier in "
                f"{milliseconds} ms"
            )

    def _comes(self, work: VirtualWork, seconds: float) -> bool:
        """Return True where a message is over within so many seconds."""
        limit = timedelta(seconds=seconds)
        try:
            return work.wait(limit)
        except RuntimeError:
            return False

    def _forget(self, works: Mapping[int, VirtualWork]) -> None:
        for work in works.values():
            self._end.forget(work)
