"""Files that commands write, as lines that a person can compare."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

#: Longest line of JSON that is not parted.
WIDTH = 200


def show(name: str, keys: str = "") -> str:
    """Return a file as text; of a page without its style and programs.

    ``keys``: of JSON, what is shown alone, or behind ``-`` what is left out.
    """
    path = Path(name)
    if not path.exists():
        return f"no {name}\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return lay_out(_chosen(json.loads(text), keys)) + "\n"
    if path.suffix == ".html":
        return _page(text)
    if path.suffix == ".svg":
        return _drawing(text)
    return text


def _page(text: str) -> str:
    """Return a page with a line for each of its elements, and its data laid out."""
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.DOTALL)
    data = re.compile(
        r"(<script type=.application/json.[^>]*>)(.*?)(?=</script>)", re.DOTALL
    )
    text = data.sub(lambda part: part[1] + "\n" + lay_out(json.loads(part[2])), text)
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"(?=<(?![/b]))", "\n", text))


def _drawing(text: str) -> str:
    """Return the words of a drawing, and how many shapes it has of each kind."""
    words = re.findall(r"<text[^>]*>([^<]*)|<!-- (.*?) -->", text)
    shapes = Counter(re.findall(r"<(path|use|rect|line|polyline|circle)\b", text))
    lines = [first or second for first, second in words]
    return "\n".join([*lines, str(dict(sorted(shapes.items())))]) + "\n"


def _chosen(content: dict[str, Any], keys: str) -> dict[str, Any]:
    """Return the part of an object that ``keys`` of `show` asks for."""
    left_out = keys.startswith("-")
    names = keys.removeprefix("-").split(",")
    if not keys:
        return content
    return {key: each for key, each in content.items() if (key in names) != left_out}


def lay_out(value: object, indent: str = "") -> str:
    """Return JSON with a line for each row, and for each container that fits one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key)}: {lay_out(each, deeper)}" for key, each in value.items()
        ]
        return "\n".join(["{", *(deeper + part for part in parts), indent + "}"])
    if _are_rows(value):
        lines = [", ".join(value[0])]
        for row in value:
            texts = [json.dumps(cell, ensure_ascii=False) for cell in row.values()]
            lines.append(", ".join(texts))
    else:
        lines = [lay_out(each, deeper) for each in value]
    return "\n".join(["[", *(deeper + each for each in lines), indent + "]"])


def _are_rows(values: list[Any]) -> bool:
    """Return True where all are objects of the same keys that hold no others."""
    if not all(isinstance(value, dict) and value for value in values):
        return False
    keys = [*values[0]]
    cells = [cell for value in values for cell in value.values()]
    return all([*value] == keys for value in values) and not any(
        isinstance(cell, dict | list) and cell for cell in cells
    )
