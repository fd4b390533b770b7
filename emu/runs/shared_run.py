"""A run directory as one file for others: records and verdicts, no paths, no hosts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from emu.errors import DataError
from emu.host.files import whole_file
from emu.host.input_file import one_error, open_input, parse_json, read_json
from emu.names import printable
from emu.problem import Problem
from emu.runs import signature
from emu.runs.record_names import RECORDS
from emu.runs.recorded_run import load_run
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import has_recorded_job

#: Files of a shared run, the verdicts last, and the bytes that all may have.
_NAMES = (*RECORDS, "result.json")
MOST = 1 << 28
#: Path from the root of a file system, whose last name stays; `2 $/h` has none.
_PATH = re.compile(r"(?<![\w./:$])/(?:[\w.+@-]+/)*([\w.+@-]+)")
_TEXT = (".json", ".txt")


def share_run(run: Path, out: Path, key: Path | None = None) -> None:
    """Write the records of an emulated run into a zip file that `unpack_shared` takes.

    Of paths the last names stay, and hosts are numbered, so that nothing says where it
    ran; the digests are of what stands there then. ``key``: file of a private key of
    Ed25519 that signs them. Raises DataError when the run is not whole, or was edited.
    """
    if has_recorded_job(run):
        advice = "give others its job.json and virtual.json, which name no host"
        raise DataError(f"is of a virtual run: {advice}", path=run)
    problem = load_run(run).problem
    contents = _read_records(run)
    numbers = _number_hosts(run, problem)
    for name, content in contents.items():
        if name.endswith(_TEXT):
            text = _hide(content.decode(), numbers)
            contents[name] = text.encode()

    result = parse_json(contents["result.json"].decode())
    # Of what stands there now: the texts have changed.
    digests = {}
    for name in RECORDS:
        if name in contents:
            digest = hashlib.sha256(contents[name])
            digests[name] = digest.hexdigest()
    result["records"] = digests
    text = json.dumps(result, indent=1)
    contents["result.json"] = text.encode()
    if key is not None:
        contents[signature.NAME] = signature.sign(contents, key)
    with (
        whole_file(out) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, content in contents.items():
            # Without a date: it would say when the run was shared,
            # and tell two files of one run apart.
            member = zipfile.ZipInfo(name)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)


def _number_hosts(run: Path, problem: Problem) -> dict[str, str]:
    """Return a name without a meaning for every host of a run."""
    processes = read_json(run / "processes.json")
    hosts = set()
    for row in processes["hosts"]:
        for key in ("host", "name"):
            hosts.add(str(row.get(key)))
    # None of a row without a name; neither says where the run was.
    hosts -= {"None", "localhost"}
    # Machines of the scenario are its own words, by which an audit finds them.
    hosts -= {*problem.cluster.names}

    numbers = {}
    for number, host in enumerate(sorted(hosts), 1):
        numbers[host] = f"host-{number}"
    return numbers


def _read_records(run: Path) -> dict[str, bytes]:
    """Return the files of a run by name; raises DataError where one was edited."""
    contents = {}
    room = MOST
    for name in _NAMES:
        path = run / name
        if not path.exists():
            continue
        with open_input(path, room) as file:
            content = file.read()
        contents[name] = content
        # One bound for all together, as `unpack_shared`
        # has it: what is shared can be opened.
        room -= len(content)
    if "result.json" not in contents or "processes.json" not in contents:
        raise DataError("holds no emulated run that has ended", path=run)

    result = parse_json(contents["result.json"].decode())
    # Digests are made anew for the shared texts, and would cover up an earlier edit.
    _check_digests(run, result.get("records"))
    return contents


def _check_digests(run: Path, records: object) -> None:
    """Raise DataError where a file of a run is missing, or not what was noted of it."""
    if not isinstance(records, Mapping):
        path = run / "result.json"
        raise DataError("notes no files of the run (records)", path=path)

    digests = RunDirectory(run).digests()
    for name in {**records, **digests}:
        if name not in digests:
            raise DataError("is missing: the run has written it", path=run / name)
        if digests[name] != records.get(name):
            problem = "is not what the run has written: it was edited"
            raise DataError(problem, path=run / name)


def _hide(text: str, numbers: Mapping[str, str]) -> str:
    """Return a text without folders, and with numbers for the names of hosts."""
    text = _PATH.sub(r"\1", text)
    for host, number in numbers.items():
        # Whole names alone: a host `node1` is no part of `node12`.
        whole_name = rf"(?<![\w.-]){re.escape(host)}(?![\w.-])"
        text = re.sub(whole_name, number, text)
    return text


@contextlib.contextmanager
def unpack_shared(path: Path) -> Iterator[Path]:
    """Give the run directory in a file of `share_run`; what is no zip file, itself.

    Nothing but the files of a run is written, and no more than `MOST` bytes of them.
    """
    if path.suffix != ".zip":
        yield path
        return
    with TemporaryDirectory(prefix="emu-shared-") as name:
        folder = Path(name)
        _unpack(path, folder)
        yield folder


def _unpack(path: Path, folder: Path) -> None:
    def refuse(problem: str) -> DataError:
        return DataError(f"is no shared run: {problem}", path=path)

    room = MOST
    # Packed by zlib, bzip2 or LZMA, each of which has errors of its own.
    with (
        one_error(path, refuse),
        open_input(path, MOST) as file,
        zipfile.ZipFile(file) as archive,
    ):
        known = {*_NAMES, signature.NAME}
        names = archive.namelist()
        for name in names:
            # Known names alone: `../` in one would lead out of the folder.
            if name not in known:
                text = f"holds {printable(name)}, which is no record of a run"
                raise DataError(text, path=path)
            # Of two other programs may unpack the one that is not looked at here.
            if names.count(name) > 1:
                raise DataError(f"holds {name} twice", path=path)
            with archive.open(name) as member:
                # A size that the archive states is a claim: one byte beyond the
                # bound shows that it is passed, without unpacking the rest.
                content = member.read(room + 1)
            room -= len(content)
            if room < 0:
                raise DataError(f"holds more than {MOST:,} bytes", path=path)
            place = folder / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
