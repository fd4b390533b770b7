"""The accuracy of a training in a lab, beside the same without one.

    python scenarios/distdgl/accuracy.py [--repeats 3]

The same script and seeds, four trainers each time: on four machines of a lab with a
part of the graph on each, and as a user of one computer starts them: one part, one
server, on loopback. dgl's servers take no seed, so repeats differ.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import labs
import numpy as np

TRAINERS = 4
#: Of dgl's server.
PORT = 30050
ACCURACY = re.compile(r"test accuracy ([\d.]+)")


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def without_lab(graph: Path, folder: Path, arguments: str) -> float:
    """Return the accuracy of one server and four trainers on this computer."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "trainer-0.log"
    if not log.exists() or not ACCURACY.search(log.read_text()):
        hosts = folder / "hosts.txt"
        hosts.write_text(f"127.0.0.1 {PORT}\n")
        common = os.environ | {
            "DGL_SERVER_ID": "0",
            "DGL_DIST_MODE": "distributed",
            "DGL_IP_CONFIG": str(hosts),
            "DGL_CONF_PATH": str(graph / "graph.json"),
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_CLIENT": str(TRAINERS),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "WORLD_SIZE": str(TRAINERS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        command = [sys.executable, str(labs.HERE / "train.py"), *arguments.split()]
        roles = [("server", 0), *(("client", rank) for rank in range(TRAINERS))]
        started = []
        for role, rank in roles:
            name = "server" if role == "server" else f"trainer-{rank}"
            with (folder / f"{name}.log").open("w") as output:
                own = common | {"DGL_ROLE": role, "RANK": str(rank)}
                started.append(
                    subprocess.Popen(command, env=own, stdout=output, stderr=output)
                )
        try:
            for process in started[1:]:
                process.wait(600)
        finally:
            for process in started:
                process.terminate()
                process.wait()
    return accuracy(log)


def accuracy(log: Path) -> float:
    """Return what a trainer printed."""
    found = ACCURACY.search(log.read_text())
    if found is None:
        raise SystemExit(f"{log}: no accuracy\n{log.read_text()}")
    return float(found[1])


def main() -> None:
    """Partition, train in a lab and without one; print the accuracies."""
    parser = labs.options(__doc__, graph="amazon_computers")
    parser.set_defaults(epochs=5)
    parser.add_argument("--nic", default="100", help="Mbit/s of the lab's machines")
    given = parser.parse_args()
    arguments = f"{labs.arguments_of(given)} --test"
    home = labs.HOME / f"accuracy-{given.graph} {arguments}".replace(
        " --", "-"
    ).replace(" ", "-")
    machines = [(f"m{number}", given.nic) for number in range(TRAINERS)]
    found: dict[str, list[float]] = {"in a lab": [], "without": []}
    for repeat in range(given.repeats):
        lab = labs.trained(
            machines,
            labs.partitioned(given.graph),
            home / f"lab-{given.nic}-{repeat}",
            sharing="fair",
            arguments=arguments,
            time_scale=given.time_scale,
        )
        found["in a lab"].append(accuracy(lab.path / "trainer-m0.log"))
        whole = labs.partitioned(given.graph, 1)
        found["without"].append(
            without_lab(whole, home / f"without-{repeat}", arguments)
        )
    print("| | test accuracy | of each run |\n|---|---|---|")
    for name, each in found.items():
        runs = ", ".join(f"{one:.2%}" for one in each)
        print(f"| {name} | {np.mean(each):.2%} | {runs} |")


if __name__ == "__main__":
    main()
