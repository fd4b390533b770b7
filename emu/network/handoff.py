"""An edge between two tasks of one process: payloads change hands in its memory."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from emu.network.inbox import Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.network.inbox import Inbox
    from emu.network.send_log import FrameLog


class Handoff:
    """Takes what an `emu.network.OutEdge` takes, and delivers it at once.

    Parameters
    ----------
    inbox
        Of the process, which both ends share.
    departures, arrivals
        Logs of the process: a handoff is a row of each, as a frame is.
    """

    def __init__(
        self, edge: int, inbox: Inbox, departures: FrameLog, arrivals: FrameLog
    ) -> None:
        self.edge, self._inbox = edge, inbox
        self._logs = departures, arrivals

    def send(
        self, iteration: int, payload: Mapping[str, NDArray[Any]], **_how: object
    ) -> asyncio.Future[None]:
        """Deliver a payload; the future is done.

        The receiver gets views that it cannot write to: the arrays are still those of
        the sender, and of whoever else it gave them to. Nothing is shaped or checked.

        Raises
        ------
        NodeMisbehaved
            If this iteration was delivered before and not taken.
        """
        views = {name: array.view() for name, array in payload.items()}
        for view in views.values():
            view.flags.writeable = False
        now = time.monotonic()
        delivery = Delivery(self.edge, iteration, views, now, iteration)
        for log in self._logs:
            log.note(self.edge, iteration, now, now, delivery.nbytes)
        self._inbox.deliver(delivery)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done
