"""What a file costs its reader, in figures that may only go down.

Each file of the product has at most `AIMS`, or what `tools/reading.toml` notes of it:
``tools/house.py --write`` notes lower figures, and no higher ones. Figures guard: lines
cut short and blank lines strewn in meet them and help nobody.
"""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTED = ROOT / "tools" / "reading.toml"
#: Lines of a function beyond which blank lines part its steps.
LONG = 12
#: Lines of code up to which a file's density is not held.
SMALL = 40
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
#: Words that a type checker follows as names, and a reader does not.
_WORDS = (
    "one own what at of here there way ways how more some each whole near far other "
    "others every both again beside behind before after about around within until "
    "since along out into by on off up down alone together then still yet it that this "
    "these those who whom whose where when why all any none else even just only so "
    "such too apart ahead mine theirs"
)
FUNCTION_WORDS = {*_WORDS.split()}


@dataclass(frozen=True)
class Figures:
    """Figures of one file."""

    density: float
    """Tokens per line of code."""
    pairs: int
    """Assignments of several unrelated things at once."""
    packed: int
    """Tuples that are packed to be starred into a call."""
    words: int
    """Locals of functions that are function words."""
    unparted: int
    """Functions of over `LONG` lines without a blank line."""

    def exceeds(self, most: Figures) -> bool:
        """Return True where a figure is above that of ``most``."""
        pairs = zip(astuple(self), astuple(most), strict=True)
        return any(mine > limit for mine, limit in pairs)

    def lower(self, other: Figures) -> Figures:
        """Return the smaller of each figure."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Figures(*(min(pair) for pair in pairs))


AIMS = Figures(density=9.0, pairs=1, packed=0, words=1, unparted=3)


def measure(source: str) -> Figures:
    """Return the figures of a file's text."""
    nodes = [*ast.walk(ast.parse(source))]
    lines = source.split("\n")
    functions = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    # To walk is most of what this takes: once per function, and not for each figure.
    bodies = [[*ast.walk(function)] for function in functions]
    return Figures(
        density=round(_tokens_per_line(source, nodes), 2),
        pairs=sum(len([*_list_pairs(body)]) for body in bodies),
        packed=sum(len(_list_packed(body)) for body in bodies),
        words=sum(len(_list_locals(body) & FUNCTION_WORDS) for body in bodies),
        unparted=sum(_is_unparted(function, lines) for function in functions),
    )


def _tokens_per_line(source: str, nodes: Sequence[ast.AST]) -> float:
    documented = _docstring_lines(nodes)
    code: set[int] = set()
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT and token.start[0] not in documented:
            code.update(range(token.start[0], token.end[0] + 1))
            count += 1
    # A file of a few lines has hardly any but signatures, which are dense everywhere.
    return count / len(code) if len(code) > SMALL else 0.0


def _docstring_lines(nodes: Sequence[ast.AST]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            if _is_text(child):
                lines.update(range(child.lineno, (child.end_lineno or 0) + 1))
    return lines


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _list_locals(body: Sequence[ast.AST]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names


def _tuple_assignments(
    body: Sequence[ast.AST],
) -> Iterator[tuple[ast.expr, ast.Tuple]]:
    for node in body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
            continue
        if len(node.targets) == 1 and len(node.value.elts) > 1:
            yield node.targets[0], node.value


def _list_pairs(body: Sequence[ast.AST]) -> Iterator[ast.Tuple]:
    """Yield values of assignments to several names; swaps and recurrences are fine."""
    for target, value in _tuple_assignments(body):
        if isinstance(target, ast.Tuple):
            names = {n.id for n in target.elts if isinstance(n, ast.Name)}
            read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if not names & read:
                yield value


def _list_packed(body: Sequence[ast.AST]) -> set[str]:
    packed = {
        target.id
        for target, _ in _tuple_assignments(body)
        if isinstance(target, ast.Name)
    }
    starred = {
        argument.value.id
        for call in body
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Name)
    }
    return packed & starred


def _is_unparted(
    function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]
) -> bool:
    body = function.body[1:] if _is_text(function.body[0]) else function.body
    if not body:
        return False
    own = lines[body[0].lineno - 1 : function.end_lineno]
    return len(own) > LONG and all(line.strip() for line in own)


def read_noted() -> dict[str, Figures]:
    """Return the figures that files above the aims may have."""
    content = tomllib.loads(NOTED.read_text(encoding="utf-8"))
    return {file: Figures(*figures) for file, figures in content["files"].items()}


def list_files() -> dict[str, Figures]:
    """Return the figures of every file of the product."""
    paths = [path for top in ("emu", "nodes") for path in (ROOT / top).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix(): measure(path.read_text(encoding="utf-8"))
        for path in sorted(paths)
    }


def find_worse() -> list[str]:
    """Return a line per file that is above the aims, and above what is noted of it."""
    noted = read_noted()
    return [
        f"{file}: {figures}, at most {noted.get(file, AIMS)}"
        for file, figures in list_files().items()
        if figures.exceeds(noted.get(file, AIMS)) and figures.exceeds(AIMS)
    ]


def write_noted() -> None:
    """Note the figures of files above the aims, none higher than it was noted."""
    noted = read_noted() if NOTED.exists() else {}
    rows = [
        f'"{file}" = {[*astuple(figures.lower(noted.get(file, figures)))]}\n'
        for file, figures in list_files().items()
        if figures.exceeds(AIMS)
    ]
    head = (
        "# Files above the aims of tools/reading.py: tokens per line, pair assigns, "
        "packed\n# tuples, function words, functions without a blank line. "
        "tools/house.py --write.\n[files]\n"
    )
    NOTED.write_text(head + "".join(rows), encoding="utf-8")
