"""Commands in folders, locales, terminals and accounts that nobody meant for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli.app import app
from emu.emulation.coordinator import run as coordinator
from emu.host.first_moments import _write_plainly
from emu.host.this_host import version_of_emu
from emu.names import file_part
from tests import draws
from tests.leftovers import Leftovers

ROOT = Path(__file__).parents[2]
EMU = [sys.executable, "-P", "-m", "emu"]
RUN = ["run", "golden", "--set", "emulation.time_scale=0.02", "--set", "expect=null"]
KERNEL = ["--set", "emulation.network=kernel", "--set", "schedule.policy=maxmin"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def said(
    words: list[str], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command; hold it to say no more than one line where it fails."""
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, capture_output=True,
        timeout=300, check=False,
    )  # fmt: skip
    text = (done.stdout + done.stderr).decode("latin-1")
    assert not re.search(r"(?m)Traceback|Exception ignored|Fatal|^\w+Error:", text)
    if done.returncode:
        assert text.splitlines()[-1].startswith("emu: "), text
    return done


def foreign_folder(folder: Path) -> Path:
    """Fill a folder with all names that emu imports, none of which is meant."""
    ours = {name for name in sys.modules if name.isidentifier()} - {"__main__"}
    for name in ours | {"emu_nodes", "torch", "msgpack", "uvloop"}:
        (folder / f"{name}.py").write_text("raise SystemExit('of the folder')")
    (folder / "emu").mkdir()
    (folder / "emu/__init__.py").write_text("raise SystemExit('of the folder')")
    return folder


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("kernel", [False, draws.rarely(True)])
def test_names_of_the_folder_are_imported_by_no_process(
    tmp_path: Path,
    leftovers: Leftovers,
    kernel: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    if kernel and os.geteuid():
        pytest.skip("namespaces of the kernel need root here")
    done = said([*EMU, *RUN, *KERNEL[: 4 * kernel]], foreign_folder(tmp_path))
    leftovers.note()

    assert done.returncode == 0, done.stderr
    assert b"of the folder" not in done.stdout + done.stderr
    (log,) = tmp_path.glob("runs/*/agent.log")
    assert "of the folder" not in log.read_text()


def test_every_interpreter_is_started_apart_from_its_folder() -> None:
    """``-P`` stands in one place, and beside the one ``-c``."""
    for file in [*(ROOT / "emu").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]:
        text = file.read_text()
        for started in re.finditer(r"sys\.executable,\s*(\S+)", text):
            ours = '"emu' in text[started.end() : started.end() + 40]
            assert started[1] == '"-P",' or not ours, file


@pytest.mark.parametrize(
    ("words", "encoding"),
    draws.rarely_but(
        2,
        [
            ("simulate golden", ASCII),
            ("simulate golden", {"PYTHONIOENCODING": "ascii"}),
            ("simulate golden", {"PYTHONIOENCODING": "latin-1"}),
            ("explain golden", ASCII),
            ("compare golden --policies oes,mrtf", {"PYTHONIOENCODING": "ascii"}),
        ],
        several=True,
    ),
)
def test_tables_in_any_encoding_are_those_of_utf_8(
    tmp_path: Path, encoding: dict[str, str], words: str
) -> None:
    done = said([*EMU, *words.split()], tmp_path, **encoding)
    plain = done.stdout.decode("latin-1")
    drawn = CliRunner().invoke(app, words.split()).stdout

    bars = drawn.replace("█", "#")
    assert plain.count("#") == bars.count("#")
    assert re.findall("[a-z0-9]+", plain) == re.findall("[a-z0-9]+", bars)


@given(st.text(), st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_any_text_is_written_in_any_encoding(text: str, encoding: str) -> None:
    for character in text:
        try:
            character.encode(encoding)
        except UnicodeEncodeError as fault:
            written, end = _write_plainly(fault)
            assert written.isascii()
            assert written
            assert end == 1


@given(st.text(min_size=1))
def test_part_of_a_file_name_fits_an_ascii_file_system(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
        part = file_part(text)
    assert part.isascii()
    assert part
    assert "/" not in part


@pytest.mark.emulation
@pytest.mark.untimed
def test_run_without_utf_8_writes_what_it_writes_with_it(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    scenario = (ROOT / "scenarios/golden.yaml").read_text()
    named = re.sub("(?m)^name:.*", "name: gölden", scenario)
    (tmp_path / "own.yaml").write_text(named)
    words = ["run", "own.yaml", *RUN[2:], "--runs", "here"]
    done = said([*EMU, *words], tmp_path, **ASCII)
    leftovers.note()

    assert done.returncode == 0, done.stderr
    (page,) = tmp_path.glob("here/g_lden-*/report.html")
    assert "gölden" in page.read_text("utf-8")
    again = said([*EMU, "report", str(page.parent)], tmp_path, **ASCII)
    assert again.returncode == 0, again.stderr


#: What a shell does before it becomes the command.
MOMENTS = {
    "no home": "exec env -u HOME -u XDG_CACHE_HOME",
    "no terminal": "exec env -u TERM COLUMNS=20",
    "no folder": "mkdir gone; cd gone; rmdir ../gone; exec",
    "no temporary folder": "exec env TMPDIR=/nonexistent",
    "no cache": "exec env XDG_CACHE_HOME=/proc",
    "private files": "umask 077; exec",
    "standard output is closed": "exec >&-; exec",
    "a pipe that nobody reads": "exec > >(:); sleep 0.1; exec",
    "SIGPIPE ignored": "trap '' PIPE; exec > >(:); sleep 0.1; exec",
    "a full device": "exec > /dev/full; exec",
    "few files": "ulimit -n 64; exec",
    "a nameless user": "exec setpriv --reuid=54321 --regid=54321 --clear-groups",
    "/proc is hidden": "mount -t tmpfs none /proc; exec",
    "a long host name": f"hostname {'a' * 64}; exec",
}
ROOTS = {"a nameless user", "/proc is hidden", "a long host name"}


@pytest.mark.parametrize(
    ("moment", "words"), draws.grid(MOMENTS, ["simulate golden", "data", "clean"])
)
def test_odd_surroundings_are_an_answer_or_one_line(
    tmp_path: Path, moment: str, words: str
) -> None:
    shell = ["bash", "-c", f'{MOMENTS[moment]} "$@"', "bash"]
    if moment in ROOTS:
        if os.geteuid():
            pytest.skip("takes root")
        shell = ["unshare", "--mount", "--uts", *shell]
    tmp_path.chmod(0o777)
    command = [*shell, *EMU, *words.split()]
    home = {**os.environ, "HOME": str(tmp_path)}  # what is prepared there is counted
    done = subprocess.run(
        command, cwd=tmp_path, env=home, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert not re.search(r"(?m)Traceback|Exception ignored|Fatal|^\w+Error:", text)
    own = [line for line in text.splitlines() if line.startswith("emu: ")]
    assert len(own) <= 1, text
    assert done.returncode in {0, 1, 3}
    if "pipe" in moment.lower() and words == "simulate golden":
        assert done.returncode == 1  # as `emu --help` has it
    if done.returncode == 3:
        assert own, text


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("moment", ["/proc is hidden", "IPv6 alone"])
def test_runs_where_a_host_lacks_something(
    tmp_path: Path, moment: str, leftovers: Leftovers
) -> None:
    if os.geteuid():
        pytest.skip("takes root")
    alone = "ip link set lo up; ip addr del 127.0.0.1/8 dev lo; exec"
    before = {**MOMENTS, "IPv6 alone": alone}[moment]
    shell = ["unshare", "--mount", "--net", "bash", "-c"]
    before = before if "ip link" in before else f"ip link set lo up; {before}"
    ports = ["--set", "emulation.ports=20000-20006", "--dashboard"]
    words = [*shell, f'{before} "$@"', "bash", *EMU, *RUN, *ports]
    done = said(words, tmp_path)
    leftovers.note()
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/*/result.json"))
    if moment == "IPv6 alone":
        small = said([*words[:-2], "emulation.ports=20000-20005"], tmp_path)
        assert b"emulation.ports: 20000-20005 is too small" in small.stderr


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("words", [[], ["--any-version"]])
def test_hosts_with_another_emu_are_refused_or_warned_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
    words: list[str],
) -> None:
    monkeypatch.setattr(coordinator, "version_of_emu", lambda: "9.9+abc")
    done = CliRunner().invoke(app, [*RUN, "--runs", str(tmp_path), *words])
    leftovers.note()
    told = f"emu on host localhost is {version_of_emu()}, and 9.9+abc here"
    (line,) = [one for one in done.stderr.splitlines() if told in one]
    assert line.startswith("warning: " if words else "emu: ")
    assert done.exit_code == (0 if words else 5), done.output
