"""The site of docs/ builds strictly, and its search finds what it holds."""

from __future__ import annotations

import asyncio
import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.browser import Browser, needs_browser

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("mkdocs") is None or find_spec("mkdocstrings") is None,
        reason="no mkdocs: pip install '.[docs]'",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built strictly, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
    @override
    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Return where a server of this host has the site."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_what_is_made_for_the_site_is_there(site: Path) -> None:
    """The README with its picture, the reference of Python, titles of files."""
    first = (site / "index.html").read_text(encoding="utf-8")
    python = (site / "python.html").read_text(encoding="utf-8")
    guide = (site / "own_graph.html").read_text(encoding="utf-8")

    assert 'src="pictures/report.png"' in first
    assert (site / "pictures" / "report.png").stat().st_size < 200_000
    for name in ("emu.simulate", "emu.testing.trials.Trials", "emu.errors.NodeLost"):
        assert f'id="{name}"' in python
    assert 'class="filename">mine.yaml<' in guide
    assert 'href="https://fonts' not in first


@pytest.mark.nightly
@needs_browser
async def test_its_search_finds(address: str) -> None:
    """By hand it is the field at the top; a key of scenarios leads to its page."""
    find = """
        const field = document.querySelector('.md-search__input');
        field.focus(); field.value = 'credit_window';
        field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
        field.dispatchEvent(new Event('input', {bubbles: true}));
    """
    async with Browser() as browser:
        page = await browser.open(f"{address}/index.html")
        await page.until("document.querySelector('.md-search__input') !== null")
        await asyncio.sleep(0.5)  # until its script listens
        await page.value(find)
        await page.until("document.querySelectorAll('.md-search-result__link').length")
        links = await page.value(
            "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
        )

    assert any("scenarios.html" in link for link in links)
    assert page.complaints == []
