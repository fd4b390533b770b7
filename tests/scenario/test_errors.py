"""Every error names file, line and key, what was found and what would be right."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import EmulatorError, ScenarioError, ScenarioErrors
from emu.scenario import find_errors, load
from emu.scenario.document import parse_document, read_document
from emu.scenario.scenario_file import loads

GOOD = """\
cluster:
  machines:
    - {name: a, cpu: 8, memory: 48 GB, nic: 50 Gbit/s}
    - name: b
      nic: {in: 10 Gbit/s, out: 5 Gbit/s}
job:
  system: custom
  iterations: 3
  tasks:
    - {name: g0, kind: graph_store, time: 1 s}
    - {name: s0, kind: sampler, time: [1 s, 2 s, 1 s], demands: {cpu: 2}}
  flows:
    - {from: g0, to: s0, volume: 40 B}
placement:
  policy: explicit
  tasks: {g0: a, s0: b}
expect:
  makespan: 5 s
"""

DGTP = """\
cluster:
  machines: [{count: 2, nic: 10 Gbit/s}]
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.01}
  model: {hidden: 16, layers: 2}
  fanouts: [5, 10]
  batch_size: 64
  samplers_per_worker: 2
  iterations: 3
  times: {graph_store: 1 s, sampler: 1 s, worker: 1 s, parameter_server: 1 s}
emulation:
  compute: timed
