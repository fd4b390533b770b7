"""Hooks of mkdocs: what the site has beside docs/, and what it reads in another way.

README.md is its first page, the other documents of the root stand beside those of
docs/, and the reference of Python is made of docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
#: Document of the root -> page of the site.
PAGES = {
    "README.md": "index.md",
    **{f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING")},
    **{f"{name}.md": f"{name}.md" for name in ("THREAT_MODEL", "CHANGELOG")},
}
#: Page -> its weight in a search over that of others: the changelog repeats in a line
#: what another page explains.
BOOSTS = {"CHANGELOG.md": 0.1, "ARCHITECTURE.md": 2.0}
#: What a script, a test or a system of one's own imports.
MODULES = {
    "emu": "scripts: what the commands call, and what they return",
    "emu.testing": "problems with known answers",
    "emu.testing.trials": "whole runs in virtual time, under faults",
    "emu.testing.faults": "small faults, planted in a package",
    "emu.systems.system": "the record of a system of one's own",
    "emu.systems.job_section": "its keys, and what they build",
    "emu.pytest_plugin": "scenarios as tests",
    "emu.errors": "every error, with its exit code",
}
_FENCE = re.compile(r"^```(\w+) +(\S.*)$", re.MULTILINE)
_TO_DOCS = re.compile(r"(?<=\]\()docs/|(?<=src=\")docs/")
_TO_ROOT = re.compile(r"(?<=\]\()((?:\.\./)*)\.\./(?=[A-Z_]+\.md)")
_NAME = re.compile(r"`docs/([\w/]+\.md)`|`([A-Z_]+\.md)`")


def reference() -> str:
    """Return the page of what Python code imports."""
    parts = [f"::: {name}\n" for name in MODULES]
    lines = [f"- [`{name}`][{name}]: {what}" for name, what in MODULES.items()]
    return "\n".join(["# Python\n", *lines, "", *parts])


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not stand in docs/."""
    for document, page in PAGES.items():
        text = _TO_DOCS.sub("", (ROOT / document).read_text(encoding="utf-8"))
        if page in BOOSTS:
            text = f"---\nsearch:\n  boost: {BOOSTS[page]}\n---\n{text}"
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "python.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with titles of files, and links, as mkdocs has them."""
    text = _FENCE.sub(_fence, _TO_ROOT.sub(r"\1", markdown))
    if page.file.src_uri == "index.md":  # its list of documents leads to them
        text = _NAME.sub(_link, text)
    return text


def _fence(block: re.Match[str]) -> str:
    language, words = block.groups()
    is_file = "." in words and "=" not in words
    return f'```{language} title="{words}"' if is_file else f"```{language}"


def _link(name: re.Match[str]) -> str:
    page = name[1] or PAGES.get(name[2], "")
    return f"[{name[0]}]({page})" if page else name[0]
