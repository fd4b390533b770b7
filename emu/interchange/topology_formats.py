"""Formats of topologies: how each begins, and which command takes it or what makes it.

A format that begins in several ways has a row for each.
"""

from __future__ import annotations

from emu.interchange.recognise import COMPARE, TOPOLOGY, Format

_RATES = (
    "state its rates as nic: of cluster.machines, or as topology: {file: ..., nic: "
)
_STATE = "state cluster.machines, links and routes (docs/scenarios.md)"
_INFRAGRAPH = "infragraph (pip install infragraph) translates it to an infrastructure"

SIMGRID = Format(
    "a SimGrid platform",
    (TOPOLOGY,),
    left_out="speeds and cores of hosts, disks, loopbacks, properties, models' factors",
    pattern=r"<platform\b",
)
GPU_MATRIX = Format(
    "a matrix of nvidia-smi topo -m",
    (TOPOLOGY,),
    left_out="affinities, NICs of a single box, which PCIe switches are between",
    pattern=r"^\s*GPU\d+\s+(GPU\d|NIC\d|mlx\w|CPU Affinity)",
)
SLURM = Format(
    "a topology.conf of Slurm",
    (TOPOLOGY,),
    left_out="LinkSpeed; its rates are answers: topology: {file, nic, uplink}",
    pattern=r"^\s*(?i:SwitchName)\s*=",
)
ASTRA = Format(
    "a network.yml of ASTRA-sim",
    (TOPOLOGY,),
    left_out="what else it has: dimension types, memory",
    keys=frozenset({"topology", "npus_count"}),
)
INFRAGRAPH = Format(
    "an infrastructure of InfraGraph",
    (TOPOLOGY,),
    left_out="components but NPUs, descriptions",
    keys=frozenset({"devices", "instances"}),
)
_OF_INFRAGRAPH = (
    {"infrastructure"},
    {"components", "edges"},
    {"components", "connections"},
    {"components", "links"},
    {"devices", "connections"},
    {"devices", "edges"},
)
#: In the order in which they are tried.
TOPOLOGY_FORMATS = (
    SIMGRID,
    Format(
        "a topology of NCCL (XML)",
        conversion=_INFRAGRAPH,
        pattern=r"<system\b[^>]*>\s*<cpu\b",
    ),
    Format(
        "a topology of hwloc (lstopo)",
        conversion=_INFRAGRAPH,
        pattern=r"<topology\b|<!DOCTYPE topology|^Machine \(|^Machine L#",
    ),
    Format(
        "a matrix of rocm-smi --showtopo",
        conversion="it states weights and hops, no rates: state cluster.machines, "
        "links and routes (docs/scenarios.md)",
        pattern=r"ROCm System Management|between two GPUs",
    ),
    GPU_MATRIX,
    SLURM,
    ASTRA,
    INFRAGRAPH,
    *(
        Format(
            INFRAGRAPH.name,
            (TOPOLOGY,),
            left_out=INFRAGRAPH.left_out,
            keys=frozenset(keys),
        )
        for keys in _OF_INFRAGRAPH
    ),
    *(
        Format(
            INFRAGRAPH.name,
            (TOPOLOGY,),
            left_out=INFRAGRAPH.left_out,
            keys=frozenset({key}),
            inner=frozenset({"components"}),
        )
        for key in ("devices", "device")
    ),
    Format(
        "a network of ASTRA-sim 1",
        conversion="write a network.yml of ASTRA-sim 2: topology, npus_count, "
        "bandwidth, latency",
        keys=frozenset({"topology-name"}),
    ),
    Format(
        "a topology.yaml of Slurm",
        conversion="scontrol show topology prints its switches: write them as "
        "SwitchName=s0 Nodes=n[0-3]",
        pattern=r"^\s*-\s*topology:|^\s+(tree|block):\s*$",
        inner=frozenset({"switches"}),
    ),
    Format(
        "the output of ibstat",
        conversion=f"{_RATES}400 Gbit/s}} where its Rate: is 400",
        pattern=r"^CA '\w+'\s*$",
    ),
    Format(
        "the output of ibnetdiscover",
        conversion=_STATE,
        pattern=r"^(vendid|devid|sysimgguid|switchguid)=0x",
    ),
    Format(
        "the output of ibv_devinfo",
        conversion=f"{_RATES}400 Gbit/s}}",
        pattern=r"^hca_id:\s",
    ),
    Format(
        "a topology file of htsim",
        conversion=_STATE,
        pattern=r"^(?i:Nodes) \d+\s*\n(.*\n){0,4}?(?i:Tiers|Podsize)\s+\d+",
    ),
    Format(
        "a connection matrix of htsim",
        conversion="write its lines as flows of a custom job: from, to, volume",
        pattern=r"^(?i:Nodes) \d+\s*\n\s*(?i:Connections) \d+",
    ),
    Format(
        "a manifest of Kubernetes",
        conversion=f"it states no rates: {_STATE}",
        keys=frozenset({"apiVersion", "kind"}),
    ),
    Format(
        "a file of Docker Compose",
        conversion=f"it states no rates: {_STATE}",
        keys=frozenset({"services"}),
        inner=frozenset({"image"}),
    ),
    Format(
        "a network of BookSim",
        conversion=_STATE,
        pattern=r"^\s*topology\s*=\s*\w+\s*;|^router \d+ (node|router) \d+",
    ),
    Format(
        "measured seconds of iterations, or bytes of links",
        (COMPARE,),
        pattern=r"\A(iteration,seconds|link,bytes)\s*$",
    ),
)
