#!/usr/bin/env python3
"""Holds rules of the house: names are verbs and nouns, imports point down, files read.

``tools/house.py``          the shares of participles among names, and files that cost
                            their reader more than is noted (`tools/reading.py`); 1 if
                            one is too high
``tools/house.py --list``   these names, with their files
``tools/house.py --write``  the picture of the districts in ARCHITECTURE.md, by imports,
                            and figures of files that went down
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import reading

ROOT = Path(__file__).resolve().parent.parent
#: At most so many of a hundred functions, and of a hundred locals, are participles:
#: trio has 2.0 and 0.7, distributed 1.2 and 2.9.
LIMIT = 2.0
IRREGULAR = re.compile(
    "found|kept|held|stated|said|given|known|made|asked|wanted|taken|came|left|gone|"
    "told|seen|drawn|written|chosen|begun|done|lost|noted|meant|sent|shown|begins"
)
#: End like one, and are none.
NO_PARTICIPLE = re.compile("need|seed|feed|embed|speed|red|proceed|exceed|shed")
PICTURE = re.compile(r"(?<=by tools/house.py -->\n```text\n).*?(?=```)", re.DOTALL)


def is_participle(word: str) -> bool:
    """Return True where a word says what was done, and not what to do or what it is."""
    regular = re.fullmatch("[a-z]+ed", word) and not NO_PARTICIPLE.fullmatch(word)
    return bool(regular or IRREGULAR.fullmatch(word))


def sources() -> list[Path]:
    """Return the modules of the product."""
    tops = (ROOT / "emu", ROOT / "nodes")
    return [path for top in tops for path in sorted(top.rglob("*.py"))]


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield files and their functions, without properties and special methods."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = {ast.unparse(one) for one in node.decorator_list}
                if not marks & {"property", "cached_property"} | {node.name[:2]} & {
                    "__"
                }:
                    yield path.relative_to(ROOT).as_posix(), node


def names() -> dict[str, list[tuple[str, str]]]:
    """Return (file, name) of all functions, and of the locals of each."""
    of_functions, of_locals = [], []
    for file, node in functions():
        of_functions.append((file, node.name))
        stores = {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
        of_locals += [(file, name) for name in sorted(stores)]
    return {"functions": of_functions, "locals": of_locals}


def participles(kind: str, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those that are participles; a function is one if it begins with one."""
    whole = kind == "locals"
    return [
        (file, name)
        for file, name in rows
        if is_participle(name if whole else name.strip("_").split("_")[0])
    ]


def district(module: str) -> str:
    """Return the part of ``emu`` that a module is or lies in; empty for none."""
    top, _, rest = module.partition(".")
    inside = rest.partition(".")[0]
    return {"emu": inside, "emu_nodes": "nodes"}.get(top, "")


def imports() -> dict[str, set[str]]:
    """Return which districts each district imports."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        where = path.relative_to(ROOT).with_suffix("").parts
        own = "nodes" if where[0] == "nodes" else where[1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{one.name}" for one in node.names]
            arrows[own] |= {district(module) for module in modules} - {own}
    for no_district in ("__init__", "__main__"):
        arrows.pop(no_district)
    return {name: into & arrows.keys() for name, into in arrows.items()}


def picture() -> str:
    """Return the districts on their floors: each stands above all that it imports.

    Raises RecursionError where imports run in a circle.
    """
    arrows = imports()

    def floor(name: str) -> int:
        return 1 + max(map(floor, arrows[name]), default=-1)

    floors: dict[int, list[str]] = defaultdict(list)
    for name in sorted(arrows):
        floors[floor(name)].append(name)
    rows = sorted(floors.items(), reverse=True)
    return "".join(f"{number:2}  {'   '.join(row)}\n" for number, row in rows)


def main() -> int:
    """Do what was asked for; return 1 where a share is over the limit."""
    gc.disable()  # trees hold no garbage, for which a collection would look
    if "--write" in sys.argv:
        file = ROOT / "ARCHITECTURE.md"
        text = file.read_text(encoding="utf-8")
        file.write_text(PICTURE.sub(lambda _: picture(), text), encoding="utf-8")
        reading.write_noted()
        return 0
    worst = 0.0
    for kind, rows in names().items():
        bad = participles(kind, rows)
        if "--list" in sys.argv:
            print(*(f"{file}: {name}" for file, name in bad), sep="\n")
        share = 100 * len(bad) / len(rows)
        worst = max(worst, share)
        verdict = f", at most {LIMIT:.1f} (--list)" if share > LIMIT else ""
        print(
            f"{kind}: {len(bad)} of {len(rows)} are participles, {share:.2f} %{verdict}"
        )
    worse = reading.find_worse()
    print(*worse, f"{len(worse)} files cost their reader more than noted", sep="\n")
    return int(worst > LIMIT or bool(worse))


if __name__ == "__main__":
    sys.exit(main())
