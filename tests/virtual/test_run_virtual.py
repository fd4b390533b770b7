"""Programs of torch.distributed on a virtual cluster, from command to result."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import EmulatorError, ScenarioError
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load, load_lab
from emu.virtual.launch import nodes_of_command, nodes_of_lab, plan_ranks
from emu.virtual.run_virtual import Settings, cluster_of, run_virtual

torch = pytest.importorskip("torch", reason="ranks need torch")
PROGRAMS = Path(__file__).with_name("programs")
ROOT = PROGRAMS.parents[2]
HEAD = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
MACHINES = ["m0", "m1", "m2", "m3"]


def cluster_file(folder: Path, nic: str = "1 Gbit/s", count: int = 4) -> Path:
    file = folder / "cluster.yaml"
    machine = f"{{name: m, count: {count}, nic: {nic}}}"
    file.write_text(f"cluster:\n  machines:\n    - {machine}\n")
    return file


def run(
    folder: Path, program: str | Path, *arguments: str, ranks: int = 4, **options: Any
) -> tuple[dict[str, Any], Path]:
    """Run a program, or a text, with a charge of 1 ms; return result and directory."""
    if isinstance(program, str):
        path = folder / "program.py"
        path.write_text(program)
        program = path
    algorithms = options.pop("algorithms", ())
    file = load_lab(cluster_file(folder, **options))
    nodes = nodes_of_command([str(program), *arguments], file.cluster.names, ranks)
    directory = RunDirectory.create("run", folder)
    settings = Settings(at_once=2, charge=1e-3, algorithms=algorithms)
    result = run_virtual(file, plan_ranks(nodes), directory, settings, lambda *_: None)
    return result, directory.path


def lines_of(run: Path) -> list[str]:
    logs = sorted(run.glob("rank*.log"))
    return sorted(line for log in logs for line in log.read_text().splitlines())


#: Forks ranks from one import of torch, where torchrun has each import it. To make an
#: optimizer imports more: 1.1 s of CPU in each rank.
FORKED = """
import os, pathlib, runpy, sys
import torch.distributed

program, ranks = sys.argv[1:]
if "torch.optim" in pathlib.Path(program).read_text():
    import torch._dynamo
