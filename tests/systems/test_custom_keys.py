"""Keys of custom jobs against one another, refused ones beside right ones."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem.fields.cluster_section import ClusterSection
from emu.systems.custom import section as custom_section
from emu.systems.custom.section import CustomJobSection
from tests.systems.sections import context_of

CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "m", "nic": "1 MB/s", "slots": {"gpu": 1}},
            {"name": "n", "nic": "1 MB/s", "slots": {"x": 1}},
        ]
    }
)


def section_of(*tasks: dict[str, Any], **keys: Any) -> CustomJobSection:
    """Return tasks a, b, ... of 1 s with other keys, two iterations long."""
    rows = [
        {"name": name, "time": "1 s", **task}
        for name, task in zip("abcd", tasks, strict=False)
    ]
    stated = {"system": "custom", "iterations": 2, "tasks": rows, **keys}
    return CustomJobSection.model_validate(stated)


def problems_of(section: CustomJobSection) -> dict[str, str]:
    found = [*section.problems(CLUSTER), *section.slot_problems(CLUSTER)]
    return {".".join(map(str, trail[1:])): problem for trail, problem in found}


FLOW = {"from": "a", "to": "b", "volume": "8 B"}
SHUFFLE = {"from": ["a"], "to": ["b", "c"], "volume": ["1 B", "2 B"]}
RING = {"among": ["a", "b"], "volume": "8 B"}
THREE: tuple[dict[str, Any], ...] = ({}, {}, {})


def collective(kind: str, **keys: Any) -> dict[str, Any]:
    stated = {**(SHUFFLE if kind == "shuffle" else RING), **keys}
    return {"collectives": [{kind: stated}]}


@pytest.mark.parametrize(
    ("tasks", "keys", "key", "words"),
    [
        (({}, {"name": "a"}), {}, "tasks.0.name", "'a' occurs 2 times"),
        (({"time": ["1 s"]},), {}, "tasks.0.time", "found 1 values for 2 iterations"),
        (({"time": ["1 s", "2 s"]},), {}, "", ""),
        (({"time": ["1 s"], "iterations": 1},), {}, "", ""),
        (({"time": ["1 s", "1 s"], "iterations": 3},), {}, "tasks.0.time", "found 2"),
        (({"time": {"default": "1 s"}},), {"times": "measured"}, "tasks.0.time",
         "states times by device"),
        (({"time": {"default": "1 s"}},), {}, "", ""),
        (({},), {"times": "measured"}, "", ""),
        # Of a process.
        (({"process": "p", "pin": "m"}, {"process": "p", "pin": "n"}), {},
         "tasks.1.pin", "found 'n', but a of the same process 'p' must stand on m"),
        (({"process": "p", "pin": "m"}, {"process": "p", "pin": "m"}), {}, "", ""),
        (({"process": "p", "pin": "m"}, {"process": "p"}, {"pin": "n"}), {}, "", ""),
        (({"server": "p", "pin": "m"}, {"server": "p", "pin": "n"}), {},
         "tasks.1.pin", "found 'n', but a of the same server 'p'"),
        (({"process": "b"}, {"process": "q"}), {}, "tasks.0.process",
         "task 'b' runs in process 'q'"),
        (({"process": "b"}, {}), {}, "", ""),
        (({"server": "p", "slot": "gpu"},), {}, "tasks.0.server",
         "a server is a process with one slot, write it or slot"),
        # Of pools.
        (({"slot": "gpu"},), {}, "", ""),
        (({"slot": "gpu", "takes": "x"},), {}, "tasks.0.slot", "slot says both"),
        (({"slot": "gpus"},), {}, "tasks.0.slot", "no machine has slots of 'gpus'"),
        (({"takes": "y"},), {}, "tasks.0.takes", "no machine has slots of 'y'"),
        (({"takes": "gpu", "frees": "none"},), {}, "", ""),
        (({"takes": "gpu", "frees": "x"},), {}, "tasks.0.frees",
         "no task takes a slot of 'x'"),
        (({"takes": "gpu", "frees": "x"}, {"slot": "x"}), {}, "", ""),
        (({"process": "gpu", "slot": "gpu"},), {}, "tasks.0.slot",
         "the process is called 'gpu' too"),
        (({"server": "x"},), {}, "tasks.0.server", "machines have slots called 'x'"),
        # Of flows.
        (({}, {}), {"flows": [FLOW]}, "", ""),
        (({}, {}), {"flows": [{**FLOW, "volume": ["8 B"]}]}, "flows.0.volume",
         "found 1 values for 2 iterations"),
        (({"iterations": 1}, {}), {"flows": [{**FLOW, "volume": ["8 B"]}]}, "", ""),
        (({"gate": True}, {}), {"flows": [FLOW]}, "flows.0.volume", "no bytes come to"),
        (({}, {"gate": True}), {"flows": [{**FLOW, "volume": "0 B"}]}, "", ""),
        (
            ({}, {"gate": True}),
            {"flows": [{**FLOW, "volume": ["0 B", "1 B"]}]},
            "flows.0.volume",
            "no bytes come to",
        ),
        (
            ({}, {"gate": True}),
            {"flows": [{**FLOW, "volume": "0 B", "reads": "latest"}]},
            "flows.0.reads",
            "no process runs the gate 'b'",
        ),
        (
            ({}, {"gate": True}),
            {"flows": [{**FLOW, "volume": "0 B", "coflow": "k"}]},
            "flows.0.coflow",
            "nothing is sent to or from the gate 'b'",
        ),
        # Of collectives.
        (THREE, collective("shuffle"), "", ""),
        (THREE, collective("shuffle", volume=["1 B"]), "collectives.0.shuffle.volume",
         "found 1 for 2 tasks of to"),
        (THREE, collective("shuffle", to=["b", "b"]), "collectives.0.shuffle.to",
         "'b' occurs 2 times"),
        (THREE, {**collective("shuffle", to=["b", "x"])}, "collectives.0.shuffle.to",
         "no task 'x'"),
        (({}, {}, {"gate": True}), collective("shuffle"), "collectives.0.shuffle.to",
         "'c' is a gate"),
        (THREE, collective("allgather"), "", ""),
        (THREE, collective("allgather", among=["a", "a"]),
         "collectives.0.allgather.among", "'a' occurs 2 times"),
        (THREE, collective("allgather", then=["c"]), "collectives.0.allgather.then",
         "found 1 for 2 tasks"),
        (THREE, collective("allgather", then=["c", "x"]),
         "collectives.0.allgather.then", "no task 'x'"),
        (THREE, collective("allgather", volume=["0 B", "1 B"]), "", ""),
        (THREE, collective("allgather", volume=["1 B"]),
         "collectives.0.allgather.volume", "found 1 values for 2 iterations"),
        (
            ({"iterations": 1}, {"iterations": 1}),
            collective("allgather", volume=["1 B"]),
            "",
            "",
        ),
    ],
)  # fmt: skip
def test_what_keys_of_custom_jobs_cannot_be_and_what_they_may(
    tasks: tuple[dict[str, Any], ...], keys: dict[str, Any], key: str, words: str
) -> None:
    found = problems_of(section_of(*tasks, **keys))
    found.pop("tasks.1.name", None)
    assert list(found) == ([key] if key else [])
    assert found.get(key, "").startswith(words)


@pytest.mark.parametrize(
    ("keys", "note", "is_good"),
    [
        ({}, "", True),
        ({"times": "measured"}, "not measured at other NICs", True),
        ({"times": "measured", "fit_error": 0.05},
         "at other NICs, measured for it, this fit was +5.0% off", True),
        ({"times": "measured", "fit_error": -0.0501},
         "at other NICs, measured for it, this fit was -5.0% off: it is no", False),
        ({"fit_error": 0.5}, "", True),
    ],
)  # fmt: skip
def test_a_fit_is_noted_with_its_error(
    keys: dict[str, Any], note: str, *, is_good: bool
) -> None:
    found = section_of({}, **keys).fit_note
    assert found.startswith(note)
    assert ("no good" not in found) is is_good
    assert bool(found) == bool(note)


@pytest.mark.parametrize(
    ("keys", "most", "key", "words"),
    [
        ({"flows": [FLOW] * 4}, 4, "", ""),
        ({"flows": [FLOW] * 4}, 3, "flows", "found 4, which make 4 edges"),
        # A shuffle makes 2 edges, a ring of three 6 steps of 3 and 3 each.
        ({"flows": [FLOW] * 3, **collective("shuffle")}, 4, "flows", "found 3, which"),
        ({"flows": [FLOW] * 2, **collective("shuffle")}, 3, "flows", "found 2, which"),
        (
            {"flows": [FLOW], **collective("shuffle")},
            2,
            "collectives.0.shuffle",
            "found shuffle, which make 3",
        ),
        (
            collective("allreduce", among=["a", "b", "c"], segments=2),
            11,
            "collectives.0.allreduce.among",
            "found 3 tasks in 2 segments",
        ),
        (
            collective("allreduce", among=["a", "b", "c"], segments=2),
            24,
            "collectives.0.allreduce.segments",
            "found 3 tasks in 2 segments, which make 49",
        ),
        (collective("allreduce", among=["a", "b", "c"], segments=2), 49, "", ""),
    ],
)
def test_the_key_that_makes_most_edges_is_named(
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    most: int,
    key: str,
    words: str,
) -> None:
    monkeypatch.setattr(custom_section, "MOST_EDGES", most)
    section = section_of({}, {}, {}, **keys)
    found = {
        ".".join(map(str, trail[1:])): problem
        for trail, problem in section.size_problems("mn")
    }
    assert list(found) == ([key] if key else [])
    assert found.get(key, "").startswith(words)


def test_tasks_and_flows_are_as_they_are_stated() -> None:
    flows = [{**FLOW, "channel": "k", "reads": "latest", "lag": 1}, FLOW]
    tasks: list[dict[str, Any]] = [
        {"pin": "m", "slot": "gpu", "demands": {"cpu": 2}},
        {"server": "q", "iterations": 1},
        {"takes": "gpu", "frees": "none", "process": "p"},
    ]
    section = section_of(*tasks, flows=flows)
    job = section.build(context_of("mn", 1))
    first, second, third = job.tasks
    assert (first.pinned, first.takes, first.frees) == ("m", "gpu", None)
    assert first.demands == {"cpu": 2.0}
    assert (second.process_name, second.takes, second.iterations) == ("q", "q", 1)
    assert (third.takes, third.frees, third.process_name) == ("gpu", "", "p")
    edge, plain, *_ = job.edges
    assert (edge.lag, edge.latest, plain.lag, plain.latest) == (1, True, 0, False)
    assert section.demands_at(third) == ("job", "tasks", 2, "demands")
    assert section.demands_at(first) == ("job", "tasks", 0, "demands")
    assert [*section.list_pins()] == [(("job", "tasks", 0, "pin"), "a", "m")]


def test_volumes_of_stated_flows_are_scaled_and_none_of_collectives() -> None:
    section = section_of({}, {}, flows=[FLOW, FLOW], **collective("allgather"))
    twice = lambda volume: 2 * volume  # noqa: E731
    assert section.scale_volumes([1], twice) == {"job.flows[1].volume": 16.0}
    assert section.scale_volumes([0, 1], twice).keys() == {
        "job.flows[0].volume",
        "job.flows[1].volume",
    }
    assert section.scale_volumes([1, 2], twice) == {}
    edit, names = section.scale_times({"a": "task", "b": "task"}, {"b"}, twice)
    assert (edit, names) == ({"job.tasks[1].time": 2.0}, {"b"})
