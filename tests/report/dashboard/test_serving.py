"""The dashboard over HTTP and in a browser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from emu.errors import ScenarioError
from emu.report.dashboard.server import Dashboard
from emu.report.dashboard.status import Status
from tests import draws
from tests.browser import Browser, needs_browser
from tests.report.dashboard.replay import Replay


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def answer(
    client: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    async with client.get(url, headers=headers) as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


async def test_status_is_of_its_schema(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    replay = Replay()
    replay.until(3.0)
    with Dashboard(replay.live, tmp_path) as dashboard:
        code, status = await answer(client, dashboard.at("api/status"))
        _, schema = await answer(client, dashboard.at("api/schema"))
        _, text = await answer(client, dashboard.at("metrics"))
    assert code == 200
    assert Status.model_validate(status).run_time == 3.0
    assert set(schema["properties"]) == set(status)
    assert "emu_run_time_seconds 3\n" in text


@pytest.mark.parametrize("host", ["evil.example", "[", "a:b:c", "", "x\xff", "]:9"])
@pytest.mark.parametrize("token", ["Bearer \xff", "Bearer", "Basic x", "\udcff", ""])
async def test_odd_requests_are_refused_not_failed(
    host: str, token: str, tmp_path: Path
) -> None:
    """Raw, since no client sends them: each is answered with a status of 4xx."""
    with Dashboard(Replay().live, tmp_path) as dashboard:
        parts = urlsplit(dashboard.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        request = f"GET /api/status HTTP/1.1\r\nHost: {host}\r\n"
        request += f"Authorization: {token}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("latin-1", errors="replace"))
        said = await asyncio.wait_for(reader.read(), 10)
        writer.close()

    assert said.split()[1].startswith(b"4")


async def test_malformed_requests_are_not_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A traceback of each, with its bytes, went to the terminal."""
    with Dashboard(Replay().live, tmp_path) as dashboard:
        parts = urlsplit(dashboard.url)
        for line in (b"GET / HTTPP/1.1", b"GET / HTTP/1.1\r\nA\x7f\x1b[31m: b"):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(line + b"\r\n\r\n")
            said = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            assert said.split()[1] == b"400"

    assert caplog.records == []


@pytest.mark.parametrize(
    "said", [draws.rarely(b""), b"GET / HT", draws.rarely(b"GET / HTTP/1.1\r\n\r\n")]
)
async def test_idle_connections_take_no_more_than_their_share(
    said: bytes, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Of a user without the token: they are closed, and who has it is served."""
    with Dashboard(Replay().live, tmp_path) as dashboard:
        parts = urlsplit(dashboard.url)
        async with client.ws_connect(dashboard.at("ws")) as viewer:
            await viewer.receive_json(timeout=10)
            idle = []
            for _ in range(400):
                idle.append(await asyncio.open_connection(parts.hostname, parts.port))
                idle[-1][1].write(said)
            code, _ = await answer(client, dashboard.at("api/status"))
            await viewer.receive_json(timeout=10)
            await asyncio.sleep(0.5)
            files = psutil.Process().net_connections("tcp")
        for _, writer in idle:
            writer.close()

    assert code == 200
    served = [
        f for f in files if f.laddr.port == parts.port and f.status == "ESTABLISHED"
    ]
    assert len(served) <= 260


async def test_a_viewer_may_speak_and_goes_on_hearing(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Ignore texts, bytes and pings of a viewer."""
    with Dashboard(Replay().live, tmp_path) as dashboard:
        async with client.ws_connect(dashboard.at("ws")) as viewer:
            await viewer.receive_json(timeout=10)
            await viewer.send_str("hello")
            await viewer.send_bytes(b"\x00")
            await viewer.ping()
            for _ in range(3):
                assert await viewer.receive_json(timeout=10)
            assert not viewer.closed


async def test_loopback_asks_for_the_token_too(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    with Dashboard(Replay().live, tmp_path) as dashboard:
        url = dashboard.at("api/status")
        assert (await answer(client, url.partition("?")[0]))[0] == 403
        assert (await answer(client, url))[0] == 200
        async with client.get(dashboard.url) as response:
            policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        elsewhere = {"Origin": "http://evil.example"}
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(dashboard.at("ws"), headers=elsewhere)


async def test_other_addresses_ask_for_a_token(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    with Dashboard(Replay().live, tmp_path, host="0.0.0.0") as dashboard:  # noqa: S104
        whole = dashboard.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        bare, _, token = whole.partition("?token=")
        assert len(token) >= 16
        assert (await answer(client, bare))[0] == 403
        assert (await answer(client, f"{bare}?token=x{token[1:]}"))[0] == 403
        assert (await answer(client, whole))[0] == 200
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await answer(client, f"{bare}metrics", bearer))[0] == 200


def test_token_that_was_given_is_not_in_the_address(tmp_path: Path) -> None:
    assert "secret" not in Dashboard(Replay().live, tmp_path, token="secret").url  # noqa: S106


def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ScenarioError, match=f"cannot listen on 127.0.0.1:{port}"):
            Dashboard(Replay().live, tmp_path, port=port).__enter__()


async def test_viewers_hear_the_same_whenever_they_come(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    replay = Replay()
    with Dashboard(replay.live, tmp_path) as dashboard:
        async with client.ws_connect(dashboard.at("ws")) as early:
            heard = (await early.receive_json())["history"]
            assert heard["time"] == []
            heard["rates"] = [[] for _ in range(4)]
            replay.until(replay.schedule.makespan)
            replay.live.on_end(replay.result())
            while True:
                said = await early.receive_json()
                samples = said["samples"]
                heard["time"] += samples["time"]
                heard["end"] = samples["end"]
                heard["flows"] += samples["flows"]
                heard["training"] += samples["training"]
                heard["spans"] += samples["spans"]
                for rates in samples["rates"]:
                    for port, rate in enumerate(rates):
                        heard["rates"][port].append(rate)
                if said["status"]["phase"] == "ended" and not samples["time"]:
                    break
            async with client.ws_connect(dashboard.at("ws")) as late:
                assert (await late.receive_json())["history"] == heard
        _, history = await answer(client, dashboard.at("api/history"))
        assert history == heard


@needs_browser
async def test_a_page_opened_half_way_and_one_after_the_end_agree(
    tmp_path: Path,
) -> None:
    replay = Replay()
    async with Browser() as browser:
        with Dashboard(replay.live, tmp_path) as dashboard:
            replay.until(replay.schedule.makespan / 2)
            early = await browser.open(dashboard.url)
            await early.until("runHistory().time.length > 3")
            half = await early.value("runHistory().time.length")
            replay.until(replay.schedule.makespan)
            replay.live.on_end(replay.result())
            late = await browser.open(dashboard.url, dark=True)
            for page in (early, late):
                await page.until("byId('phase').textContent.startsWith('ended')")
                await page.until(f"runHistory().end === {replay.schedule.makespan!r}")
                assert page.complaints == []
            seen = await early.value("runHistory()")
            assert len(seen["time"]) > half
            assert await late.value("runHistory()") == seen
            known = replay.live.history_json()
            assert seen == known | {
                name: [list(one) for one in known[name]]
                for name in ("training", "spans")
            }
        # The server has gone; the page keeps the run.
        await early.until("byId('phase').textContent.includes('emu has left')")
        assert await early.value("runHistory()") == seen
        cards = await early.value("byId('figures').textContent")
        assert f"{replay.schedule.makespan:g} s" in cards
