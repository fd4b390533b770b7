"""A run in one file for others: whole, checked without its code, of no host."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from emu.problem import Realization
from emu.runs import shared_run
from emu.runs.audit_inputs import read_to_audit, real_volumes
from emu.runs.run_directory import RunDirectory
from emu.runs.shared_run import MOST, share_run, unpack_shared
from emu.scenario.scenario_file import loads
from emu.systems.system import system_guards
from emu.trust.guards import GUARDS
from tests.experiment.test_divergence import carried_out
from tests.integration.edits import forge
from tests.testing.trial_cases import DGTP

#: They have a slash, as folders have.
PRICES = {"cluster.machines[0].price": "0.34 $/h"}
HOST, FOLDER = "node17.example", "/home/somebody/my-runs"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared run, whose own directory names a host and a folder."""
    folder = tmp_path_factory.mktemp("shared")
    scenario = loads(f"name: shared\n{DGTP}\nseed: 7\n", PRICES)
    run = carried_out(scenario, folder)
    processes = json.loads((run / "processes.json").read_text())
    processes["hosts"] = [{"host": HOST, "name": HOST, "machines": []}]
    (run / "processes.json").write_text(json.dumps(processes))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["source"]["folder"] = FOLDER
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="it was edited"):
        share_run(run, folder / "edited.zip")
    result = json.loads((run / "result.json").read_text())
    result["records"] = RunDirectory(run).digests()
    (run / "result.json").write_text(json.dumps(result))
    share_run(run, folder / "shared.zip")
    return folder / "shared.zip"


def audited(file: Path, *more: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["audit", str(file), *more])
    return found.exit_code, found.output + str(found.exception)


def changed(
    shared: Path, there: Path, name: str, change: Callable[[bytes], bytes]
) -> Path:
    """Return a copy with one member changed, or added."""
    with zipfile.ZipFile(shared) as old, zipfile.ZipFile(there, "w") as new:
        for each in {*old.namelist(), name}:
            content = old.read(each) if each in old.namelist() else b""
            new.writestr(each, change(content) if each == name else content)
    return there


def test_a_shared_run_passes_an_audit_and_says_nothing_of_its_host(
    shared: Path,
) -> None:
    code, output = audited(shared)

    assert (code, "shared.zip: keeps (5)-(15)" in output) == (0, True), output
    with zipfile.ZipFile(shared) as archive:
        everything = b"".join(map(archive.read, archive.namelist()))
    assert b"host-1" in everything
    for secret in (HOST, FOLDER, "somebody", str(shared.parent)):
        assert secret.encode() not in everything
    code, output = audited(shared, "--run-code")
    assert (code, "whose code no audit runs" in output) == (2, True), output


def test_an_edit_of_a_shared_run_is_named(shared: Path, tmp_path: Path) -> None:
    def longer(content: bytes) -> bytes:
        result = json.loads(content)
        return json.dumps(result | {"makespan": 1.1 * result["makespan"]}).encode()

    edited = changed(shared, tmp_path / "edited.zip", "result.json", longer)

    code, output = audited(edited)
    assert (code, "makespan" in output) == (6, True), output


def _other_trust(run: Path) -> None:
    path = run / "result.json"
    result = json.loads(path.read_text())
    trust = result["verdict"]["trust"]
    result["verdict"]["trust"] = "degraded" if trust != "degraded" else "trusted"
    path.write_text(json.dumps(result))


def _arrays(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        with np.load(run / name) as arrays:
            content = {key: arrays[key].copy() for key in arrays}
        change(content)
        np.savez(run / name, **content)

    return edit


def _less(content: Any) -> None:
    rows = content["board"]
    rows["rate"][rows["edge"] == rows["edge"][0]] *= 0.97


EDITS = {
    "from the records alone: verdict.trust": _other_trust,
    "that nobody decided": _arrays("frames.npz", _less),
    "that it began to compute": _arrays(
        "frames.npz", lambda content: content["began"].__imul__(-1)
    ),
    "was known to have ended before it did": _arrays(
        "reports.npz", lambda content: content["flow_settled"].__imul__(0.97)
    ),
}


@pytest.mark.parametrize("said", EDITS)
def test_an_edit_with_digests_of_its_own_is_named(shared: Path, said: str) -> None:
    with unpack_shared(shared) as folder:
        EDITS[said](folder)
        forge(folder)
        code, output = audited(folder)
    assert (code, said in " ".join(output.split())) == (6, True), output


@pytest.mark.parametrize(
    ("emu", "key", "code"),
    [("this", "shift", 6), ("0.0.1", "shift", 0), ("0.0.1", "", 6)],
)
def test_a_verdict_has_a_shift_unless_an_earlier_emu_wrote_it(
    shared: Path, emu: str, key: str, code: int
) -> None:
    """Take a key, or all, out of the verdict of a run of this emu or an earlier one."""
    with unpack_shared(shared) as folder:
        manifest, result = (
            json.loads((folder / name).read_text())
            for name in ("manifest.json", "result.json")
        )
        if emu != "this":
            manifest["emu"] = emu
        result.pop("verdict") if not key else result["verdict"].pop(key)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder / "result.json").write_text(json.dumps(result))
        forge(folder)
        found, output = audited(folder)
    assert (found, f"verdict.{key}" in output) == (code, bool(key and code)), output
    assert "is damaged" not in output


