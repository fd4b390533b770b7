"""Chromium without a head, over its DevTools protocol: what a user sees and does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: apt-get install chromium"
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Browser:
    """A browser of its own with an empty profile, while entered."""

    def __init__(self) -> None:
        self._exits = contextlib.AsyncExitStack()
        self._ids = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def __aenter__(self) -> Self:
        assert CHROMIUM is not None
        profile = Path(self._exits.enter_context(_profile()))
        self._process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={profile}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._exits.push_async_callback(self._end)
        port_file = profile / "DevToolsActivePort"
        async with asyncio.timeout(30):
            while not _written(port_file):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.02)
        port, path = port_file.read_text().split("\n")[:2]
        session = await self._exits.enter_async_context(aiohttp.ClientSession())
        self._socket = await self._exits.enter_async_context(
            session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reading.cancel()
        await self._exits.aclose()

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said.get("sessionId") in self._pages:
                self._pages[said["sessionId"]].heard(said["method"], said["params"])

    async def call(
        self, method: str, session: str | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Return the result of a DevTools command."""
        self._ids += 1
        number = self._ids
        self._answers[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        await self._socket.send_json(command)
        async with asyncio.timeout(30):
            said = await self._answers[number]
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def open(
        self, url: str, *, width: int = 1280, height: int = 1600, dark: bool = False
    ) -> Page:
        """Return a page that has loaded ``url``."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        for domain in ("Runtime", "Log", "Page"):
            await page.call(f"{domain}.enable")
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await page.call("Emulation.setEmulatedMedia", features=[scheme])
        await page.call("Page.navigate", url=url)
        await page.until("document.readyState === 'complete'")
        return page


class Page:
    """One tab; ``complaints`` are the errors and warnings of its console."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []

    def heard(self, method: str, said: dict[str, Any]) -> None:
        """Note an event when it is a complaint."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] != "log":
            self.complaints.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.complaints.append(json.dumps(said["entry"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a DevTools command on this page."""
        return await self._browser.call(method, self._session, **parameters)

    async def value(self, expression: str) -> Any:
        """Return what a JavaScript expression comes to."""
        said = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait for an expression to become true."""
        async with asyncio.timeout(30):
            while not await self.value(expression):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.05)

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at ``start``, release it at ``end``; CSS pixels."""
        for kind, (x, y), held in (
            ("mousePressed", start, 1),
            ("mouseMoved", end, 1),
            ("mouseReleased", end, 0),
        ):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=held,
                clickCount=1,
            )
        await self.frame()

    async def frame(self) -> None:
        """Wait until what was asked for has been drawn."""
        await self.call(
            "Runtime.evaluate",
            expression="new Promise(done => requestAnimationFrame(() => "
            "requestAnimationFrame(() => done(true))))",
            awaitPromise=True,
        )

    async def screenshot(self) -> bytes:
        """Return what is seen as PNG."""
        said = await self.call("Page.captureScreenshot")
        return base64.b64decode(said["data"])


def _written(file: Path) -> bool:
    return file.exists() and "/devtools" in file.read_text()


def _profile() -> tempfile.TemporaryDirectory[str]:
    """Chromium's children may still write while the directory goes."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
