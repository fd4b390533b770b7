"""What an agent may start, and what a process is given to prove itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.launch.programs import (
    RUNTIME,
    are_many_for,
    check_allowed,
    late_modules,
    model_programs,
    modules_to_preload,
    program_path,
    share_machine,
    share_processes,
    with_keys,
)
from emu.emulation.network.authentication import derive_key
from emu.emulation.shaping import ComputeMode, EmulationSettings, Processes
from emu.emulation.wire.process_spec import HostSide
from emu.errors import NodeMisbehaved, RunError
from emu.problem.workloads.copies import COPY
from emu.systems.dgtp.job import PROGRAMS
from emu.systems.system import GRADIENT_MODULES, systems
from tests.emulation.launch.specs import edge_end, process_spec, process_task

TIMED = "emu_nodes.timed:Timed"


def test_torch_is_preloaded_only_where_it_is_needed() -> None:
    heavy = "torch"

    assert heavy not in modules_to_preload({TIMED}, compute="real")
    trains = {TIMED, "emu_nodes.dgtp.programs:Worker"}
    assert heavy in modules_to_preload(trains, compute="padded")
    assert heavy not in modules_to_preload(trains, compute="timed")
    both = modules_to_preload({"a.b:C", "a.b:D"}, compute="timed")
    assert both.count("a.b") == 1


def test_what_torch_imports_for_gradients_is_imported_before_the_fork() -> None:
    hands_gradients = {systems()["p3"].programs["model_backward"], TIMED}
    # p3 has some of these as well.
    none_handed = {*PROGRAMS.values(), "mine.train:Trainer"}

    assert late_modules(hands_gradients, compute="real") == [*GRADIENT_MODULES]
    assert late_modules(hands_gradients, compute="timed") == []
    assert late_modules(none_handed, compute="real") == []


def test_product_s_own_programs_and_named_ones_are_allowed() -> None:
    check_allowed(
        {TIMED, *PROGRAMS.values(), "mine.train:Trainer"}, ["mine.train:Trainer"]
    )


@pytest.mark.parametrize(
    "program",
    [
        "logging.config:dictConfig",
        "os:system",
        "emu_nodes.runtime:main",
        "emu_nodes.timed:importlib",
        "mine.train:Other",
        "mine.train:Trainer ",
        "",
    ],
)
def test_other_programs_are_refused(program: str) -> None:
    with pytest.raises(NodeMisbehaved, match="is not allowed on this host"):
        check_allowed({TIMED, program}, ["mine.train:Trainer"])


def test_a_host_without_torch_refuses_what_trains_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    check_allowed({TIMED}, [])
    with pytest.raises(NodeMisbehaved, match=r"torch is not installed .*\[train\]"):
        check_allowed({"emu_nodes.dgtp.programs:Worker"}, [])


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:",
        ":b",
        "a b:c",
        "a:b.c",
        "a..b:c",
        "-m:x",
        "a/net.py:Net",
        "a\nnet.py:Net",
        "net.py:",
        "net.py:a b",
    ],
)
def test_allowed_programs_are_import_paths(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither module:Class nor net\.py:Net"):
        program_path(text)


@pytest.mark.parametrize("text", ["a.b:C", "net.py:Net", "my-net 2.py:Net"])
def test_programs_that_can_be_allowed(text: str) -> None:
    assert program_path(text) == text


def test_models_are_programs_that_an_owner_allows() -> None:
    model = {"program": "net.py:Net", "source": "..."}
    settings: list[dict[str, Any]] = [{"model": model}, {"model": {}}, {}]
    described = [process_spec("w0", job_settings=stated) for stated in settings]

    assert model_programs(described) == {"net.py:Net"}
    check_allowed(model_programs(described), ["net.py:Net"])
    with pytest.raises(NodeMisbehaved, match=r"--allow net\.py:Net if it shall be"):
        check_allowed(model_programs(described), ["other.py:Net"])


def test_each_process_gets_the_keys_of_its_own_edges_and_not_the_token() -> None:
    task = process_task(TIMED, inputs=(edge_end(3),), outputs=(edge_end(4),))
    host = HostSide(certificate=b"", coordinator=("h", 1), bind="h", board="b")
    described = with_keys(process_spec("w0", task), "of-this-run", host)

    assert described.here.key == derive_key("of-this-run", "process", "w0")
    into, out_of = described.tasks[0].inputs, described.tasks[0].outputs
    assert into == (edge_end(3, key=derive_key("of-this-run", "edge", 3)),)
    assert out_of == (edge_end(4, key=derive_key("of-this-run", "edge", 4)),)
    keys = [described.here.key, *(derive_key("of-this-run", "edge", e) for e in (3, 4))]
    assert len(set(keys)) == 3
    assert "of-this-run" not in repr(described)


def test_runtime_is_the_product_s() -> None:
    assert RUNTIME.startswith("emu_nodes.")


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.sampled_from(["task", "machine", "auto"]),
    st.sampled_from(["timed", "padded"]),
    st.integers(1, 4),
)
def test_processes_are_shared_by_machine_where_that_is_meant(
    machines: list[int], how: Any, compute: Any, cores: int
) -> None:
    settings = EmulationSettings(processes=how, compute=compute)
    specs = [
        replace(process_spec(f"p{n}"), machine=machine, settings=settings)
        for n, machine in enumerate(machines)
    ]
    groups = share_processes(specs, cores)
    many = len(specs) > 8 * cores and compute == "timed"
    shared = how == "machine" or (how == "auto" and many)
    assert sorted(s.process for g in groups for s in g) == sorted(
        s.process for s in specs
    )
    assert len(groups) == len({*machines} if shared else specs)
    assert all(len({spec.machine for spec in group}) == 1 for group in groups)


def test_many_processes_are_more_than_eight_for_each_core() -> None:
    found = [are_many_for(*pair) for pair in ((8, 1), (9, 1), (16, 2), (17, 2), (9, 4))]
    assert found == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("processes", "compute", "shared"),
    [
        ("task", "timed", (False, False)),
        ("machine", "real", (True, True)),
        ("auto", "timed", (False, True)),
        ("auto", "real", (False, False)),
    ],
)
def test_a_machine_has_one_process_where_that_is_stated_or_many_are_timed(
    processes: Processes, compute: ComputeMode, shared: tuple[bool, bool]
) -> None:
    settings = EmulationSettings(processes=processes, compute=compute)
    found = [share_machine(settings, are_many=many) for many in (False, True)]

    assert tuple(found) == shared


def test_a_process_of_more_files_than_a_host_allows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = EmulationSettings(processes="machine")
    specs = [replace(process_spec(f"p{n}"), settings=settings) for n in range(500)]
    assert len(share_processes(specs, 2)) == 1
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    with pytest.raises(RunError, match=r"machine 0 has 500 .* write .*processes: task"):
        share_processes(specs, 2)
    apart = [replace(spec, settings=EmulationSettings()) for spec in specs]
    assert len(share_processes(apart, 2)) == 500
    # One alone shares nothing that another setting would part.
    monkeypatch.setattr("resource.getrlimit", lambda _: (1, 1))
    assert share_processes(specs[:1], 2) == [specs[:1]]


@pytest.mark.parametrize("way", ["inputs", "outputs"])
def test_every_end_of_an_edge_is_a_file(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Two processes, one of 50 ends and one of 30, need 12 + 50 + 12 + 30 files."""
    settings = EmulationSettings(processes="machine")
    specs = []
    for each in (50, 30):
        ends = tuple(map(edge_end, range(each)))
        spec = process_spec("p", process_task(TIMED, **{way: ends}))
        specs.append(replace(spec, settings=settings))

    for most in (104, -1):  # where any number is allowed, that is -1
        monkeypatch.setattr("resource.getrlimit", lambda _, most=most: (9, most))
        assert share_processes(specs, 2) == [specs]
    monkeypatch.setattr("resource.getrlimit", lambda _: (9, 103))
    with pytest.raises(RunError, match=r"machine 0 has 2 .* needs 104 .* allows 103: "):
        share_processes(specs, 2)


def test_modules_are_preloaded_by_name_behind_the_libraries() -> None:
    trains = {"b.c:D", "emu_nodes.dgtp.programs:Worker", "a.b:C"}
    assert modules_to_preload(trains, compute="real") == [
        *("torch", "emu.graph_data", "a.b", "b.c", "emu_nodes.dgtp.programs"),
    ]


def test_the_first_strange_program_by_name_is_refused() -> None:
    with pytest.raises(NodeMisbehaved, match="program a:B is not allowed"):
        check_allowed(["c:D", "a:B", TIMED], [])
    check_allowed([COPY], [])
