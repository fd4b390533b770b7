"""The HTTP side: page, WebSocket, status, metrics, report."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from emu.emulation.network import Strangers, format_address
from emu.errors import ScenarioError
from emu.names import for_label, for_script
from emu.report.dashboard.live_run import SAMPLE, LiveRun
from emu.report.dashboard.status import NOTHING, Seen, Status
from emu.report.html.chart_data import list_tasks
from emu.runs.result import Result

if TYPE_CHECKING:
    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


#: Text format of Prometheus.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


#: Single figures of a `Status`: the attribute, name and kind of the metric, its help.
_FIGURES = (
    ("run_time", "run_time_seconds", "gauge", "Run time"),
    ("processes", "processes", "gauge", "Node processes that are up"),
    ("steps", "steps", "gauge", "Tasks times iterations"),
    ("steps_ended", "steps_ended_total", "counter", "Steps that have ended"),
    ("active_flows", "active_flows", "gauge", "Flows that move now"),
    ("delay", "event_delay_wall_seconds", "gauge", "Of the last event"),
    ("max_delay", "event_delay_max_wall_seconds", "gauge", "Worst one"),
    ("late_steps", "late_steps_total", "counter", "Steps that ended late"),
)
#: The same of every direction of every NIC and every other link.
_OF_PORTS = (
    ("rate", "port_rate_bytes_per_second", "gauge", "Sum of the rates through"),
    ("capacity", "port_capacity_bytes_per_second", "gauge", "Capacity of"),
    ("bytes", "port_bytes_total", "counter", "Bytes of arrived flows through"),
)


def metrics(status: Status) -> str:
    """Return ``status`` as metrics; seconds and bytes are emulated unless ``wall``."""
    names = ("scenario", "policy", "phase")
    labels = {name: getattr(status, name) for name in names}
    lines = [_metric("run_info", "gauge", "What runs", (labels, 1))]
    for key, name, kind, text in _FIGURES:
        value = getattr(status, key)
        metric = _metric(name, kind, text, ({}, value))
        lines.append(metric)
    for key, name, kind, text in _OF_PORTS:
        ports = []
        for port in status.ports:
            labels = {"port": port.port}
            ports.append((labels, getattr(port, key)))
        meaning = f"{text} a direction of a NIC or another link"
        metric = _metric(name, kind, meaning, *ports)
        lines.append(metric)

    figures = []
    for name, value in status.figures.items():
        labels = {"figure": name}
        figures.append((labels, value))
    meaning = "Mean of what the tasks reported last"
    metric = _metric("training_figure", "gauge", meaning, *figures)
    lines.append(metric)
    return "".join(lines)


def _metric(
    name: str,
    kind: str,
    text: str,
    *samples: tuple[Mapping[str, str], float],
) -> str:
    """Return one metric with its help; nothing without samples."""
    if not samples:
        return ""

    lines = [
        f"# HELP emu_{name} {text}.",
        f"# TYPE emu_{name} {kind}",
    ]
    for labels, value in samples:
        pairs = [f'{key}="{for_label(text)}"' for key, text in labels.items()]
        braces = ""
        if pairs:
            all_pairs = ",".join(pairs)
            braces = f"{{{all_pairs}}}"
        # 17 digits are enough to read the same double again.
        lines.append(f"emu_{name}{braces} {value:.17g}")
    return "\n".join(lines) + "\n"


#: Pages carry their own script and style, and connect to this server only.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: A viewer that takes longer than this for one update is dropped, wall seconds.
_PATIENCE = 5.0
#: Connections that have shown no token yet, the newest; and how many are accepted in
#: one go, which must be far fewer: they cannot be closed before they are made.
_STRANGERS = 256
_BACKLOG = 32


# Frozen, so that two of one connection are equal: that is how it is found again.
@dataclass(frozen=True)
class _Visitor:
    """A connection, as one of those that have shown no token."""

    handler: web.RequestHandler

    def turn_away(self, _: str) -> None:
        self.handler.force_close()


class Pages:
    """Answers requests about one run.

    A request must show the ``token`` as ``?token=`` or bearer: other users of this
    computer reach its loopback addresses too, and so do pages open in a browser.
    ``directory`` is that of the run, whose report.html is served once it is there.
    """

    def __init__(self, live: LiveRun, token: str, directory: Path) -> None:
        self._live = live
        self._token = token
        self._directory = directory
        self._viewers: dict[web.WebSocketResponse, Seen] = {}
        self._strangers = Strangers(_STRANGERS)

    def new_connection(self, server: web.Server) -> web.RequestHandler:
        """Return the protocol of a new connection; too many idle ones are closed.

        Any user of this computer may connect, and the files of this process are those
        of the run as well.
        """
        handler = server()
        visitor = _Visitor(handler)
        self._strangers.enter(visitor)
        return handler

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        live = self._live
        report = str(self._directory / "report.html")

        def whole_page() -> web.Response:
            text = page(live, report)
            return web.Response(text=text, content_type="text/html")

        def all_metrics() -> web.Response:
            kind = {"Content-Type": CONTENT_TYPE}
            text = metrics(live.status())
            return web.Response(body=text.encode(), headers=kind)

        def schema() -> Result:
            return Status.model_json_schema(mode="serialization")

        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", _handler(whole_page))
        app.router.add_get("/metrics", _handler(all_metrics))
        answers = {
            "status": lambda: live.status().model_dump(),
            "history": live.history_json,
            "prediction": live.prediction_json,
            "schema": schema,
        }
        for name, make in answers.items():
            handler = _json_handler(make)
            app.router.add_get(f"/api/{name}", handler)
        app.router.add_get("/ws", self._socket)
        app.router.add_get("/report.html", self._report)
        return app

    async def broadcast(self) -> None:
        """Send every viewer what is new, four times a second, for ever."""
        while True:
            await asyncio.sleep(SAMPLE)
            await self.send_updates()

    async def send_updates(self) -> None:
        """Send every viewer what is new."""
        update = self._update()
        # One that does not read fills its buffer; it must not hold up the others.
        viewers = [*self._viewers]
        sends = [self._send(viewer, update) for viewer in viewers]
        await asyncio.gather(*sends)

    async def _send(self, viewer: web.WebSocketResponse, update: Result) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                seen = self._viewers[viewer]
                news, seen = self._live.news(seen)
                self._viewers[viewer] = seen
                text = json.dumps({**update, **news})
                await viewer.send_str(text)
        except (ConnectionError, TimeoutError):  # left, or does not read
            self._viewers.pop(viewer, None)
            await viewer.close()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer":
            token = request.query.get("token", "")

        # A header may hold bytes that are no UTF-8.
        token_bytes = token.encode(errors="surrogateescape")
        right_bytes = self._token.encode()
        # It takes as long for every wrong token, which tells nothing of the right one.
        if not hmac.compare_digest(token_bytes, right_bytes):
            raise web.HTTPForbidden(text="the token is missing or wrong\n")

        # It has shown the token: it is not closed to make room for others.
        visitor = _Visitor(request.protocol)
        self._strangers.leave(visitor)
        response = await handler(request)
        # The headers of a WebSocket have been sent by now.
        if not response.prepared:
            response.headers["Cache-Control"] = "no-store"
            response.headers["Content-Security-Policy"] = _POLICY
            # The address may hold the token, which no other site must be told.
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        # A browser sends where a page is from; programs send none.
        origin = request.headers.get("Origin")
        if origin is not None:
            _, _, host = origin.partition("://")
            if host != request.host:
                raise web.HTTPForbidden(text="another site's page may not look on\n")

        viewer = web.WebSocketResponse(heartbeat=20.0, compress=False)
        await viewer.prepare(request)
        self._viewers[viewer] = NOTHING
        update = self._update()
        await self._send(viewer, update)

        try:
            async for message in viewer:
                if message.type == WSMsgType.ERROR:
                    break
        finally:
            self._viewers.pop(viewer, None)
        return viewer

    async def _report(self, _: web.Request) -> web.StreamResponse:
        if not self._has_report():
            text = "the report is written when the run has ended\n"
            raise web.HTTPNotFound(text=text)
        return web.FileResponse(self._directory / "report.html")

    def _has_report(self) -> bool:
        report = self._directory / "report.html"
        return report.is_file()

    def _update(self) -> Result:
        status = self._live.status().model_dump()
        return {"status": status, "report": self._has_report()}


def _handler(make: Callable[[], web.Response]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return make()

    return handle


def _json_handler(make: Callable[[], object]) -> Handler:
    def answer() -> web.Response:
        content = make()
        return web.json_response(content)

    return _handler(answer)


def page(live: LiveRun, report: str = "report.html") -> str:
    """Return the page: self-contained but for its WebSocket.

    ``report`` is where that of the finished run is going to be.
    """

    def read(package: str, name: str) -> str:
        package_files = files(f"emu.report.{package}")
        path = package_files / "assets" / name
        return path.read_text("utf-8")

    problem = live.problem
    most = problem.links.steps.most.tolist()
    ports = []
    for link, capacity in zip(problem.links, most, strict=True):
        port = {"name": link.name, "capacity": capacity}
        ports.append(port)
    facts = {
        "report": report,
        "machines": problem.cluster.names,
        "tasks": list_tasks(problem),
        "ports": ports,
    }
    shared_scripts = ("scale.js", "curves.js")
    own_scripts = ("lanes.js", "dashboard.js")
    scripts = [read("html", name) for name in shared_scripts]
    scripts += [read("dashboard", name) for name in own_scripts]
    shared_style = read("html", "report.css")
    own_style = read("dashboard", "dashboard.css")
    facts_text = json.dumps(facts)
    parts = {
        "style": shared_style + own_style,
        "facts": for_script(facts_text),
        "script": "\n".join(scripts),
    }
    # In one go: what is put in may hold braces of its own.
    text = read("dashboard", "dashboard.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text)


def _quiet_logger() -> logging.Logger:
    """Return a logger that says nothing of malformed input.

    Of that aiohttp logs a traceback with its bytes, which could fill the terminal.
    """
    logger = logging.getLogger(__name__)
    logger.addFilter(_is_of_emu)
    return logger


def _is_of_emu(record: logging.LogRecord) -> bool:
    """Return False for a record of input that aiohttp could not read."""
    if not record.exc_info:
        return True
    _, error, _ = record.exc_info
    return not isinstance(error, HttpProcessingError)


class Dashboard:
    """Serves a live run while it is entered; a context manager.

    Port 0 takes any free one. Viewers must show the ``token``, see `Pages`; one is
    drawn if none is given, and part of the address then.

    Raises ScenarioError on entry, when the address cannot be used.
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
        right_token = token or self._drawn
        self._pages = Pages(live, right_token, directory)
        self._host = host
        self._port = port
        self._up = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        # A thread with a loop of its own, so that viewers do not hold up the run.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="emu dashboard", daemon=True
        )

    @property
    def url(self) -> str:
        """Address of the page; see `at`."""
        return self.at("")

    def at(self, path: str) -> str:
        """Return the address of a page, with the token if it was drawn.

        A token that was given is known: it does not go into terminals and their logs.
        """
        query = ""
        if self._drawn:
            query = f"?token={self._drawn}"
        address = format_address(self._host, self._port)
        return f"http://{address}/{path}{query}"

    def __enter__(self) -> Self:
        self._thread.start()
        # Until it listens or cannot: the port is not known before.
        self._up.wait()
        if self._failure is not None:
            place = format_address(self._host, self._port)
            cause = self._failure.strerror or str(self._failure)
            problem = f"cannot listen on {place}: {cause}"
            raise ScenarioError(problem, file="--dashboard") from self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._leave is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        runner = web.AppRunner(
            self._pages.application(),
            # Its lines would hold the token of every request.
            access_log=None,
            logger=_quiet_logger(),
            # By default pages that stay open would hold up the end for 60 s.
            shutdown_timeout=0.5,
        )
        await runner.setup()

        site: asyncio.Server | None = None
        server = cast("web.Server", runner.server)  # which is set up
        try:
            # Sites of aiohttp take no maker of connections, which counts strangers.
            site = await self._loop.create_server(
                partial(self._pages.new_connection, server),
                self._host,
                self._port,
                backlog=_BACKLOG,
            )
            # Of port 0, which is any free one.
            _, port, *_ = site.sockets[0].getsockname()
            self._port = int(port)
            updates = asyncio.create_task(self._pages.broadcast())
            self._up.set()
            await self._leave.wait()
            updates.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await updates
            # That the run has ended, and where its report is.
            await self._pages.send_updates()
        except OSError as error:
            self._failure = error
            self._loop = None
            self._up.set()
        finally:
            if site is not None:
                site.close()
            await runner.cleanup()
