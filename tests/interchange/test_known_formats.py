"""Files of every known format are named, and commands refuse each other's."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli.app import app
from emu.errors import DataError
from emu.graph_data.readers.neighbour_lists import find_layout
from emu.graph_data.readers.text_table import TableOptions
from emu.interchange.known_formats import (
    COMMON_FORMATS,
    FORMATS,
    OTHER_FORMATS,
    describe,
)
from tests.interchange.platforms import BACKBONE
from tests.interchange.test_boxes import TREE, matrix
from tests.report.drawn_run import write_run

#: Name of the file, beginning, name of its format.
SAMPLES: list[tuple[str, str | bytes, str]] = [
    ("p.xml", BACKBONE, "a SimGrid platform"),
    ("n.xml", '<system version="1">\n <cpu numaid="0">', "a topology of NCCL (XML)"),
    (
        "l.xml",
        '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology>',
        "a topology of hwloc (lstopo)",
    ),
    (
        "box.txt",
        matrix(8, "NV18", above="NVIDIA H100"),
        "a matrix of nvidia-smi topo -m",
    ),
    ("topology.conf", TREE, "a topology.conf of Slurm"),
    (
        "network.yml",
        "topology: [ Ring ]\nnpus_count: [ 8 ]\n",
        "a network.yml of ASTRA-sim",
    ),
    ("a.json", '{"topology-name": "Hierarchical"}', "a network of ASTRA-sim 1"),
    (
        "t.yaml",
        "- topology: t1\n  tree:\n    switches:\n      - switch: s0\n",
        "a topology.yaml of Slurm",
    ),
    ("i.yaml", "devices: []\ninstances: []\n", "an infrastructure of InfraGraph"),
    (
        "j.json",
        '{"infrastructure": {"devices": []}}',
        "an infrastructure of InfraGraph",
    ),
    (
        "d.yaml",
        "components:\n- choice: cpu\nedges: []\nname: server\n",
        "an infrastructure of InfraGraph",
    ),
    (
        "ib.txt",
        "CA 'mlx5_0'\n\tCA type: MT4129\n\t\tRate: 400\n",
        "the output of ibstat",
    ),
    ("net.txt", "#\nvendid=0x2c9\n", "the output of ibnetdiscover"),
    (
        "dev.txt",
        "hca_id: mlx5_0\n transport: InfiniBand\n",
        "the output of ibv_devinfo",
    ),
    ("f.topo", "Nodes 432\nTiers 3\nPodsize 36\n", "a topology file of htsim"),
    (
        "f.cm",
        "Nodes 8\nConnections 2\n0->1 id 1 start 0 size 8\n",
        "a connection matrix of htsim",
    ),
    (
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
        "a manifest of Kubernetes",
    ),
    ("c.yaml", "services:\n  a:\n    image: x\n", "a file of Docker Compose"),
    ("b.cfg", "topology = mesh;\nk = 8;\n", "a network of BookSim"),
    (
        "m.csv",
        "iteration,seconds\n0,1.5\n",
        "measured seconds of iterations, or bytes of links",
    ),
    (
        "k.json",
        '{"schemaVersion": 1, "distributedInfo": {}, "traceEvents": []}',
        "a trace of torch.profiler (Kineto)",
    ),
    (
        "et.json",
        '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}',
        "an execution trace of PyTorch that was not converted",
    ),
    (
        "w.json",
        '{"name": "w", "schemaVersion": "1.4", "workflow": {}}',
        "a workflow of WfCommons",
    ),
    ("g.txt", "num_ranks 2\nrank 0 {\n}\n", "a GOAL schedule (LogGOPSim, ATLAHS)"),
    (
        "fb.txt",
        "150 2\n1 0 1 3 1 4:1.0\n2 5 1 3 1 4:1.0\n",
        "a trace of coflow-benchmark (Facebook's)",
    ),
    ("s.yaml", "cluster: {machines: []}\njob: {}\n", "a scenario of emu"),
    (
        "nl.json",
        '{"directed": false, "nodes": [{"id": 1}], "links": []}',
        "a node-link graph (JSON)",
    ),
    (
        "part.json",
        '{"graph_name": "g", "num_parts": 2, "part-0": {}}',
        "a description of partitions of DistDGL",
    ),
    ("a.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 1\n", "MatrixMarket"),
    ("out.x", "% sym unweighted\n1 2\n", "an edge list of KONECT"),
    (
        "ca.txt",
        "# Nodes: 3 Edges: 2\n# FromNodeId\tToNodeId\n1\t2\n",
        "an edge list of SNAP",
    ),
    ("x.npz", b"PK\x03\x04", "arrays of NumPy (npz)"),
    ("x.npy", b"\x93NUMPY\x01", "an array of NumPy (npy)"),
    ("x.pt", b"PK\x03\x04", "a Data or HeteroData of PyTorch Geometric"),
    ("x.parquet", b"PAR1\x15", "a table of Parquet"),
    ("x.h5", b"\x89HDF\r\n", "HDF5"),
    ("x.mat", b"MATLAB 5.0 MAT-file", "an array of MATLAB"),
    ("x.sqlite", b"SQLite format 3\x00", "a database of SQLite"),
    ("x.pkl", b"\x80\x04\x95", "a pickle, which is never loaded"),
    ("x.graphml", '<?xml version="1.0"?>\n<graphml xmlns="x">', "GraphML"),
    ("x.gexf", "<gexf>", "GEXF"),
    ("x.gml", 'Creator "y"\ngraph\n[\n  directed 1\n', "GML"),
    ("x.net", "*Network x\n*Vertices 3\n", "Pajek"),
    ("x.dl", "dl n=4 format=edgelist1\nlabels embedded\n", "UCINET DL"),
    ("x.gdf", "nodedef>name VARCHAR\n", "GDF of GUESS"),
    ("x.gr", "c roads\np sp 3 2\na 1 2 4\n", "DIMACS of roads or flows"),
    ("x.col", "c colours\np edge 3 2\ne 1 2\n", "DIMACS of colours"),
    ("x.dot", "digraph g {\n a -> b\n", "DOT of Graphviz"),
    ("x.g6", ">>graph6<<C~", "graph6 or sparse6"),
    ("f.txt", "101:102,103\n102:\n103:101\n", "lists of neighbours (Friendster)"),
    ("x.lgl", "# a\nb 1.0\nc 2.0\n# b\n", "LGL"),
    ("snap.txt", "# snap\n1 2\n2 3\n", "a table of edges"),
    (
        "knows.csv",
        "Person.id,Person.id,creationDate\n1,2,3\n",
        "a table of LDBC's social network",
    ),
    ("r.csv", ":START_ID,:END_ID,:TYPE\n1,2,KNOWS\n", "a table of relations for Neo4j"),
    ("b.adj", "AdjacencyGraph\n3\n2\n0\n1\n2\n1\n2\n", "an adjacency graph of Ligra"),
    ("block.conf", "BlockName=b0 Nodes=n[0-3]\n", "a topology.conf of Slurm's blocks"),
    (
        "events.json",
        '[{"name": "a", "ph": "X", "ts": 1, "dur": 2, "pid": 0, "tid": 0}]',
        "a trace for chrome://tracing",
    ),
    ("x.nt", "<http://a> <http://b> <http://c> .\n", "triples of RDF"),
    ("y.ttl", "<urn:a>\n  <urn:b> <urn:c> .\n", "triples of RDF"),
    ("smi.xml", '<?xml version="1.0" ?>\n<nvidia_smi_log>\n<gpu/>', "XML"),
    (
        "graph.xml",
        '<graphs version="1">\n  <graph id="0" pattern="4" nchannels="12">',
        "a dump of NCCL's graphs (XML)",
    ),
    ("y.graphml", '<?xml version="1.0"?>\n<g:graphml xmlns:g="x">', "GraphML"),
    ("y.dot", '/* a */\n// b\nDigraph "a b"\n{ a -> b }\n', "DOT of Graphviz"),
    (
        "nsys.json",
        '{"data":["[Unknown]","main"]}\n{"Type":48,"CudaEvent":{"startNs":"1"}}\n',
        "an Nsight Systems export",
    ),
    (
        "nsys.csv",
        "Start (ns),Duration (ns),CorrId,Name\n1,2,3,volta_sgemm\n",
        "an Nsight Systems export",
    ),
    ("e.csv", "source,target\n1,2\n", "a table of edges"),
    ("tij.dat", "20 1 2\n20 1 3\n40 2 3\n", "a table of edges"),
    ("words.txt", "from_user;to_user;since\nu1;u2;2020\n", "a table of edges"),
    ("x.zip", b"PK\x03\x04", "an archive of zip"),
]


@pytest.mark.parametrize(("name", "content", "expected"), SAMPLES)
def test_a_file_is_named(
    tmp_path: Path, name: str, content: str | bytes, expected: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(data)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
    found = describe(tmp_path / name)

    assert found["format"] == expected
    assert found["way"]
    assert describe(tmp_path / f"{name}.gz")["format"] == expected


@pytest.mark.timeout(20)  # it took minutes for what no row of the table is
@pytest.mark.parametrize(
    "text",
    [
        60 * "/* a */\n" + "int b;\n",
        200_000 * "\n",
        "a" + 200_000 * " ",
        "<" + 200_000 * ":",
        25_000 * "<graphs ",
        25_000 * "<system ",
    ],
)
def test_a_text_that_repeats_itself_is_looked_at_once(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "main.c"
    path.write_text(text)

    # What begins by < may be some XML.
    assert describe(path)["format"] == ("XML" if text[0] == "<" else "")


#: Texts of marks and rows, and whether they are LGL.
BLOCKS = [
    ("# a\nb 1.0\nc -2e-3\n# b\n", True),
    ("# a\n# b\nc\r\n\nd .5\n#c\nd\n", True),
    ("# sp|P1\nsp|P2 0.5\nsp|P3 0.25\n# sp|P2\nsp|P3 1.0\n", True),
    ("# TP53\nIL2,IL3 0.5\n# IL2,IL3\n", True),
    ("# TP53\nIL2,IL3 0.5\n# MDM2\nTP53 0.5\n", True),
    ("#nodes:4\n1,2\n2,3\n# end\n3,4\n", False),
    ("#nodes:4\n1; 2\n2; 3\n# end\n3; 4\n", False),
    ("#nodes:4\nal bob\nbob cy\n# end\ncy al\n", False),
    ("#nodes:4\n#edges:3\n1 2\n2 3\n3 4\n", False),
    ("# a b\nc\n# d\n", False),
    ("#nodes:4\n0 1\n\n1 2\n#half\n2 3\n", None),
    ("#nodes:4\n0 1\n1 2\n#half\n2 3", None),
    ("#nodes:4\n0 1\n1 2\n# 3\n2 3\n", True),
    ("#nodes:4\n0 1\n1 2\n#half\n2 3.0\n", True),
    ("#a\n1 2\n#b\n3 0.5", True),
    ("# a\n1 2\n# b\n3", True),
]


@pytest.mark.parametrize(("text", "is_blocks"), BLOCKS)
def test_what_lgl_is_said_to_be_is_how_it_is_read(
    tmp_path: Path, text: str, *, is_blocks: bool | None
) -> None:
    """None: rows may be edges as well, which is asked and not said to be LGL."""
    path = tmp_path / "graph.txt"
    path.write_bytes(text.encode())

    format_name = describe(path)["format"]
    if is_blocks is None:
        assert format_name == "LGL, or edges below comments"
        with pytest.raises(DataError, match="may be read as edges below comments"):
            find_layout(path, TableOptions())
    else:
        assert (format_name == "LGL") == is_blocks
        assert (find_layout(path, TableOptions()) == "blocks") == is_blocks


def test_a_row_that_the_sample_cuts_is_no_row_of_another_form(tmp_path: Path) -> None:
    """The end of a packed piece is none of the file."""
    begin = b"#nodes:4\n0 1\n#half\n"
    pieces = [b"2", b" 3\n"]
    packed_pieces = map(gzip.compress, [begin + pieces[0], pieces[1]])
    contents = (begin + 70_000 * b"1 2\n", b"".join(packed_pieces))
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content)
        assert describe(path)["format"] == "LGL, or edges below comments"


TRIANGLE = [("a", "b"), ("b", "c"), ("c", "a")]
NODES = [{"id": name} for name in "abc"]
EDGES = [{"source": source, "target": target} for source, target in TRIANGLE]
ELEMENTS = {
    "nodes": [{"data": node} for node in NODES],
    "edges": [{"data": {"id": "e", **edge}} for edge in EDGES],
}

#: Name of the format, and a triangle in it: networkx writes ``links`` before 3.4, and
#: ``edges`` since.
TRIANGLES: list[tuple[str, str]] = [
    ("a node-link graph (JSON)", json.dumps({"nodes": NODES, "links": EDGES})),
    ("a node-link graph (JSON)", json.dumps({"edges": EDGES, "nodes": NODES})),
    (
        "a node-link graph (JSON)",  # whose nodes are longer than what is looked at
        json.dumps(
            {
                "directed": False,
                "multigraph": False,
                "nodes": [{"id": n, "text": "x" * 300} for n in range(1000)],
                "edges": EDGES,
            }
        ),
    ),
    ("a graph of Cytoscape (JSON)", json.dumps({"data": {}, "elements": ELEMENTS})),
    (
        "a graph in the JSON Graph Format",
        json.dumps({"graph": {"nodes": {name: {} for name in "abc"}, "edges": EDGES}}),
    ),
    ("an adjacency graph of Ligra", "AdjacencyGraph\n3\n3\n0\n1\n2\n1\n2\n0\n"),
    (
        "an adjacency graph of Ligra",
        "WeightedAdjacencyGraph\n3\n3\n0\n2\n3\n1\n2\n2\n9\n8\n7\n",
    ),
]


@pytest.mark.parametrize(("name", "content"), TRIANGLES)
def test_a_conversion_keeps_all_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.json").write_text(content)
    description = describe(Path("g.json"))

    assert description["format"] == name
    conversion, rest = description["way"].split(", then ")
    assert rest == "emu import edges.txt"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run(["sh", "-c", conversion], check=True)
    lines = Path("edges.txt").read_text().splitlines()
    pairs = [line.split("\t") for line in lines]
    if name.endswith("Ligra"):
        pairs = [["abc"[int(end)] for end in pair] for pair in pairs]
    ends = {frozenset(pair) for pair in pairs}
    assert len(pairs) == 3
    assert ends == {frozenset(pair) for pair in TRIANGLE}


@pytest.mark.parametrize("words", ["what FILE", "import FILE -o g", "simulate FILE"])
def test_files_of_a_run_are_named_with_the_command_that_takes_it(
    tmp_path: Path, words: str
) -> None:
    """One line each, and none of them is called a table to be written as csv."""
    run, _ = write_run(tmp_path)
    manifest = {"version": 1, "started": "2026-11-01", "scenario": {"name": "a"}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    names = {
        "result.json": "the result of a run",
        "manifest.json": "the manifest of a run",
        "problem.json": "the problem of a run",
        "simulated.json": "the simulation of a run",
    }
    for name, format_name in names.items():
        arguments = words.replace("FILE", str(run / name)).split()
        done = CliRunner().invoke(app, arguments)
        assert f"{run / name}: " in done.output
        assert f"{format_name} of emu" in done.output
        assert f"emu explain {run}, or emu report" in done.output
        assert "csv" not in done.output


def test_a_run_directory_and_a_result_of_a_simulation_are_named(tmp_path: Path) -> None:
    run, _ = write_run(tmp_path)
    assert describe(run)["format"] == "a run directory of emu"
    assert describe(run)["commands"] == [f"emu explain {run}"]

    result = tmp_path / "s.json"
    CliRunner().invoke(app, ["simulate", "golden", "--json", str(result)])
    assert describe(result)["way"] == f"emu audit {result}"


@pytest.mark.parametrize("split", ["split/time", "split/time/paper"])
def test_splits_of_ogb_without_their_graph_are_named(
    tmp_path: Path, split: str
) -> None:
    """Nothing said that raw/ was missing."""
    (tmp_path / split).mkdir(parents=True)
    (tmp_path / split / "train.csv.gz").write_bytes(b"")
    assert "raw/ beside split/" in describe(tmp_path)["way"]
    done = CliRunner().invoke(app, ["import", str(tmp_path), "-o", "g"])
    assert "raw/ beside split/" in done.stderr
    assert done.stderr.count("\n") == 1

    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "edge.csv.gz").write_bytes(b"")
    assert describe(tmp_path)["format"] == "a data set of OGB"


def test_most_formats_have_a_sample() -> None:
    rows = {row.name for row in (*FORMATS, *COMMON_FORMATS, *OTHER_FORMATS)}
    named = {name for _, _, name in SAMPLES}

    assert named <= rows
    assert len(named) >= 50


@pytest.mark.parametrize(
    "content",
    ["", "hello\n", "a,b", "A job states two keys.\n\ncluster: {}\njob: {}\n"],
)
def test_what_is_of_no_format_is_not_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "x").write_text(content)
    assert describe(tmp_path / "x")["format"] == ""


@pytest.mark.parametrize(
    ("words", "file", "way"),
    [
        ("import FILE -o g", "k.json", "torch.profiler (Kineto): emu import-workload"),
        ("import FILE -o g", "p.xml", "a SimGrid platform: cluster: {topology: "),
        ("import FILE -o g", "et.json", "not converted: chakra_trace_link --rank 0"),
        ("import-workload FILE -o w.json", "x.net", "is Pajek: python -c"),
        (
            "import-workload FILE -o w.json",
            "topology.conf",
            "Slurm: cluster: {topology",
        ),
        ("import-workload FILE -o w.json", "a.mtx", "is MatrixMarket: emu import "),
        ("profile golden out.json --from FILE", "w.json", "emu import-workload"),
        ("simulate own.yaml", "k.json", "emu import-workload"),
        ("simulate FILE", "k.json", "torch.profiler (Kineto): emu import-workload"),
        ("simulate FILE", "x.npz", "is arrays of NumPy (npz): emu import x.npz"),
        ("simulate FILE", "p.xml", "is a SimGrid platform: cluster: {topology: "),
        ("explain FILE", "e.csv", "is a table of edges: emu import e.csv"),
        ("compare FILE --systems all", "x.net", "is Pajek: python -c"),
    ],
)
def test_a_command_names_the_format_and_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, file: str, way: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {name: content for name, content, _ in SAMPLES}[file]
    data = content if isinstance(content, bytes) else content.encode()
    Path(file).write_bytes(data)
    Path("own.yaml").write_text(f"cluster: {{topology: {file}}}\njob: {{}}\n")
    arguments = words.replace("FILE", file).split()
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code in (2, 3)
    assert way in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_said_for_machines_too(tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text(matrix(2, "NV4"))
    done = CliRunner().invoke(app, ["what", str(tmp_path / "box.txt"), "--json", "-"])
    (row,) = json.loads(done.stdout)

    assert row["format"] == "a matrix of nvidia-smi topo -m"
    assert row["commands"] == [
        f"cluster: {{topology: {tmp_path}/box.txt}} of a scenario"
    ]


def test_a_file_that_is_missing_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("source,target\n1,2\n")
    files = [tmp_path / name for name in ("none", "e.csv", "neither")]
    done = CliRunner().invoke(app, ["what", *map(str, files)])

    assert done.exit_code == 3
    assert "e.csv: a table of edges" in done.stdout
    for name in ("none", "neither"):
        assert f"{name}: No such file or directory" in done.stderr
