"""The application that commands register with, their list and help, and how they end.

``emu --help`` shows the list and imports none of the modules, nor numpy: it takes
0.06 s where it took 1.02 s. A line of it is also the first of the command's docstring;
a test compares the two.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandFunctionType
from typing_extensions import override

import emu
from emu.cli.completion import offer_words
from emu.cli.signs_of_life import signs_of_life
from emu.cli.written_files import check_written_files
from emu.errors import DataError, EmulatorError
from emu.host.foreign_code import code_of_others
from emu.host.interruption import INTERRUPTED, tell
from emu.host.limits import large_files
from emu.names import for_terminal


class Listed(NamedTuple):
    """One command."""

    module: str
    """Module of `emu.cli` that registers it."""
    summary: str
    """Purpose, in a line of at most 64 characters."""

    @property
    def runs_code(self) -> bool:
        """True where it carries scenarios out, and so runs code that they name."""
        return self.module.partition("_command")[0] in _CARRIES_OUT


#: Groups; below each the start of a module's name, a command of it, and the line.
_TABLE = """\
Write a scenario
    scenario init       Copy a shipped scenario or lab into this directory, to edit.
    scenario validate   Check scenario and lab files; print every error in them.
    scenario schema     Print the JSON Schema of scenario and lab files, for editors.
    scenario docs       Show a document of emu, or list them.
    scenario import     Bring a graph of your own in, for job.dataset: NAME.
    scenario import-workload Write a scenario of a trace or workflow of others.
    format   what       Say what files are, and which command takes or converts each.
    scenario data       List graphs, fetch public ones, or clear what was prepared.
    policy   policies   Explain every rate policy in two lines.
    policy   placements Explain every placement policy in two lines.
Predict it, in virtual time
    predict  simulate   Simulate a scenario.
    predict  place      Place the tasks; print where they are, and the loads.
What if?
    explain  explain    Explain why a run takes so long, and what would help.
    compare  compare    Compare placements and policies, or recorded runs.
    advise   advise     Say which system to use on which machines, and how sure that is.
    crossover crossover  Find the value of a key from which another system is faster.
    contest  contest    Find where one rule, placement or system loses most to another.
    sweep    sweep      Carry out many variations of a scenario.
    reproduce reproduce Show figures of papers beside the same found here.
Run it, over sockets
    run      run        Run a scenario over sockets; compare with the prediction.
    run      profile    Measure task times and volumes by real computation.
    run      agent      Join a run on another host as one of its hosts.
    trials   trials     Try whole runs in virtual time, under faults drawn from seeds.
Run your own programs
    lab      lab        Run your own programs on emulated machines with kernel NICs.
    lab      exec       Run a command beside a lab that is running.
    lab      fit        Make a scenario of what crossed in a lab.
    virtual  virtual    Run programs of torch.distributed in virtual time.
Look at a run
    report   report     Write a run as a page, a trace, a figure or tables.
    audit    audit      Check a schedule against the paper's constraints.
    audit    share      Write a run's records and verdicts into one file for others.
    audit    evaluate   Evaluate a run's weights on the whole graph.
This host
    host     clean      Remove files that a killed process or a power cut left.