def test_a_run_without_its_digests_is_no_older_one(shared: Path) -> None:
    """Find the scenario's text in the manifest, though result.json has none."""
    with unpack_shared(shared) as folder:
        path = folder / "result.json"
        result = json.loads(path.read_text())
        del result["records"]
        path.write_text(json.dumps(result))
        code, output = audited(folder)
    assert (code, "records" in output) == (6, True), output
    # What is wrong is none of the paper's constraints.
    words = " ".join(output.split())
    assert "keeps (5)-(15) to within" in words
    assert "; wrong beside these: records" in words


@pytest.mark.parametrize("name", ["frames.npz", "rates.npz", "problem.json"])
def test_a_file_that_is_missing_is_named(
    shared: Path, tmp_path: Path, name: str
) -> None:
    """An audit of a run without it, and whoever would share that run, name the file."""
    with unpack_shared(shared) as folder:
        (folder / name).unlink()
        code, output = audited(folder)
        with pytest.raises(DataError, match=f"{name}: is missing"):
            share_run(folder, tmp_path / "again.zip")
    assert code in (3, 6)
    assert f"{name} is missing" in output or f"{name}: is missing" in output


def test_an_edited_file_is_named_to_whom_would_share_it(
    shared: Path, tmp_path: Path
) -> None:
    with unpack_shared(shared) as folder:
        EDITS["that nobody decided"](folder)
        with pytest.raises(DataError, match=r"frames\.npz: .* it was edited"):
            share_run(folder, tmp_path / "again.zip")


def test_payloads_of_a_run_are_those_of_its_result_and_a_simulation_has_none(
    shared: Path,
) -> None:
    with unpack_shared(shared) as folder:
        subject = read_to_audit(folder)
        payloads = json.loads((folder / "result.json").read_text())["payloads"]
    assert subject.payloads == pytest.approx(payloads)
    assert sum(payloads.values()) > 0

    simulated = replace(subject, evidence=None)
    assert simulated.payloads == {}


def test_the_verdict_is_computed_from_the_records_alone(shared: Path) -> None:
    _, output = audited(shared)
    assert "the records alone give the same" in " ".join(output.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../escaped.json", "which is no record of a run"),
        ("agent.log", "which is no record of a run"),
        ("frames.npz", f"holds more than {MOST:,} bytes"),
        ("", "is no shared run"),
    ],
)
def test_what_is_no_shared_run_is_refused(
    shared: Path, tmp_path: Path, name: str, said: str
) -> None:
    bad = tmp_path / "bad.zip"
    if name:
        size = MOST + 1 if name == "frames.npz" else 10
        with (
            zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open(name, "w") as member,
        ):
            for _ in range(0, size, 1 << 20):
                member.write(bytes(1 << 20))
    else:
        bad.write_bytes(io.BytesIO(shared.read_bytes()[:500]).read())

    with pytest.raises(DataError, match=said), unpack_shared(bad):
        pass
    assert not (tmp_path / "escaped.json").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_record_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """The last was audited, and another program may unpack the first."""
    path = tmp_path / "twice.zip"
    for count in (1, 2):
        with zipfile.ZipFile(path, "w") as archive:
            for _ in range(count):
                archive.writestr("result.json", b"{}")
        if count == 1:
            with unpack_shared(path) as folder:
                assert (folder / "result.json").exists()
    with (
        pytest.raises(DataError, match=r"holds result\.json twice"),
        unpack_shared(path),
    ):
        pass


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_flipped_bit_of_an_archive_is_one_line(tmp_path: Path, method: int) -> None:
    """Each packer raises errors of its own: of zlib, LZMA, and ends of files."""
    path = tmp_path / "flipped.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("result.json", bytes(n * n % 251 for n in range(2000)))
    whole = path.read_bytes()

    refusals = 0
    for place in range(0, len(whole), 23):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        try:
            with unpack_shared(path):
                pass
        except DataError:
            refusals += 1
    assert refusals > len(whole) / 23 / 2


