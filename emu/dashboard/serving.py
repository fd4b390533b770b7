"""The dashboard's thread: it outlives the run's event loop and never runs on it.

A thread of its own was chosen over the coordinator's loop because the page has to be
there before that loop starts and after it ended, and because a slow viewer then cannot
hold up a decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from typing import TYPE_CHECKING, Self

from aiohttp import web

from emu.dashboard.server import Pages
from emu.errors import ScenarioError
from emu.network import format_address

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from emu.dashboard.live_run import LiveRun


class Dashboard:
    """Serves a live run while it is entered; a context manager.

    Parameters
    ----------
    host, port
        Where; port 0 takes any free one.
    token
        What viewers must show, see `Pages`; drawn if none is given, and part of the
        address then.

    Raises
    ------
    ScenarioError
        On entry, when the address cannot be used.
    """

    def __init__(
        self,
        live: LiveRun,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
    ) -> None:
        self._drawn = "" if token else secrets.token_urlsafe(16)
        self._pages = Pages(live, token or self._drawn, directory)
        self._host, self._port = host, port
        self._up = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread = threading.Thread(
            target=self._run, name="emu dashboard", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the page is; see `at`."""
        return self.at("")

    def at(self, path: str) -> str:
        """Return the address of a page, with the token if it was drawn.

        Who gave a token knows it: it does not go into terminals and their logs.
        """
        query = f"?token={self._drawn}" if self._drawn else ""
        return f"http://{format_address(self._host, self._port)}/{path}{query}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait()
        if self._failure is not None:
            raise ScenarioError(
                f"cannot listen on {format_address(self._host, self._port)}: "
                f"{self._failure.strerror or self._failure}",
                file="--dashboard",
            ) from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._leave is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(
            self._pages.application(), access_log=None, shutdown_timeout=0.5
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
            self._port = int(runner.addresses[0][1])
            telling = asyncio.create_task(self._pages.broadcast())
            self._up.set()
            await self._leave.wait()
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
            await self._pages.tell_all()  # that the run has ended, where its report is
        except OSError as error:
            self._failure = error
            self._loop = None
            self._up.set()
        finally:
            await runner.cleanup()
