"""Labs that train with dgl.distributed: run once, kept, and read."""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from emu.runs.array_files import read_samples, read_traffic

HERE = Path(__file__).resolve().parent
HOME = Path("runs/distdgl")
EPOCH = re.compile(r"epoch (\d+) ([\d.]+) s batches (\d+)")
#: Of samples.npz.
SAMPLED = ("ran", "waited", "retransmitted", "timeouts")
#: Bytes of a packet that is no mere message.
LARGE = 1000
#: Number of programs in lab.yaml.
PROGRAMS = 2


def now() -> str:
    """Return the time, such that times sort as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def options(
    description: str | None, *, graph: str = "products-like"
) -> argparse.ArgumentParser:
    """Return the options that all commands have."""
    parser = argparse.ArgumentParser(
        description=description,
        fromfile_prefix_chars="@",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--graph", default=graph)
    parser.add_argument("--repeats", type=int, default=1, help="of what is measured")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="per epoch")
    parser.add_argument("--first", type=int, help="batches of the first epoch")
    parser.add_argument("--time-scale", default="auto", help="wall seconds of one")
    parser.add_argument("--samplers", type=int, default=0, help="beside each trainer")
    parser.add_argument("--ahead", type=int, help="batches that samplers are ahead")
    parser.add_argument("--cache", type=float, help="rows of others, share of a part")
    return parser


def arguments_of(given: argparse.Namespace) -> str:
    """Return what train.py gets of the options."""
    text = f"--epochs {given.epochs} --batches {given.batches}"
    for name in ("first", "ahead", "cache"):
        value = getattr(given, name)
        if value is not None:
            text += f" --{name} {value}"
    return text


def partitioned(graph: str, parts: int = 4) -> Path:
    """Return the folder of a graph's partitions; they are made if need be."""
    folder = HOME / f"{graph}-{parts}"
    if not (folder / "graph.json").exists():
        command = [sys.executable, str(HERE / "partition.py"), graph, str(folder)]
        subprocess.run([*command, "--parts", str(parts)], check=True)
    return folder


@dataclass(frozen=True)
class Trained:
    """A run of a lab in which the trainers ended well.

    Parameters
    ----------
    began
        When it was started, as `now` tells it.
    """

    path: Path
    began: str

    @property
    def epochs(self) -> list[float]:
        """Seconds of every epoch: the slowest trainer's, which has its own clock."""
        time_scale = self.told["time_scale"]
        slowest: dict[int, float] = defaultdict(float)
        for log in self.path.glob("trainer-*.log"):
            for number, seconds, _ in EPOCH.findall(log.read_text()):
                slowest[int(number)] = max(slowest[int(number)], float(seconds))
        return [slowest[number] / time_scale for number in sorted(slowest)]

    @property
    def seconds(self) -> float:
        """Seconds of an epoch: mean of all but the first."""
        return float(np.mean(self.epochs[1:]))

    @property
    def batches(self) -> tuple[int, int]:
        """Batches of the first epoch, which a fit leaves out, and of every other."""
        log = next(self.path.glob("trainer-*.log"))
        counts = [int(count) for _, _, count in EPOCH.findall(log.read_text())]
        return counts[0], counts[-1]

    @property
    def told(self) -> dict[str, Any]:
        """What ``lab.json`` says."""
        found: dict[str, Any] = json.loads((self.path / "lab.json").read_text())
        return found

    @property
    def sampled(self) -> dict[str, float]:
        """What was counted in all epochs but the first, of SAMPLED.

        They end with the last large packet; before them every process imports dgl.
        """
        packets = read_traffic(self.path).packets
        end = float(packets["time"][packets["bytes"] > LARGE].max())
        samples = read_samples(self.path)
        found = {}
        for name in SAMPLED:
            counts = samples[name].reshape(len(samples["time"]), -1).sum(1)
            at = np.interp([end - sum(self.epochs[1:]), end], samples["time"], counts)
            found[name] = float(at[1] - at[0])
        return found

    @property
    def waited(self) -> float:
        """Share of its computing that programs waited for a core, in these epochs."""
        found = self.sampled
        return found["waited"] / (found["ran"] + found["waited"])

    def to_json(self) -> dict[str, object]:
        """Return what a table is made of."""
        told = self.told
        return {
            "run": str(self.path),
            "began": self.began,
            "epochs": self.epochs,
            "trust": told["trust"],
            "waited_share": told["waited_share"],
            **self.sampled,
        }


def trained(
    machines: Sequence[tuple[str, str]],
    graph: Path,
    folder: Path,
    *,
    sharing: str,
    arguments: str,
    samplers: int = 0,
    time_scale: str = "auto",
) -> Trained:
    """Train on machines with these names and NICs in Mbit/s, unless that was done.

    ``samplers``: processes beside each trainer that sample for it; 0: itself.
    ``time_scale``: wall seconds of one of the lab's.
    """
    done = folder / "done.json"
    if not done.exists():
        began = now()
        # A core each, in dilated time: what waits for cores cannot be fitted.
        rows = ", ".join(
            f"{{name: {name}, nic: {nic} Mbit/s, cpu: 1}}" for name, nic in machines
        )
        settings = [f"cluster.machines=[{rows}]", f"lab.sharing={sharing}"]
        settings.append(f"lab.time_scale={time_scale}")
        for number in range(PROGRAMS):
            program = f"lab.programs[{number}]"
            settings += [
                f"{program}.run='{{python}} {{folder}}/train.py {arguments}'",
                f"{program}.env.DGL_CONF_PATH='{graph / 'graph.json'}'",
                # A client of the servers each: trainers, and their samplers.
                f"{program}.env.DGL_NUM_CLIENT='{len(machines) * (1 + samplers)}'",
                f"{program}.env.DGL_NUM_SAMPLER='{samplers}'",
            ]
        command = [sys.executable, "-P", "-m", "emu", "lab", str(HERE / "lab.yaml")]
        for setting in settings:
            command += ["--set", setting]
        said = subprocess.run(
            [*command, "--runs", str(folder)],
            check=False,
            capture_output=True,
            text=True,
        )
        if said.returncode:
            raise SystemExit(said.stdout + said.stderr)
        run = max(folder.glob("*-lab-*"))
        done.write_text(json.dumps({"run": str(run), "began": began}))
    told = json.loads(done.read_text())
    return Trained(Path(told["run"]), told["began"])


def verdict(runs: Sequence[Trained]) -> str:
    """Return what the labs say, and how long programs waited for a core."""
    trusted = sum(run.told["trust"] == "trusted" for run in runs)
    waited = max(run.waited for run in runs)
    whole = max(run.told["waited_share"] for run in runs)
    return f"{trusted} of {len(runs)} trusted, waited {waited:.0%}, {whole:.0%} in all"


def median(runs: Sequence[Trained]) -> float:
    """Return the median epoch of repeats, in seconds."""
    return float(np.median([run.seconds for run in runs]))


def ends(runs: Sequence[Trained]) -> str:
    """Return the least and the most."""
    took = [run.seconds for run in runs]
    return f"{min(took):.3f} to {max(took):.3f}"


def apart(runs: Sequence[Trained]) -> float:
    """Return how far the least and the most are apart, over the median."""
    return float(np.ptp([run.seconds for run in runs])) / median(runs)
