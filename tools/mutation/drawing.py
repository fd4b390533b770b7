"""Faults that are drawn: small changes of a file's syntax, each of a kind that lived.

A draw changes one place: a comparison, a sign, a word of two directions, the first for
the largest, a term that is dropped, an index that is off by one, a branch that is never
taken. Annotations, docstrings and texts that only people read are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from emu.testing.faults import Fault

#: Comparison -> the one that a reader would take for it.
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
}
#: Words that stand side by side: of two directions, ends, bounds.
_PAIRS = (
    ("source", "destination"),
    ("sender", "receiver"),
    ("latency_in", "latency_out"),
    ("start", "end"),
    ("first", "last"),
    ("began", "ended"),
    ("min", "max"),
    ("any", "all"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("ceil", "floor"),
    ("read", "written"),
    ("sent", "received"),
)
#: Whole numbers from here on are limits and sizes, of which one more makes no fault.
_LARGE = 1000
_OPERATOR = re.compile(r"[-+*/%<>=!]+|\b(not in|is not|in|is)\b")
_OPPOSITES = dict(_PAIRS) | {b: a for a, b in _PAIRS}


@dataclass(frozen=True)
class DrawnFault(Fault):
    """A fault at a place of a file.

    ``old`` is the text from ``offset`` on, which may occur elsewhere in the file.
    """

    offset: int = 0
    """Characters of the file before it."""
    line: int = 0
    """Line on which it begins, from 1."""
    kind: str = ""
    """Kind of change, in words."""

    @property
    @override
    def case(self) -> str:
        """Name in a table of outcomes."""
        return f"{self.file}:{self.line}: {self.kind}\n{self.old} -> {self.new}"

    @override
    def plant(self, text: str) -> str | None:
        """Return ``text`` with the fault in it, None unless its place holds ``old``."""
        end = self.offset + len(self.old)
        if text[self.offset : end] != self.old:
            return None
        return text[: self.offset] + self.new + text[end:]


def list_faults(file: str, text: str) -> list[DrawnFault]:
    """Return all faults that can be drawn in a Python file, in the order of its text.

    ``file``: its path from the root of the tree; ``text``: its content.
    """
    places = _Places(file, text)
    places.visit(ast.parse(text))
    return sorted(places.found, key=lambda fault: (fault.offset, fault.new))


@dataclass
class _Places(ast.NodeVisitor):
    """Walks a file's syntax and notes what could be changed."""

    file: str
    text: str
    found: list[DrawnFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._line_starts = [0]
        for line in self.text.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._lines = self.text.splitlines()

    def _offset(self, line: int, column: int) -> int:
        # Columns of ast count bytes of UTF-8.
        encoded = self._lines[line - 1].encode()[:column]
        return self._line_starts[line - 1] + len(encoded.decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = self._offset(node.lineno, node.col_offset)
        last_line = node.end_lineno or node.lineno  # every parsed node has one
        return begin, self._offset(last_line, node.end_col_offset or 0)

    def _note(self, begin: int, end: int, new: str, kind: str) -> None:
        line = self.text.count("\n", 0, begin) + 1
        old = self.text[begin:end]
        self.found.append(
            DrawnFault(self.file, old, new, kind, offset=begin, line=line, kind=kind)
        )

    def _note_node(self, node: ast.expr, new: str, kind: str) -> None:
        begin, end = self._span(node)
        self._note(begin, end, new, kind)

    def _operator(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """Return where the operator between two operands begins and ends."""
        _, begin = self._span(left)
        end, _ = self._span(right)
        between = self.text[begin:end]
        # What is no operator: brackets of the operands, blanks, a comment.
        operator = next(_OPERATOR.finditer(between))
        return begin + operator.start(), begin + operator.end()

    @override
    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    @override
    def visit_arg(self, node: ast.arg) -> None:
        """Leave annotations alone."""

    @override
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    @override
    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)  # type: ignore[arg-type]

    @override
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts for people alone."""

    @override
    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave what only a type checker needs alone."""

    @override
    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave texts of errors alone."""

    @override
    def visit_If(self, node: ast.If) -> None:
        if _is_for_types(node.test):
            return
        self._note_node(node.test, "False", "a branch is never taken")
        self.generic_visit(node)

    @override
    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._note_node(node.test, "False", "a branch is never taken")
        self.generic_visit(node)

    @override
    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            words = _COMPARISONS[type(node.ops[0])]
            begin, end = self._operator(node.left, node.comparators[0])
            self._note(begin, end, words, "a bound is another")
        self.generic_visit(node)

    @override
    def visit_BinOp(self, node: ast.BinOp) -> None:
        sign = _SIGNS.get(type(node.op))
        if sign is not None and not _is_text(node):
            begin, end = self._operator(node.left, node.right)
            self._note(begin, end, sign, "a sign is another")
            if isinstance(node.op, ast.Add | ast.Sub):
                _, last = self._span(node)
                kept = len(self.text[:begin].rstrip())
                self._note(kept, last, "", "a term is dropped")
        self.generic_visit(node)

    @override
    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        neutral = str(isinstance(node.op, ast.And))
        for value in node.values:
            self._note_node(value, neutral, "a condition is dropped")
        self.generic_visit(node)

    @override
    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _OPPOSITES:
            _, end = self._span(node)
            begin = end - len(node.attr)
            self._note(begin, end, _OPPOSITES[node.attr], "a word of two")
        self.generic_visit(node)

    @override
    def visit_Name(self, node: ast.Name) -> None:
        builtins = {"min", "max", "any", "all"}
        if node.id in builtins and isinstance(node.ctx, ast.Load):
            self._note_node(node, _OPPOSITES[node.id], "a word of two")

    @override
    def visit_Subscript(self, node: ast.Subscript) -> None:
        begin, end = self._span(node.slice)
        index = self.text[begin:end]
        if index in {"0", "-1"}:
            other = {"0": "-1", "-1": "0"}[index]
            self._note_node(node.slice, other, "the first for the last")
            self.visit(node.value)
        else:
            self.generic_visit(node)

    @override
    def visit_Constant(self, node: ast.Constant) -> None:
        number = node.value
        if isinstance(number, bool) or not isinstance(number, int):
            return
        if abs(number) < _LARGE:
            self._note_node(node, f"{number + 1}", "off by one")

    @override
    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)


def _is_text(node: ast.BinOp) -> bool:
    """Return True where an operand is a text, or a format of one."""
    parts = (node.left, node.right)
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in parts
    )


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def faults_of(root: Path, file: str, lines: frozenset[int] | None) -> list[DrawnFault]:
    """Return the faults of a file of a tree.

    ``lines``: only those that begin there, None for all.
    """
    found = list_faults(file, (root / file).read_text(encoding="utf-8"))
    return [fault for fault in found if lines is None or fault.line in lines]


def changed_lines(patch: str) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield the files of a patch without context, each with the lines that are new.

    ``patch``: as ``git diff --unified=0`` prints it.
    """
    file = ""
    lines: set[int] = set()
    for row in patch.splitlines():
        if row.startswith("+++ "):
            if lines:
                yield file, frozenset(lines)
            file = row.removeprefix("+++ ").removeprefix("b/")
            lines = set()
        elif row.startswith("@@ "):
            new = row.split(" ")[2].removeprefix("+")
            first, _, count = new.partition(",")
            lines |= {*range(int(first), int(first) + int(count or 1))}
    if lines:
        yield file, frozenset(lines)
