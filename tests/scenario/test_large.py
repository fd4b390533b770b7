"""Files of one's own that are larger than those of strangers may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner
from typing_extensions import override

import emu
from emu.cli.app import app
from emu.errors import ScenarioError
from emu.prediction.placement.baselines import place_explicit
from emu.problem import Cluster, Edge, Job, Machine, Task
from emu.scenario.pins import pin, pin_errors


def chain(count: int) -> dict[str, Any]:
    tasks = [{"name": f"t{n}", "time": "1 us", "process": "p"} for n in range(count)]
    flows = [
        {"from": f"t{n}", "to": f"t{n + 1}", "volume": "0 B"} for n in range(count - 1)
    ]
    job = {"system": "custom", "iterations": 1, "tasks": tasks, "flows": flows}
    machines = [{"name": "m0", "nic": "1 Gbit/s"}]
    return {
        "cluster": {"machines": machines},
        "job": job | {"credit_window": "unlimited"},
        "placement": {
            "policy": "explicit",
            "tasks": {f"t{n}": "m0" for n in range(count)},
        },
    }


def test_a_limit_is_lifted_for_files_of_ones_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the option, and by ``large``; the line says how much memory it will take.

    Of every file: it was taken for the one line that an interruption has, which had
    none then.
    """
    monkeypatch.setattr("emu.scenario.document.MOST_VALUES", 1000)
    monkeypatch.setattr("emu.host.limits._SMALL", 1000)
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(chain(400)))

    with pytest.raises(ScenarioError, match="of a file of your own --large takes them"):
        emu.load(file)
    assert emu.simulate(emu.load(file, large=True)).makespan == pytest.approx(400e-6)
    emu.load(file, large=True)
    assert capsys.readouterr().err.count("takes about 0.0 GB of memory") == 2
    with pytest.raises(ScenarioError, match="too many values"):
        emu.load(file)
    result = CliRunner().invoke(app, ["simulate", str(file), "--large"])
    assert result.exit_code == 0
    assert "takes about 0.0 GB of memory" in result.stderr
    monkeypatch.setattr("emu.host.limits._MEMORY", 1 << 50)
    with pytest.raises(ScenarioError, match=r"of memory, .* are free"):
        emu.load(file, large=True)


def test_text_of_json_is_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML of that length is refused, and takes 0.1 s per 10 kB where it is not."""
    text = json.dumps(chain(4000))
    assert len(text) > 300_000
    assert emu.simulate(emu.loads(text)).makespan == pytest.approx(4e-3)
    monkeypatch.setattr("emu.scenario.document._load_tree", None)
    emu.loads(json.dumps(chain(300)))


class Counted(tuple[int, ...]):
    """Positions of tasks that count how often they are walked."""

    __slots__ = ()
    walks: ClassVar[list[int]] = []

    @override
    def __iter__(self) -> Any:
        self.walks.append(len(self))
        return super().__iter__()


@pytest.mark.parametrize("count", [100, 1000])
def test_naming_all_tasks_of_a_process_takes_steps_that_grow_with_them(
    count: int,
) -> None:
    """It was quadratic: 1,000 names took 7 s."""
    tasks = tuple(Task(f"t{n}", "task", process="p") for n in range(count))
    edges = tuple(Edge(n, n + 1) for n in range(count - 1))
    job = Job(tasks, edges, 1)
    job.__dict__["units"] = {"p": Counted(range(count))}
    cluster = Cluster((Machine("m0", 1.0, 1.0),))
    stated = {f"t{n}": "m0" for n in range(count)}
    Counted.walks.clear()

    assert not [*pin_errors(job, ["m0"], stated)]
    assert all(task.pinned == "m0" for task in pin(job, stated).tasks)
    assert place_explicit(job, cluster, stated).machine_of == (0,) * count
    assert sum(Counted.walks) <= 8 * count