sys.argv = [program]
os.environ["WORLD_SIZE"] = ranks
children = []
for rank in map(str, range(int(ranks))):
    child = os.fork()
    if child == 0:
        os.environ["RANK"] = rank
        runpy.run_path(program, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def real_lines(program: Path, ranks: int = 4) -> list[str]:
    """Return what ranks print, sorted, that send over gloo's sockets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    addresses = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    # A line is one write, so that ranks do not cut each other's.
    settings["PYTHONUNBUFFERED"] = ""
    real = subprocess.run(
        [sys.executable, "-c", FORKED, str(program), str(ranks)],
        env={**os.environ, **addresses, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(line for line in real.stdout.splitlines() if line)


Ran = tuple[dict[str, Any], Path]


@pytest.fixture(scope="module")
def every_call(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return result and directory of a program with every call: 3 s of CPU."""
    return run(tmp_path_factory.mktemp("every"), PROGRAMS / "every_call.py")


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return those of a program with DistributedDataParallel."""
    return run(tmp_path_factory.mktemp("parallel"), DDP, nic="100 Mbit/s")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_values_of_every_call_are_those_of_gloo(every_call: Ran) -> None:
    """Real gloo over sockets is the witness, for every call, type and reduction."""
    _, directory = every_call
    found = [line for line in lines_of(directory) if line[0].isdecimal()]

    assert found == real_lines(PROGRAMS / "every_call.py")
    assert len(found) >= 150


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_values_of_a_training_are_those_of_gloo(tmp_path: Path) -> None:
    program = PROGRAMS / "data_parallel.py"
    _, directory = run(tmp_path, program)
    found = [line for line in lines_of(directory) if line[0].isdecimal()]

    assert found == real_lines(program)
    assert len(found) >= 32


DDP = (
    HEAD
    + """
import hashlib
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Linear(500, 500), torch.nn.Linear(500, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimiser.zero_grad()
    loss = model(torch.randn(8, 500)).square().mean()
    loss.backward()
    optimiser.step()
    print(loss.item().hex(), flush=True)
dist.barrier()
"""
)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_runs_with_a_charge_have_the_same_bits(
    tmp_path: Path, parallel: Ran
) -> None:
    """And a step has the bytes of its gradients on its NIC, and little else."""
    first, directory = parallel
    second, again = run(tmp_path, DDP, nic="100 Mbit/s")

    assert first["makespan"] == second["makespan"]
    assert first["ranks"][3]["end"] == second["ranks"][3]["end"]
    assert lines_of(directory) == lines_of(again)
    gradients = 4 * (500 * 500 + 500 + 500 + 1)
    wire = 1.5 * gradients / 12.5e6
    assert first["steps"]["count"] == 5
    assert wire < first["steps"]["median"] < wire + 0.012


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_program_of_every_call_takes_the_same_time_again(
    tmp_path: Path, every_call: Ran
) -> None:
    """All clocks and waits: what a rank is told at its turns depends on no message."""
    again, _ = run(tmp_path, PROGRAMS / "every_call.py")

    first, second = (
        [(row["end"], row["waited"], row["calls"]) for row in result["ranks"]]
        for result in (every_call[0], again)
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_recorded_job_takes_as_long_simulated(
    tmp_path: Path, parallel: Ran
) -> None:
    """And at other NICs as long as the program itself there."""
    slow, directory = parallel
    fast, _ = run(tmp_path, DDP, nic="200 Mbit/s")
    from emu.scenario import prepare

    same = prepare(load(directory)).simulate().makespan
    doubled = prepare(load(directory, {"cluster.machines[0].nic": "200 Mbit/s"}))

    assert same == pytest.approx(slow["makespan"], rel=1e-3)
    assert doubled.simulate().makespan == pytest.approx(fast["makespan"], rel=1e-3)


REPORTS = (
    HEAD
    + """
from datetime import timedelta
def report(came, **options):
    try:
        if dist.get_rank() in came:
            dist.monitored_barrier(timeout=timedelta(seconds=2), **options)
            print("passed", flush=True)
    except RuntimeError as error:
        print(error, flush=True)
report([0, 1, 2, 3])
report([0, 3])
dist.barrier()
report([0], wait_all_ranks=True)
dist.barrier()
"""
)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.cold
def test_groups_made_again_have_other_members(tmp_path: Path) -> None:
    """Torch gives their names again once all groups were destroyed."""
    text = """
for members in ([1, 2], [0, 1, 3], [1, 2]):
    group = dist.new_group(members)
    if dist.get_rank() in members:
        total = torch.tensor(10 ** dist.get_rank())
        dist.all_reduce(total, group=group)
        print(dist.get_rank(), int(total), flush=True)
    dist.destroy_process_group()
    dist.init_process_group("gloo")
dist.barrier()
"""
    _, directory = run(tmp_path, HEAD + text)

    pairs = ["1 110", "2 110"]
    assert lines_of(directory) == sorted([*pairs, *pairs, "0 1011", "1 1011", "3 1011"])


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_monitored_barrier_names_who_did_not_come(tmp_path: Path) -> None:
    """By the words of gloo, after its timeout; the program goes on."""
    result, directory = run(tmp_path, REPORTS)

    lines = lines_of(directory)
    assert lines.count("passed") == 4
    assert "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms" in lines
    assert "[Rank 0]: Ranks 1, 2, 3 failed to pass monitoredBarrier in 2000 ms" in lines
    assert any(line.startswith("Rank 3 successfully reached") for line in lines)
    assert 4.0 < result["makespan"] < 4.1


NCCL = HEAD.replace("gloo", "nccl")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_groups_of_nccl_have_its_messages(tmp_path: Path) -> None:
    """A ring: three times 1.5 of the tensor at 12.5 MB/s, besides six charges."""
    size = 4 * 400_000
    text = "for _ in range(3): dist.all_reduce(torch.ones(400_000))\n"
    result, _ = run(tmp_path, NCCL + text, nic="100 Mbit/s", algorithms=("ring",))

    wire = 3 * 1.5 * size / 12.5e6
    assert result["makespan"] == pytest.approx(wire + 6e-3, rel=1e-9)
    assert result["messages"] == {"nccl": "NCCL's ring"}
    assert sum(map(sum_of_row, result["bytes"].values())) == 3 * 6 * size
    (reason,) = [reason for reason in result["reasons"] if "nccl" in reason]
    assert "NCCL's ring" in reason


def sum_of_row(row: dict[str, float]) -> float:
    return sum(row.values())


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            NCCL + "dist.broadcast(torch.ones(3), 0)\n",
            "NCCL has no tree for broadcast of 12 bytes .* at program.py:3",
        ),
        (HEAD + "dist.barrier()\n", "--algorithm: is of NCCL, and groups .* gloo"),
    ],
)
def test_what_has_no_such_algorithm_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(EmulatorError, match=words):
        run(tmp_path, text, algorithms=("tree",))


BAD = {
    "calls": (
        "dist.barrier() if dist.get_rank() == 2 else dist.all_reduce(torch.ones(4))\n",
        "different calls.*program.py:3",
    ),
    "sizes": (
        "dist.all_reduce(torch.ones(4 + dist.get_rank() // 3))\n",
        "differ in size.*16 bytes.*20 bytes|differ in size.*20 bytes.*16 bytes",
    ),
    "deadlock": (
        "if dist.get_rank() < 2: dist.recv(torch.ones(4), 1 - dist.get_rank())\n",
        "rank 0 waits for recv of 16 bytes .* member 1 .*program.py:3; .* 2 has ended",
    ),
    "death": (
        "import os\nif dist.get_rank() == 1: os._exit(3)\ndist.barrier()\n",
        "rank 1 died with exit status 3, ",
    ),
    "kill": (
        "import os\nif dist.get_rank() == 1: os.kill(os.getpid(), 9)\ndist.barrier()\n",
        "rank 1 died by SIGKILL, ",
    ),
    "real-time": (
        "import os\nif dist.get_rank(): os.kill(os.getpid(), 40)\ndist.barrier()\n",
        "rank . died by signal 40, ",
    ),
    "error": (
        "if dist.get_rank() == 1: raise ValueError('of rank 1')\ndist.barrier()\n",
        "rank 1 failed .*ValueError: of rank 1",
    ),
    "sparse": (
        "dist.all_reduce(torch.ones(3, 3).to_sparse())\n",
        "sums of sparse tensors are not modelled",
    ),
    "device": (
        "dist.all_reduce(torch.ones(3, device='meta'))\n",
        "a tensor is on meta: a virtual cluster has CPUs alone",
    ),
    "rpc": (
        "from torch.distributed import rpc\nrpc.init_rpc('a', rank=0, world_size=4)\n",
        "torch.distributed.rpc is not modelled: emu lab",
    ),
    "GPU": (
        "torch.cuda.set_device(dist.get_rank())\n",
        "a GPU is not modelled: .*, at program.py:3; output of ranks: .*/rank",
    ),
    "spawn": (
        "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n",
        "multiprocessing.spawn is not modelled: write .*, at program.py:4",
    ),
    "exit": (
        """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
""",
        "exit status 2, its last line was .*arguments are required: --data",
    ),
    "timeout": (
        """import datetime, time
if dist.get_rank() == 0: time.sleep(100)
work = dist.all_reduce(torch.ones(3), async_op=True)
work.wait(datetime.timedelta(seconds=5))
""",
        "passed its timeout of 5.0 s of virtual time",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_go_on_is_told(tmp_path: Path, case: str) -> None:
    text, words = BAD[case]

    with pytest.raises(EmulatorError, match=words):
        run(tmp_path, HEAD + text)
    assert not [*Path("/dev/shm").glob(f"emu-virtual-{os.getpid()}-*")]  # noqa: S108


FEATURES = ROOT / "scenarios/virtual/features.py"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_losses_of_a_model_of_pyg_are_those_of_gloo(tmp_path: Path) -> None:
    """Rows of features come by three exchanges a batch, of uneven sizes."""
    pytest.importorskip("torch_geometric", reason="pip install torch_geometric")
    result, directory = run(tmp_path, FEATURES)

    lines = lines_of(directory)
    assert len(lines) == 4 * 12
    assert lines == real_lines(FEATURES)
    assert result["steps"]["count"] == 11


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_program_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_geometric.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(EmulatorError, match=r"s: features.py .* install torch_geom"):
        run(tmp_path, FEATURES)


@pytest.mark.slow
def test_a_program_without_a_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="made no process group"):
        run(tmp_path, "print(1)\n")


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_modules_are_found_where_python_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the program first, then in every folder of PYTHONPATH."""
    folders = [tmp_path / "program", tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "nearest.py").write_text(f"FOLDER = {folder.name!r}\n")
    (tmp_path / "first" / "only_first.py").touch()
    (tmp_path / "second" / "only_second.py").touch()
    path = os.pathsep.join(map(str, folders[1:]))
    monkeypatch.setenv("PYTHONPATH", path)
    program = tmp_path / "program" / "train.py"
    imports = "import nearest, only_first, only_second\nprint(nearest.FOLDER)\n"
    program.write_text(HEAD + imports)

    _, directory = run(tmp_path, program, ranks=2)

    assert lines_of(directory) == ["program", "program"]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_programs_see_virtual_time(tmp_path: Path) -> None:
    """A sleep of a week takes none; workers of a loader do not disturb the clock.

    A program that names no backend has gloo's messages: torch names several for it.
    """
    text = """
import time
begin = time.perf_counter(), time.time()
time.sleep(7 * 86400)
print("slept", time.perf_counter() - begin[0] >= 7 * 86400, flush=True)
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, row): time.sleep(0.01); return row
loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1)
print("rows", sum(int(rows.sum()) for rows in loader), flush=True)
dist.barrier()
"""
    without_backend = HEAD.replace("'gloo'", "")
    result, directory = run(tmp_path, without_backend + text, ranks=2)

    assert [*result["messages"]] == ["gloo"]
    assert lines_of(directory) == ["rows 28", "rows 28", "slept True", "slept True"]
    assert 7 * 86400 < result["makespan"] < 7 * 86400 + 60


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HEAD + "while True: dist.all_reduce(torch.ones(3))\n")
    emu_virtual = [
        sys.executable,
        "-m",
        "emu",
        "virtual",
        str(cluster_file(tmp_path, count=2)),
    ]
    options = ["--runs", str(tmp_path / "runs")]
    emu = subprocess.Popen(
        [*emu_virtual, *options, "--", "python", str(program)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process = psutil.Process(emu.pid)
    while len(process.children(recursive=True)) < 3:
        time.sleep(0.1)
    ranks = process.children(recursive=True)
    os.killpg(emu.pid, signal.SIGINT)

    assert emu.wait() == 130
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert alive == []


def test_torchrun_stands_on_machines_in_order() -> None:
    script = str(PROGRAMS / "every_call.py")
    line = ["torchrun", "--nproc-per-node", "4", script, "--width", "3"]

    plans = plan_ranks(nodes_of_command(line, MACHINES, None))

    assert [plan.machine for plan in plans] == [0, 1, 2, 3]
    assert plans[2].command == (script, "--width", "3")
    assert plans[2].environment["RANK"] == "2"
    assert plans[2].environment["LOCAL_RANK"] == "0"


def test_nodes_of_torchrun_are_machines() -> None:
    line = ["python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=3"]

    plans = plan_ranks(nodes_of_command([*line, "-m", "package"], MACHINES, None))

    assert [plan.machine for plan in plans] == [0, 0, 0, 1, 1, 1]
    assert plans[4].command == ("-m", "package")
    assert plans[4].environment["LOCAL_RANK"] == "1"
    assert plans[4].environment["GROUP_RANK"] == "1"
    assert plans[4].environment["LOCAL_WORLD_SIZE"] == "3"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ["torchrun", "--nproc-per-node", "5", "a.py"],
            "5 ranks need as many machines",
        ),
        (["torchrun", "--nnodes", "9", "a.py"], "9 nodes need as many machines"),
        (["torchrun", "--nnodes", "1:4", "a.py"], "found 1:4, write one number"),
        (["torchrun", "--max-restarts", "2", "a.py"], "max-restarts is not modelled"),
        (["torchrun", "--nproc-per-node", "gpu", "a.py"], "write one number"),
        (["mpirun", "-n", "4", "a.out"], "write torchrun"),
        ([], "found 'nothing'"),
    ],
)
def test_commands_that_are_none_are_refused(line: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        nodes_of_command(line, MACHINES, None)


def test_the_shipped_lab_runs_as_it_is() -> None:
    nodes = nodes_of_lab(load_lab(ROOT / "scenarios/ddp/lab.yaml"))

    assert [node.machine for node in nodes] == [0, 1, 2, 3]
    assert nodes[1].command[1:] == ("--width", "1000", "--trace", "")
    assert nodes[1].ranks == 1


@pytest.mark.parametrize("text", ["a.py && b.py", "a.py > out", "a.py | tee x", "a; b"])
def test_a_lab_with_a_shell_s_words_is_refused(tmp_path: Path, text: str) -> None:
    file = cluster_file(tmp_path)
    program = f"lab: {{programs: [{{name: t, run: '{{python}} {text}'}}]}}\n"
    file.write_text(file.read_text() + program)

    with pytest.raises(ScenarioError, match="one program with arguments"):
        nodes_of_lab(load_lab(file))


def test_machines_have_the_cores_that_the_file_states(tmp_path: Path) -> None:
    """Half a core computes half as fast; two ranks need two, where any are stated."""
    file = load_lab(cluster_file(tmp_path, nic="1 Gbit/s, cpu: 0.5, speed: 3"))
    assert cluster_of(file, [0, 1]).machines[1].speed == 1.5
    file = load_lab(cluster_file(tmp_path, nic="1 Gbit/s, cpu: 4"))
    assert cluster_of(file, [0, 0]).machines[0].speed == 1.0
    file = load_lab(cluster_file(tmp_path, nic="1 Gbit/s, cpu: 1"))
    with pytest.raises(ScenarioError, match="is 1, m2 has 2 ranks"):
        cluster_of(file, [0, 2, 2])


def test_events_change_nics_or_are_refused(tmp_path: Path) -> None:
    path = cluster_file(tmp_path)
    text = path.read_text()
    path.write_text(text + "events: [{at: 5 s, machine: m1, nic: 10 Mbit/s}]\n")
    changes = cluster_of(load_lab(path), [0]).changes
    assert [(change.link, change.capacity) for change in changes] == [
        ("m1 out", 1.25e6),
        ("m1 in", 1.25e6),
    ]
    path.write_text(text + "events: [{at: 5 s, slow: m1, by: 2}]\n")
    with pytest.raises(ScenarioError, match="not modelled for programs"):
        cluster_of(load_lab(path), [0])


@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from(["SUM", "MAX", "PRODUCT"]),
    st.integers(0, 1 << 30),
)
def test_sums_are_made_hop_by_hop(
    ranks: int, count: int, operation: str, seed: int
) -> None:
    """Each element by itself, round the ring from the rank before its owner."""
    from emu.virtual.gloo_operations import Ring
    from emu.virtual.rank.sums import REDUCTIONS, reduce_by_ring

    rng = np.random.default_rng(seed)
    dtype = [torch.float32, torch.bfloat16, torch.int64][seed % 3]
    parts = [torch.tensor(rng.normal(size=count) * 100).to(dtype) for _ in range(ranks)]
    contents = [part.view(torch.uint8).numpy() for part in parts]

    total = torch.from_numpy(reduce_by_ring(contents, parts[0], operation)).view(dtype)

    join = getattr(torch, REDUCTIONS[operation])
    for place in range(count):
        owner = 0
        if ranks > 1:
            element = parts[0].element_size()
            ring = Ring(ranks=ranks, size=element * count, element=element)
            owner = element * place // ring.length(0) // ring.per_rank
        value = parts[owner - 1][place]
        for hop in range(2, ranks + 1):
            value = join(parts[(owner - hop) % ranks][place], value)
        assert total[place] == value