"""

NET = """\
cluster:
  machines:
    - {name: m0, nic: 10 Gbit/s}
    - {name: m1, nic: 10 Gbit/s}
    - {name: d, nic: none}
  links:
    - {name: nv, bandwidth: 12 Gbit/s}
    - {name: qpi, bandwidth: 12 Gbit/s}
  routes:
    - {from: [m0, m1], to: d, through: [nv]}
    - {from: d, to: [m0, m1], through: [qpi, in]}
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s}]
"""

RACKS = """\
cluster:
  machines: [{count: 6, nic: 10 Gbit/s}]
  racks:
    - {name: r0, machines: [m0, m1], uplink: 40 Gbit/s}
    - {name: r1, machines: [m2, m3], uplink: {in: 10 Gbit/s, out: 20 Gbit/s}}
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s}]
"""

# (file, text to replace, replacement, line, key, message)
BROKEN = [
    (GOOD, "job:\n",
     "failures: {link: {every: 5 s, for: 1 s, what: cut}}\njob:\n", 6,
     "failures.link", "no link is there but NICs: write racks or links, or machine"),
    (GOOD, "makespan: 5 s", "makespan: 5 s .. 6 s\n  tolerance: 1 %", 19,
     "expect.tolerance", "is of one makespan or number of bytes: write that"),
    (DGTP, "iterations: 3", "iterations: 3\n  workers: 6\n  sync: halving_doubling",
     12, "job.sync",
     "halving and doubling needs 2, 4, 8, ... workers, found 6: write ring"),
    (GOOD, "time: [1 s, 2 s, 1 s]",
     "time: 1 s, process: p, pin: a}\n    - {name: w0, process: p, pin: b, time: 1 s",
     12, "job.tasks[2].pin",
     "found 'b', but s0 of the same process 'p' must stand on a"),
    (GOOD, "time: [1 s, 2 s, 1 s]",
     "time: 1 s, process: w0}\n    - {name: w0, process: p, time: 1 s",
     11, "job.tasks[1].process",
     "task 'w0' runs in process 'p', write that one"),
    (GOOD, "graph_store, ", "graph_store, process: s0, ", 16, "placement.tasks.s0",
     "found 'b', but g0 of the same process is on a"),
    (NET, "qpi, bandwidth: 12 Gbit/s", "qpi, bandwidth: 12", 8,
     "cluster.links[1].bandwidth",
     "a bare number (12) does not say its unit: add one of "),
    (NET, "qpi, bandwidth: 12 Gbit/s", "qpi, bandwidth: 0 Gbit/s", 8,
     "cluster.links[1].bandwidth", "found zero, write more than that"),
    (NET, "name: qpi", "name: nv", 8, "cluster.links[1].name",
     "a link cannot be called 'nv', write another name"),
    (GOOD, "job:\n", "  links: [{name: a out, bandwidth: 1 Gbit/s}]\njob:\n", 1,
     "cluster", "2 links are called a out"),
    (NET, "through: [nv]", "through: []", 10, "cluster.routes[0].through",
     "found [], write at least 1"),
    (NET, "through: [nv]", "through: [nvl]", 10, "cluster.routes[0].through",
     "no link 'nvl', did you mean"),
    (NET, "through: [nv]", "through: [nv, nv]", 10, "cluster.routes[0].through",
     "the route crosses 'nv' 2 times, once is right"),
    (NET, "through: [nv]", "through: [out, m0 out]", 10, "cluster.routes[0]",
     "the route crosses a NIC twice"),
    (NET, "through: [nv]", "through: [in]", 10, "cluster.routes[0]",
     "machine d has no NIC to cross"),
    (NET, "from: d, to: [m0", "from: d, to: [m9", 11, "cluster.routes[1].to",
     "no machine 'm9', known: m0, m1, d"),
    (NET, "from: d, to: [m0, m1]", "from: d, to: [m0]", 5,
     "cluster.machines[2].nic",
     "machine d has no NIC, so every route from it must be stated"),
    (NET, "from: [m0, m1], to: d", "from: [m0], to: d", 5,
     "cluster.machines[2].nic",
     "machine d has no NIC, so every route to it must be stated"),
    (NET, "from: [m0, m1], to: d", "from: [m0, d], to: [d, m0]", 11,
     "cluster.routes[1]", "the way from d to m0 is stated twice"),
    (RACKS, "[m0, m1]", "[m0, m0]", 4, "cluster.racks[0].machines",
     "'m0' stands in rack 'r0' already"),
    (RACKS, "[m2, m3]", "[m1, m2]", 5, "cluster.racks[1].machines",
     "'m1' stands in rack 'r0' already"),
    (RACKS, "[m2, m3]", "[m2, m9]", 5, "cluster.racks[1].machines",
     "no machine 'm9'"),
    (RACKS, "name: r1", "name: r0", 5, "cluster.racks[1].name",
     "a second rack called 'r0'"),
    (RACKS, "uplink: 40 Gbit/s}", "uplink: {out: 1 Gbit/s}}", 4,
     "cluster.racks[0].uplink.in", "this key is missing"),
    (GOOD, "iterations: 3", "itertions: 3", 8, "job.itertions",
     "unknown key 'itertions', did you mean 'iterations'?"),
    (GOOD, "iterations: 3", "", 6, "job.iterations", "this key is missing"),
    (GOOD, "iterations: 3", "iterations: 3.5", 8, "job.iterations",
     "found 3.5, write a whole number"),
    (GOOD, "iterations: 3", "iterations: yes please", 8, "job.iterations",
     "found 'yes please', write a whole number"),
    (GOOD, "iterations: 3", "iterations: true", 8, "job.iterations",
     "found True, write a whole number"),
    (GOOD, "iterations: 3", "iterations: 0", 8, "job.iterations",
     "found 0, write 1 or more"),
    (GOOD, "nic: 50 Gbit/s", "nic: 50", 3, "cluster.machines[0].nic",
     "a bare number (50) does not say its unit: add one of Gbit/s, "),
    (GOOD, "nic: 50 Gbit/s", "nic: 0 Gbit/s", 3, "cluster.machines[0].nic",
     "found zero, write more than that"),
    (GOOD, "in: 10 Gbit/s", "in: 10 GB", 5, "cluster.machines[1].nic.in",
     "'GB' is not a unit of a rate, write one of Gbit/s, "),
    (GOOD, ", out: 5 Gbit/s", "", 5, "cluster.machines[1].nic.out",
     "this key is missing"),
    (GOOD, "memory: 48 GB", "memory: 48", 3, "cluster.machines[0].memory",
     "a bare number (48) does not say its unit: add one of TB, GB, "),
    (GOOD, "memory: 48 GB", "memroy: 48 GB", 3, "cluster.machines[0].memroy",
     "unknown key 'memroy', did you mean 'memory'?"),
    (GOOD, "cpu: 8", "fpga: 8", 3, "cluster.machines[0].fpga",
     "neither a key of machines nor a resource that a task demands"),
    (GOOD, "cpu: 8", "cpu: -8", 3, "cluster.machines[0].cpu",
     "found -8, write a number that is not negative"),
    (GOOD, "cpu: 8", "cpu: 8 GB", 3, "cluster.machines[0].cpu",
     "found '8 GB', write how many, a number without a unit such as 2; sizes are "),
    (GOOD, "cpu: 8", "gpu: 1e30", 3, "cluster.machines[0].gpu",
     "found 1e+30, write 1e+09 or less"),
    (GOOD, "cpu: 8", "resources: {cpu: 8}", 3, "cluster.machines[0].resources",
     "found {'cpu': 8}, but a key that is not known is the amount of one resource: "),
    (GOOD, "cpu: 2", "tpu: 2", 11, "job.tasks[1].demands.tpu",
     "no machine has 'tpu', did you mean"),
    (GOOD, "name: b", "name: a", 4, "cluster.machines[1]",
     "a second machine called 'a'"),
    (GOOD, "time: 1 s", "time: 1 year", 10, "job.tasks[0].time",
     "'year' is not a unit of a time, write one of s, ms, "),
    (GOOD, "[1 s, 2 s, 1 s]", "[1 s, 2, 1 s]", 11, "job.tasks[1].time",
     "iteration 1: a bare number (2) does not say its unit: add one of s, "),
    (GOOD, "[1 s, 2 s, 1 s]", "[1 s, 2 s]", 11, "job.tasks[1].time",
     "found 2 values for 3 iterations, write 3 or a single one"),
    (GOOD, "to: s0", "to: s1", 13, "job.flows[0].to",
     "no task 's1', known: g0, s0"),
    (GOOD, "volume: 40 B", "volume: -40 B", 13, "job.flows[0].volume",
     "a size cannot be negative, found '-40 B'"),
    (GOOD, "volume: 40 B", "volume: 40 B, lag: -1", 13, "job.flows[0].lag",
     "found -1, write 0 or more"),
    (GOOD, "to: s0", "to: g0", 6, "job",
     "edges without lag form a cycle through g0; give one of them lag 1"),
    (GOOD, "name: s0", "name: g0", 10, "job.tasks[0].name", "'g0' occurs 2 times"),
    (GOOD, "name: s0", "name: s/0", 11, "job.tasks[1].name",
     "found 's/0', write a name without spaces, slashes, # and >"),
    (GOOD, "time: 1 s}", "time: 1 s, pin: c}", 10, "job.tasks[0].pin",
     "no machine 'c', known: a, b"),
    (GOOD, "system: custom", "system: costum", 7, "job.system",
     "found system 'costum', did you mean 'custom'?"),
    (GOOD, "system: custom", "system: distdgl", 7, "job.system",
     "found system 'distdgl', a row of tables: emu compare FILE --systems"),
    (GOOD, "  system: custom\n", "", 6, "job.system",
     "the key 'system' is missing, write system: adaqp, apt, bns_gcn, "),
    (GOOD, "policy: explicit", "policy: explict", 15, "placement.policy",
     "found 'explict', did you mean 'explicit'?"),
    (GOOD, "s0: b}", "s0: c}", 16, "placement.tasks.s0", "no machine 'c', known: a, b"),
    (GOOD, "s0: b}", "s9: b}", 16, "placement.tasks.s9", "no task 's9', known: g0, s0"),
    (GOOD, ", s0: b}", "}", 16, "placement.tasks", "no machine for s0"),
    (GOOD, "makespan: 5 s", "accuracy: 0.9", 18, "expect.accuracy",
     "a custom job trains nothing, remove this key"),
    (GOOD, "makespan: 5 s", "fidelity: 2 %", 18, "expect.fidelity",
     "unknown key 'fidelity'"),
    (GOOD, "makespan: 5 s", "replay_error: 2 pc", 18, "expect.replay_error",
     "'pc' is not a unit of a share, write one of %, as in '2 %'"),
    (GOOD, "expect:", "schedule: {policy: oess}\nexpect:", 17, "schedule.policy",
     "found 'oess', did you mean 'oes'?"),
    (GOOD, "expect:", "emulaton: {}\nexpect:", 17, "emulaton",
     "unknown key 'emulaton', did you mean 'emulation'?"),
    (GOOD, "expect:", "expect:\n  makespan: 4 s", 19, "",
     'is not YAML: "makespan" is there twice, in line 18 as well'),
    (GOOD, "{g0: a, s0: b}", "{g0: a, s0: b", 16, "", "is not YAML: "),
    (GOOD, "cluster:", "1: 2\ncluster:", 0, "", "found the key 1, keys are text"),
    (DGTP, "[5, 10]", "[all]", 7, "job.fanouts",
     "found all in a list, write numbers, or all alone"),
    (DGTP, "[5, 10]", "[5, 10, 15]", 7, "job.fanouts",
     "found 3 for a model of 2 layers, write one per layer"),
    (DGTP, "batch_size: 64", "batch_size: 65", 8, "job.batch_size",
     "65 seeds cannot be shared evenly by 2 samplers (job.samplers_per_worker), wr"),
    (DGTP, "iterations: 3", "epochs: 1\n  iterations: 3", 3, "job",
     "found both of iterations and epochs, write one of them"),
    (DGTP, "  iterations: 3\n", "", 3, "job",
     "found neither of iterations and epochs, write one of them"),
    (DGTP, "hidden: 16", "hiden: 16", 6, "job.model.hiden",
     "unknown key 'hiden', did you mean 'hidden'?"),
    (DGTP, "scale: 0.01", "scale: 0", 5, "job.dataset.scale",
     "found 0, write more than 0"),
    (DGTP, "compute: timed", "compute: fast", 13, "emulation.compute",
     "found 'fast', known: timed, real, padded"),
    (DGTP, "emulation:", "expect: {accuracy: 0.9}\nemulation:", 12, "expect.accuracy",
     "timed tasks compute nothing, write emulation.compute: padded or real"),
    (DGTP, "iterations: 3", "iterations: 3\n  credit_window: 0", 11,
     "job.credit_window", "found 0, write 1 or more or unlimited"),
    (DGTP, "iterations: 3", "iterations: 3\n  demands: {smpler: {cpu: 1}}", 11,
     "job.demands.smpler", "unknown key 'smpler', did you mean 'sampler'?"),
]  # fmt: skip


def _written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "key", "message"),
    BROKEN,
    ids=[f"{key}: {message}"[:70] for *_, key, message in BROKEN],
)
def test_broken_file(
    tmp_path: Path, text: str, old: str, new: str, line: int, key: str, message: str
) -> None:
    assert old in text
    file = _written(tmp_path, text.replace(old, new, 1))

    with pytest.raises(ScenarioError) as caught:
        load(file)

    errors = getattr(caught.value, "errors", (caught.value,))
    (error,) = [error for error in errors if error.key == key]
    assert error.problem.startswith(message)
    assert (error.file, error.line) == (str(file), line)
    assert str(caught.value).splitlines() == [*map(str, errors)]


@pytest.mark.parametrize("text", [GOOD, DGTP])
def test_good_file(tmp_path: Path, text: str) -> None:
    assert find_errors(_written(tmp_path, text)) == []


@given(st.integers(1, 200), st.integers(2, 9))
def test_an_uneven_batch_names_the_batches_next_to_it(
    batch: int, samplers: int
) -> None:
    shares = {"job.batch_size": batch, "job.samplers_per_worker": samplers}
    if batch % samplers == 0:
        loads(DGTP, shares)
        return
    with pytest.raises(ScenarioError, match=r"job\.samplers_per_worker") as caught:
        loads(DGTP, shares)
    named = str(caught.value).split("batch_size: ")[-1].split(" or ")
    near = range(max(batch - samplers, 0) + 1, batch + samplers)

    assert named == [str(n) for n in near if n % samplers == 0]
    for even in named:
        loads(DGTP, shares | {"job.batch_size": int(even)})


def test_an_error_reads_file_line_key_problem(tmp_path: Path) -> None:
    file = _written(tmp_path, GOOD.replace("nic: 50 Gbit/s", "nic: 50"))

    with pytest.raises(ScenarioError) as caught:
        load(file)

    assert str(caught.value) == (
        f"{file}:3: cluster.machines[0].nic: "
        "a bare number (50) does not say its unit: "
        "add one of Gbit/s, GB/s, Mbit/s, MB/s, kB/s, B/s"
    )


def test_every_error_is_found_in_the_order_of_lines(tmp_path: Path) -> None:
    text = GOOD.replace("50 Gbit/s", "50").replace("iterations: 3", "iterations: x")
    text = text.replace("time: 1 s", "time: 1").replace("5 s", "5")

    errors = find_errors(_written(tmp_path, text))

    assert [error.line for error in errors] == [3, 8, 10, 18]


def test_a_misspelt_key_is_one_error_and_not_missing_as_well(tmp_path: Path) -> None:
    text = GOOD.replace("name: a", "nmae: a").replace("volume:", "volme:")

    errors = find_errors(_written(tmp_path, text))

    keys = [error.key for error in errors]
    assert keys == ["cluster.machines[0].nmae", "job.flows[0].volme"]


@pytest.mark.parametrize(
    ("override", "key", "message"),
    [
        ("job.itertions=5", "job.itertions", "unknown key 'itertions', did you mean"),
        ("job.iterations=five", "job.iterations", "found 'five', write a whole number"),
        ("expect.makespan=5", "expect.makespan", "a bare number (5) does not say its"),
        ("cluster.machines[0].latency=5 ms", "cluster.machines[0].latency", "a latenc"),
        ("cluster.machines[0].latency=5", "cluster.machines[0].latency", "a latency"),
        ("job.iterations", "", "write --set key.key=value"),
        ("=5", "", "write --set key.key=value"),
        ("job.iterations=[", "", "what follows = is not YAML"),
        ("job.tasks[7].time=1 s", "", "job.tasks is a list of 2, it has no 7"),
        ("job.tasks.0.time=1 s", "", "job.tasks is a list of 2, it has no 0; its"),
        ("job.iterations.n=1", "", "job.iterations is 3, it has no n"),
        ("expect[0]=1", "", "expect is {'makespan': '5 s'}, it has no 0"),
        ("job.tasks[1]={name: s0, time: 5}", "job.tasks[1].time", "a bare number (5)"),
        ("job.iterations=9", "job.tasks[1].time", "found 3 values for 9 iterations"),
    ],
)
def test_an_error_of_an_override_names_the_option(
    tmp_path: Path, override: str, key: str, message: str
) -> None:
    file = _written(tmp_path, GOOD)

    with pytest.raises(ScenarioError) as caught:
        load(file, [override])

    assert caught.value.problem.startswith(message)
    assert caught.value.key == key
    if override != "job.iterations=9":
        assert caught.value.file == f"--set {override}"


@pytest.mark.parametrize(
    ("text", "override", "key", "message"),
    [
        (
            DGTP,
            "job.model={kind: gat, hidden: 18, layers: 2, heads: 4}",
            "job.model.heads",
            "4 heads cannot share a width of 18 evenly, write hidden: 20",
        ),
        (
            GOOD,
            "failures={machine: {every: 5 s, for: 1 s, what: pause, by: 3}}",
            "failures.machine.by",
            "is of what: slow, found pause: remove it",
        ),
        (
            GOOD,
            "job.tasks[1].time=[]",
            "job.tasks[1].time",
            "found an empty list, write one value per iteration",
        ),
        (
            DGTP,
            "expect.accuracy=150 %",
            "expect.accuracy",
            "found 150 %, write 100 % or less",
        ),
        (
            GOOD,
            "events=[{at: 1 s, machine: a, nic: none}]",
            "events[0].nic",
            "found 'none', but a NIC stays: write a rate",
        ),
    ],
)
def test_what_a_key_cannot_be_beside_another_is_named(
    text: str, override: str, key: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(text, [override])
    assert (caught.value.key, caught.value.problem) == (key, message)


def test_machines_alone_are_told_what_takes_them(tmp_path: Path) -> None:
    cluster, _, _ = GOOD.partition("job:")
    (error,) = find_errors(_written(tmp_path, cluster))

    assert error.key == "job"
    assert error.problem.endswith(
        "; machines alone are for emu virtual FILE -- torchrun ..."
    )


def test_an_error_of_a_large_value_is_a_short_line(tmp_path: Path) -> None:
    tasks = [{"name": f"t{n}", "time": "1 s"} for n in range(100)]
    wrong = {"system": "custom", "iterations": 0, "tasks": tasks}

    with pytest.raises(ScenarioError, match=r"job.iterations: found 0") as caught:
        load(_written(tmp_path, GOOD), {"job": wrong, "placement": {"policy": "best"}})
    assert str(caught.value).startswith("job={'system': 'custom', ")
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("{hidden: 16, layers: 2}", "big",
         "found 'big', write a mapping with hidden, layers and any of kind, heads, "),
        ("{name: products-like, scale: 0.01}", "{name: [3]}",
         "found [3], write for example products-like"),
        ("[5, 10]", "5", "found 5, write a list, for example [1] or all"),
        ("{compute: timed}", "real fast",
         "found 'real fast', write a mapping with any of"),
        # Without its only machine the list is too short, which is not said as well.
        ("nic: 10 Gbit/s", "nic: 10 Gbit/s, memroy: -4",
         "unknown key 'memroy', did you mean 'memory'?"),
        ("job:\n", "events: 5\njob:\n",
         "found 5, write a list, for example [{at: 15 ms}]"),
        ("  iterations: 3", "  machines: 5\n  iterations: 3",
         "found 5, write a list, for example [name]"),
    ],
)  # fmt: skip
def test_an_error_says_what_is_expected_there(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    text = DGTP.replace("\n  compute: timed", " {compute: timed}")
    assert old in text
    (error,) = find_errors(_written(tmp_path, text.replace(old, new)))

    assert error.problem.startswith(problem)


def test_errors_of_different_stages_are_said_at_once(tmp_path: Path) -> None:
    """A wrong unit, a flow to nowhere, and a placement on a machine without room."""
    text = GOOD.replace("makespan: 5 s", "makespan: 5").replace("to: s0", "to: s1")
    keys = [error.key for error in find_errors(_written(tmp_path, text))]
    assert keys == ["job.flows[0].to", "expect.makespan"]

    text = GOOD.replace("makespan: 5 s", "makespan: 5").replace("cpu: 8", "cpu: 0.5")
    text = text.replace("{g0: a, s0: b}", "{g0: a, s0: a}")
    # Of the two on a machine the first alone wants a core.
    text = text.replace(", demands: {cpu: 2}", "")
    text = text.replace("kind: graph_store", "demands: {cpu: 1}")
    keys = [error.key for error in find_errors(_written(tmp_path, text))]
    assert keys == ["placement.tasks.g0", "expect.makespan"]


def test_paths_of_the_file_are_relative_to_it_and_those_of_set_to_here(
    tmp_path: Path,
) -> None:
    file = _written(tmp_path, GOOD + "profile: prof.json\n")

    assert load(file).profile == str(tmp_path / "prof.json")
    assert load(file, ["profile=prof.json"]).profile == "prof.json"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("profile=nothing.json", "profile"),
        ("job.dataset=no-such-graph", "job.dataset"),
        ("cluster.machines[0].cpu=0", "cluster.machines"),
    ],
)
def test_validate_finds_what_simulating_would_fail_on(
    tmp_path: Path, change: str, key: str
) -> None:
    text = DGTP.replace("batch_size", "demands: {worker: {cpu: 1}}\n  batch_size")
    (error,) = find_errors(_written(tmp_path, text), [change])

    assert error.key == key


def test_a_scenario_may_be_packed_or_in_utf_16(tmp_path: Path) -> None:
    """Read what `emu what` calls a scenario of emu."""
    text = "name: \u00e9\r\njob: {iterations: 3}\r\n"
    path = tmp_path / "a.yaml"
    for content in (text.encode("utf-16"), gzip.compress(text.encode())):
        path.write_bytes(content)
        found = read_document(path).data
        assert found == {"name": "\u00e9", "job": {"iterations": 3}}
    path.write_bytes(content[:-9])
    with pytest.raises(ScenarioError, match="is damaged: Compressed file ended"):
        read_document(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found nothing, write a mapping"),
        (b"- 1\n- 2\n", "found list, write a mapping"),
        (b"just text", "found str, write a mapping"),
        (b"a: \xff\xfe", "is not text in UTF-8"),
        (b"when: 2026-01-01", "found 2026-01-01, which YAML reads as a"),
        (b"a: " + b"[" * 50 + b"]" * 50, "has more than 40 levels"),
        (b"a: " + b"[" * 300, "has more than 40 levels"),
        (b"a: " + b"[" * 30, "is not YAML: "),
        (
            b"""
                a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
                b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
                c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
                d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
                e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
                f: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
                g: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
            """,
            "has too many values or levels",
        ),
    ],
)
def test_what_is_not_a_scenario_at_all(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_bytes(content)

    with pytest.raises(ScenarioError) as caught:
        load(file)

    assert caught.value.problem.startswith(message)
    assert caught.value.file == str(file)


def test_the_level_that_is_too_many_is_named_by_its_line() -> None:
    """Levels are counted from the file on: 40 of them are taken."""
    text = "name: x\njob:\n  a: "
    parse_document(text + "[" * 39 + "]" * 39, "deep.yaml")

    with pytest.raises(ScenarioError, match="has more than 40 levels") as caught:
        parse_document(text + "[" * 40 + "]" * 40, "deep.yaml")
    assert (caught.value.file, caught.value.line) == ("deep.yaml", 3)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (20, 20), (21, 21), (500, 21)])
def test_of_many_errors_the_first_are_shown_and_the_others_counted(
    count: int, lines: int
) -> None:
    errors = [
        ScenarioError(f"no machine 'm{n}'", file="a.json", key=f"placement.tasks.t{n}")
        for n in range(count)
    ]
    found = ScenarioErrors(errors)
    shown = str(found).splitlines()
    assert len(found.errors) == count
    assert len(shown) == lines
    assert shown[0] == str(errors[0])
    if count > 20:
        assert shown[19] == str(errors[19])
        rest = "error is" if count == 21 else "errors are"
        assert shown[20] == f"a.json: {count - 20} more {rest} not shown"


def test_each_process_without_a_machine_is_named_once(tmp_path: Path) -> None:
    text = GOOD.replace(", s0: b}", "}")
    (error,) = find_errors(_written(tmp_path, text))
    assert error.problem == "no machine for s0"


@pytest.mark.parametrize("found", [{"a": 1}, [1], "x"])
@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("job.credit_window", "a whole number or unlimited"),
        ("emulation.time_scale", "a number or auto"),
        ("emulation.catch_up", "or unlimited"),
        ("accuracy", "text or a mapping"),
    ],
)
def test_a_value_of_several_types_is_one_error_of_its_key(
    key: str, right: str, found: object
) -> None:
    """Mappings and lists were two, of `constrained-int` and `literal['unlimited']`."""
    if key == "accuracy" and found != [1]:  # the name of a file, or of each row's
        return
    with pytest.raises(ScenarioError) as caught:
        load("golden", {key: found})
    assert caught.value.key == key
    assert caught.value.problem.endswith(right)


@pytest.mark.parametrize(
    ("edit", "keys"),
    [
        ({"accuracy": {"p3": [1], "dgcl": "x.csv"}}, ["accuracy.p3"]),
        (
            {"cluster.machines[0].nic": [{}]},
            ["cluster.machines[0].nic.in", "cluster.machines[0].nic.out"],
        ),
    ],
)
def test_a_wrong_part_of_a_value_of_several_types_is_named_alone(
    edit: dict[str, object], keys: list[str]
) -> None:
    with pytest.raises(EmulatorError) as caught:
        load("golden", edit)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(keys)
    for key, line in zip(keys, lines, strict=True):
        assert f" {key}: " in f" {line}"


def test_an_unknown_key_of_the_nic_of_an_event_names_the_known_ones() -> None:
    nic = {"in": "1 B/s", "out": "1 B/s", "up": "1 B/s"}
    event = {"at": "1 s", "machine": "m0", "nic": nic}
    with pytest.raises(ScenarioError, match=r"unknown key 'up', known: in, out$"):
        load("golden", {"events": [event]})
