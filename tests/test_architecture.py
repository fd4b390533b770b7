"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("emu", "nodes", "tools")
    for path in (ROOT / package).rglob("*.py")
)
PRODUCT = [path for path in SOURCES if path.startswith(("emu/", "nodes/"))]
TOP_LEVEL = {"pyproject.toml", "emu", "nodes", "tests", "scenarios", "tools"}
TOP_LEVEL |= {"Makefile", "LICENSE", "CITATION.cff", "Dockerfile", "docs", "mkdocs.yml"}
MAX_LINES, MAX_FUNCTION = 600, 40
SAYING_NOTHING = {"utils", "util", "helpers", "common", "misc", "base", "manager"}
#: Where JSON comes over a pipe or socket from a process of ours, and not from a file.
OF_MESSAGES = {
    "lab/machines/namespace_rpc",
    "lab/machines/namespace_process",
    "lab/machines/lab",
}
OF_MESSAGES |= {
    "lab/machines/namespace_client",
    "emulation/launch/ray_client",
    "emulation/launch/ray_cluster",
}


def code_lines(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without docstring, signature, comments and blanks.

    These part its steps and say why: they make it easier to read, not longer.
    """
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if not body:
        return 0
    lines = source_lines(path)[body[0].lineno - 1 : body[-1].end_lineno]
    return sum(not is_aside(line) for line in lines)


def is_aside(line: str) -> bool:
    """Return True for a blank line, or one of a comment alone."""
    return not line.strip() or line.lstrip().startswith("#")


@cache
def source_lines(path: str) -> list[str]:
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def test_files_are_short_and_named() -> None:
    """One that is longer is split along its words."""
    lengths = {path: len(source_lines(path)) for path in SOURCES}

    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}
    parts = {path: {*Path(path).with_suffix("").parts} for path in SOURCES}
    assert [path for path in SOURCES if parts[path] & SAYING_NOTHING] == []


def test_functions_are_short() -> None:
    lengths = {
        (path, node.name): code_lines(path, node)
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {n: lines for n, lines in lengths.items() if lines > MAX_FUNCTION} == {}


def test_names_in_backticks_are_there() -> None:
    """Code that moves leaves names behind, in docstrings and comments."""
    texts = [(ROOT / path).read_text() for path in PRODUCT]
    texts += [
        path.read_text() for path in (ROOT / "emu/prediction/core").glob("*.[ch]")
    ]
    names = set(re.findall(r"`((?:emu|emu_nodes)(?:\.\w+)+)`", "\n".join(texts)))
    missing = set()
    for name in names:
        owner, _, last = name.rpartition(".")
        fields = getattr(pydoc.locate(owner), "__annotations__", {})
        if pydoc.locate(name) is None and last not in fields:
            missing.add(name)

    assert len(names) > 50
    assert missing == set()


def unbounded_calls(path: str) -> set[str]:
    """Return what a file calls that may take any amount of memory."""
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
    }
    unbounded = {"np.load", "numpy.load", "json.load", "json.loads", "gzip.open"}
    unbounded |= {
        "np.memmap",
        "np.fromfile",
        "np.genfromtxt",
        "np.lib.format.read_array",
    }
    unbounded |= {"np.lib.format.open_memmap", "pickle.load", "pickle.loads"}
    if path == "emu/host/input_file.py":
        unbounded -= {"json.loads", "np.memmap", "np.lib.format.read_array"}
    elif path == "emu/host/confinement.py":  # what its own child has sent
        unbounded -= {"np.memmap", "pickle.load", "pickle.loads"}
    elif path.removeprefix("emu/").removesuffix(".py") in OF_MESSAGES:
        unbounded -= {"json.loads"}
    return calls & unbounded


def test_files_are_read_within_bounds() -> None:
    """Ten bytes may unpack to gigabytes; `input_file` reads what others wrote."""
    assert {path: found for path in PRODUCT if (found := unbounded_calls(path))} == {}


def test_every_package_has_tests() -> None:
    packages = {path.parent.name for path in (ROOT / "emu").glob("*/__init__.py")}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}

    assert packages - tested == set()


def openings(tree: ast.Module) -> list[str]:
    """Return what docstrings of modules, classes, functions and fields begin with."""
    found = []
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            stated = node.body if isinstance(node, ast.ClassDef) else node.body[:1]
            found += [
                one.value.value.split(" ")[0]
                for one in stated
                if isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            ]
    return found


def test_docstrings_begin_with_a_noun_or_an_imperative() -> None:
    wrong = {"What", "How", "Whether", "Who", "Of"}
    assert [path for path in PRODUCT if wrong & {*openings(parsed(path))}] == []


#: Modules that write custom jobs: labs, setups and workload files become these.
WRITE_CUSTOM = {
    "emu/scenario/preparation_errors.py",
    "emu/scenario/scenario_file.py",
    "emu/scenario/setup.py",
    "emu/scenario/workload_file.py",
    "emu/lab/fitting/fitted_job.py",
    "emu/interchange/workload.py",
    "emu/experiment/contest/small_job.py",
}
ROOMS = sorted(path.parent.name for path in ROOT.glob("emu/systems/*/__init__.py"))


@pytest.mark.parametrize("name", ROOMS)
def test_nothing_names_a_system_outside_its_room(name: str) -> None:
    """Code asks the record of a system; some systems build on another one's."""
    named = re.compile(rf"emu\.systems\.{name}\b|[\"\']{name}[\"\']")
    inside = (f"emu/systems/{name}/", f"nodes/emu_nodes/{name}/")
    papers = "emu/reproduction/"  # which are of one system each
    users = {
        "dgtp": ("emu/systems/data_parallel/", "emu/systems/p3/", papers),
        "dgcl": (papers,),
        "p3": ("emu/systems/apt/", "nodes/emu_nodes/apt/"),
        "data_parallel": (
            "emu/systems/asking_section.py",
            "emu/systems/salient_plus_plus/",
            "emu/systems/rapid_gnn/",
            "emu/systems/whole_graph/",
        ),
    }
    found = {
        path
        for path in PRODUCT
        if not path.startswith((*inside, *users.get(name, ())))
        and named.search((ROOT / path).read_text(encoding="utf-8"))
    }

    assert found - (WRITE_CUSTOM if name == "custom" else set()) == set()


def test_top_level_is_tidy() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    names = {line.split("/")[0] for line in listing.stdout.splitlines()}
    extra = {n for n in names - TOP_LEVEL if not n.startswith(".") and n[-3:] != ".md"}

    assert extra == set()


def test_pins_are_the_versions_that_were_tried() -> None:
    """`make` installs by hash what `.constraints.txt` names; torch is as it comes."""

    def versions(name: str) -> dict[str, str]:
        found = re.findall(
            r"^([\w.-]+)==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE
        )
        return {re.sub(r"[_.]", "-", key).lower(): version for key, version in found}

    pins, tried = versions(".pins.txt"), versions(".constraints.txt")
    assert len(pins) > 70
    assert {k: v for k, v in pins.items() if tried.get(k, v) != v} == {}
    # Of Windows, and of torch.
    assert pins.keys() - tried.keys() == {"setuptools"}
    blocks = re.split(r"\n(?=\S)", (ROOT / ".pins.txt").read_text().strip())
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