"""
#: An option of most commands, and its meaning.
_LARGE = ("--large", "Lift limits against files of strangers, for your own.")
#: Commands that read no scenario, and none of a run.
_READS_NONE = {
    *("init", "schema", "docs", "import", "data", "policies", "placements"),
    *("reproduce", "agent", "trials", "exec", "clean", "import-workload", "what"),
}
#: Modules of one command alone, which carry scenarios out too.
_OF_ONE = {"explain", "compare", "advise", "crossover", "contest", "virtual"}
#: Modules whose commands carry scenarios out; of the others none runs code of others.
_CARRIES_OUT = {"predict", "policy", "sweep", "run", "trials", "lab", *_OF_ONE}
#: Title of a group -> its commands by name; and all commands, in the same order.
GROUPS: dict[str, dict[str, Listed]] = {}
COMMANDS: dict[str, Listed] = {}
for _line in _TABLE.splitlines():
    if _line.startswith(" "):
        _module, _command, _summary = _line.split(maxsplit=2)
        _suffix = "command" if _module in _OF_ONE else "commands"
        COMMANDS[_command] = Listed(f"{_module}_{_suffix}", _summary)
        GROUPS[[*GROUPS][-1]][_command] = COMMANDS[_command]
    else:
        GROUPS[_line] = {}


#: Number of threads of numpy's library, read when it is loaded.
_BLAS = "OPENBLAS_NUM_THREADS"
#: Words that docstrings mark as code.
_LITERAL = re.compile(r"``?([^`]+)``?")


def write_paragraphs(text: str, formatter: Any) -> None:
    """Write the paragraphs of a docstring, without backticks and numpydoc sections."""
    prose = re.split(r"\n\s*\w+\n\s*---", _LITERAL.sub(r"\1", text))[0]
    for paragraph in re.split(r"\n\s*\n", prose.strip()):
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(" ".join(paragraph.split()))


def write_parameters(
    parameters: list[Any], formatter: Any, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Write arguments and options as two columns, ``more`` options first."""
    arguments = list[tuple[str, str]]()
    options = [*more]
    for parameter in parameters:
        meaning = getattr(parameter, "help", None) or ""
        value = parameter.metavar
        if isinstance(parameter, TyperArgument):
            arguments.append((value or str(parameter.name).upper(), meaning))
        elif not getattr(parameter, "hidden", False):
            form = "/".join([*parameter.opts, *parameter.secondary_opts])
            if value:
                form += f" {value}"
            # Nothing and 0 are not shown: the meaning says what they stand for.
            if value and parameter.default:
                meaning += f" [default: {parameter.default}]"
            options.append((form, _LITERAL.sub(r"\1", meaning)))

    for title, rows in (("Arguments", arguments), ("Options", options)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class Command(TyperCommand):
    """One command: words that a shell offers, signs of life where it takes long."""

    @override
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for parameter in self.params:
            offer_words(str(self.name), parameter)

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--large``, which all commands share that read a scenario."""
        ctx.meta[_LARGE[0]] = self.name not in _READS_NONE and _LARGE[0] in args
        if ctx.meta[_LARGE[0]]:
            args.remove(_LARGE[0])
        return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        """Run the command; what only reads runs code of others with --run-code alone.

        A line says which code of others runs, or was left out.
        """
        name = str(self.name)
        check_written_files(ctx)
        runs = COMMANDS[name].runs_code or ctx.params.get("run_code", False)
        large = _complain if ctx.meta[_LARGE[0]] else None
        with (
            signs_of_life(name),
            code_of_others(runs=runs, tell=_complain),
            large_files(large),
        ):
            return super().invoke(ctx)

    @override
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                name = parameter.metavar or (parameter.name or "").upper()
                if not parameter.required and name[0] != "[":
                    name = f"[{name}]"
                pieces.append(name)
        return pieces

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        write_paragraphs(self.help or "", formatter)
        more = [] if self.name in _READS_NONE else [_LARGE]
        write_parameters(self.get_params(ctx), formatter, more)


def _complain(lines: str) -> None:
    for line in lines.splitlines():
        typer.echo(f"emu: {for_terminal(line)}", err=True)


#: Libraries of the extra ``figures``.
_OF_FIGURES = {"matplotlib", "pandas"}
#: Errors of a disk that is full or broken, which name no file.
_UNWRITABLE = {errno.ENOSPC, errno.EIO, errno.EDQUOT}


class Commands(TyperGroup):
    """Imports a command when it is called, and ends one that fails with one line."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; its module is imported now. None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            # Of 1.15 s of CPU that simulating a small scenario took, looking at what
            # was imported for garbage took 0.25. Matrices are small: further threads of
            # numpy wait for each other, and sums depend on their number. What the user
            # has stated holds; programs that are started later have it as it was.
            setting = os.environ.get(_BLAS)
            os.environ.setdefault(_BLAS, "1")
            gc.disable()
            try:
                importlib.import_module(f"emu.cli.{COMMANDS[cmd_name].module}")
            finally:
                gc.freeze()
                gc.enable()
                if setting is None:
                    os.environ.pop(_BLAS, None)

            # A module may register several commands, all of which are there now.
            for info in app.registered_commands:
                command = get_command_from_info(
                    info, pretty_exceptions_short=False, rich_markup_mode=None
                )
                self.add_command(command)
        return self.commands[cmd_name]

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that ``args`` name; a misspelt one is answered."""
        imported = self.commands
        if args[0] not in COMMANDS:
            # Typer proposes from the commands that it knows: none was imported yet.
            self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]
        try:
            return super().resolve_command(ctx, args)
        finally:
            self.commands = imported

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group, from the table: nothing is imported."""
        self.format_usage(ctx, formatter)
        write_paragraphs(self.help or "", formatter)
        widest = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            rows = [
                (name.ljust(widest), command.summary) for name, command in group.items()
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
        write_parameters(self.get_params(ctx), formatter)
        write_paragraphs(self.epilog or "", formatter)

    @override
    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises Exit with the error's ``exit_code``, or 130 after Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # of an enum; typer words it as pydantic
            error.message = error.message.removeprefix("Value error, ")
            raise
        except EmulatorError as error:
            _complain(str(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            tell(str(error) or "interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except (Exception, SystemExit) as error:
            exit_code = DataError.exit_code
            text = _explain_host(error)
            if not text:
                exit_code = EmulatorError.exit_code
                text = _blame_package(error)
            if not text:
                raise
            _complain(text)
            raise typer.Exit(exit_code) from error


def _blame_package(error: BaseException) -> str:
    """Return what code of a system of another package raised; empty where none did."""
    if "emu.systems.system" not in sys.modules:  # no system has been asked yet
        return ""
    from emu.systems.package_faults import blame_package  # noqa: PLC0415

    return blame_package(error)


def _explain_host(error: BaseException) -> str:
    """Return what an error says of this host; empty where it may be a fault of emu."""
    if isinstance(error, ModuleNotFoundError) and error.name in _OF_FIGURES:
        return f"this needs {error.name}: pip install 'dgtp-emulator[figures]'"
    if isinstance(error, UnicodeEncodeError):  # of a file's name
        text = ascii(error.object[error.start : error.end])
        remedy = "set LC_ALL=C.UTF-8 or PYTHONUTF8=1"
        return f"{error.encoding}, which names files here, has no {text}: {remedy}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # A removed directory in which a process still works has no link left.
    if isinstance(error, FileNotFoundError) and not Path().stat().st_nlink:
        return "this directory has been removed: cd to another"
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return "this user has no home directory: set HOME, or XDG_CACHE_HOME"
    return ""


def option(form: str, meaning: str, default: object = None, **more: Any) -> Any:
    """Return an option; ``form`` is its names and its value, as help shows them.

    Where no name is stated, it is that of the parameter. One without a value is off by
    default. The default ``...`` is of one that has to be stated, or of an alias, whose
    defaults stand in the commands.
    """
    words = form.split()
    names = [word for word in words if word.startswith("-")]
    value = words[-1] if len(words) > len(names) else None
    if default is None and value is None and "/" not in form:
        default = False
    return typer.Option(default, *names, metavar=value, help=meaning, **more)


def argument(form: str, meaning: str, default: object = ...) -> Any:
    """Return an argument that help shows as ``form``."""
    return typer.Argument(default, metavar=form, help=meaning)


class _App(typer.Typer):
    """An app of commands with plain help, whatever imports their modules first."""

    @override
    def command(
        self, name: str | None = None, **more: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        return super().command(name, **{"cls": Command, **more})


app = _App(
    name="emu",
    cls=Commands,
    help="Run distributed GNN training on an emulated cluster, beside its simulation.",
    epilog="Exit codes: 0 good, 1 closed pipe, 2 bad scenario or usage, 3 bad data, "
    "4 infeasible placement, 5 failed run, 6 missed expectation, "
    "7 untrusted run, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer hands it over
    if wanted:
        typer.echo(f"emu {emu.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        option(
            "--version", "Print the version.", ..., callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def main() -> None:
    """Run the command that the arguments of this process name."""
    try:
        try:
            app()
        finally:
            gc.freeze()  # the interpreter's last look at everything: 0.3 s of CPU
            # Here a full disk can still become an error in words; the interpreter's own
            # flush at its end comes too late for that.
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        # What is left in the buffer would fail once more at the very end.
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        _complain(f"standard output cannot be written: {error.strerror}")
        sys.exit(DataError.exit_code)