def test_a_shared_run_unpacks_to_its_limit(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(shared) as archive:
        size = sum(member.file_size for member in archive.infolist())
    monkeypatch.setattr(shared_run, "MOST", size)
    with unpack_shared(shared) as run:
        assert (run / "result.json").exists()
    monkeypatch.setattr(shared_run, "MOST", size - 1)
    with pytest.raises(DataError, match="holds more than"), unpack_shared(shared):
        pass


def test_what_cannot_be_compared_is_told_and_what_is_torn_refused(
    shared: Path,
) -> None:
    told = {
        "rates.npz": "there are no rates: flows are judged by their ends alone",
        "reports.npz": "reports.npz is missing: every end is taken to have been known",
        "frames.npz": "frames.npz is missing: the guards cannot be asked again",
    }
    with unpack_shared(shared) as run:
        whole = read_to_audit(run)
        assert whole.silent == ()
        assert whole.evidence is not None
        for name, words in told.items():
            (run / name).rename(run / "kept")
            found = read_to_audit(run)
            (run / "kept").rename(run / name)
            (line,) = found.silent
            assert line.startswith(words)
            assert (found.evidence is None) == (name == "frames.npz")
        guarded = whole.audit(1e-6, 1e-6)
        unguarded = replace(whole, evidence=None).audit(1e-6, 1e-6)
        count = len(GUARDS) + len(system_guards())
        added = sum(guarded.checked.values()) - sum(unguarded.checked.values())
        assert added == count

        content = (run / "rates.npz").read_bytes()
        (run / "rates.npz").write_bytes(content[:-30])
        with pytest.raises(DataError, match=r"rates\.npz"):
            read_to_audit(run)


@pytest.mark.parametrize(
    "sends", [np.zeros(5), np.array([[1.0, -1.0, 0, 0, 0, 0]]), np.array([[-1.0] * 6])]
)
def test_sends_are_rows_of_edge_iteration_and_four_times(
    shared: Path, sends: np.ndarray[Any, Any]
) -> None:
    with unpack_shared(shared) as run:
        with np.load(run / "reports.npz") as arrays:
            reports: dict[str, Any] = dict(arrays)
        np.savez(run / "reports.npz", **reports)
        found = read_to_audit(run).evidence
        assert found is not None
        assert found.sends is not None
        reports["sends"] = sends
        np.savez(run / "reports.npz", **reports)
        with pytest.raises(DataError, match=r"reports\.npz"):
            read_to_audit(run)


def test_a_run_is_held_to_what_its_scenario_states_where_there_is_one(
    shared: Path,
) -> None:
    with unpack_shared(shared) as run:
        whole = read_to_audit(run)
        assert whole.expected is not None
        assert whole.least_times is whole.expected.times
        assert whole.volumes is not None
        assert np.abs(whole.volumes - whole.expected.volumes).max() <= 0.5

        manifest = json.loads((run / "manifest.json").read_text())
        del manifest["scenario"]
        (run / "manifest.json").write_text(json.dumps(manifest))
        alone = read_to_audit(run)
        assert alone.silent[0].startswith("manifest.json holds no scenario: nothing")
        assert (alone.expected, alone.least_times) == (None, None)
        assert alone.times is not None


def test_hosts_of_a_run_are_a_list_of_hosts(shared: Path) -> None:
    with unpack_shared(shared) as run:
        file = run / "processes.json"
        processes = json.loads(file.read_text())
        others: list[Any] = [{"a": {}}, [1], "host"]
        for hosts in others:
            file.write_text(json.dumps({**processes, "hosts": hosts}))
            with pytest.raises(DataError, match="hosts are not a list of hosts"):
                read_to_audit(run)


def test_bytes_are_whole_where_they_are_scaled() -> None:
    """Half of 10.4 and of 3.3 bytes are 5 and 2 as they are sent."""
    stated = Realization(np.zeros((1, 2)), np.array([[10.4, 3.3]]))
    found = real_volumes(loads(DGTP), stated, 0.5)
    assert found is not None
    assert found.tolist() == [[10.0, 4.0]]
