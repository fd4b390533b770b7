"""Formats of graphs: how each begins, and what makes of it what ``emu import`` takes.

The readers of `emu.graph_data` decide of the files themselves; these rows name them.
"""

from __future__ import annotations

from emu.interchange.recognise import IMPORT, Format

_PANDAS = (
    "python -c \"import pandas; pandas.read_{}('FILE').to_csv('edges.csv', "
    'index=False)", then emu import edges.csv'
)
_NETWORKX = (
    "python -c \"import networkx as n; n.write_edgelist(n.{}, 'edges.txt', data=False, "
    'delimiter=chr(9))", then emu import edges.txt'
)
_IGRAPH = (
    "python -c \"import igraph as i; i.Graph.Read('FILE', format='{}').write("
    "'edges.txt', format='edgelist')\", then emu import edges.txt --no-header"
)
_AWK = "awk '$1==\"{}\" {{print $2, $3}}' FILE > edges.txt, then emu import edges.txt"
_ARRAYS = "other arrays, by name"

#: Of JSON, which stand before those of workloads.
JSON_GRAPHS = (
    Format(
        "a node-link graph of networkx (JSON)",
        conversion=_NETWORKX.format(
            "node_link_graph(__import__('json').load(open('FILE')))"
        ),
        keys=frozenset({"nodes", "links"}),
    ),
    Format(
        "a description of partitions of DistDGL",
        (IMPORT,),
        left_out="arrays of vertices and edges but features, labels and masks",
        keys=frozenset({"graph_name", "num_parts"}),
    ),
)
#: In the order in which they are tried.
GRAPH_FORMATS = (
    Format(
        "MatrixMarket",
        (IMPORT,),
        left_out="values",
        pattern=r"\A%%MatrixMarket",
    ),
    Format(
        "an edge list of KONECT",
        (IMPORT,),
        left_out="weights and times",
        pattern=r"\A%\s*(sym|asym|bip)\b",
    ),
    Format(
        "an edge list of SNAP",
        (IMPORT,),
        left_out="comments",
        pattern=r"\A(#.*\n)*#.*(FromNodeId|Nodes:|irected graph)",
    ),
    Format(
        "arrays of NumPy (npz)",
        (IMPORT,),
        left_out=_ARRAYS,
        magic=b"PK",
        suffixes=(".npz",),
    ),
    Format("an array of NumPy (npy)", (IMPORT,), magic=b"\x93NUMPY"),
    Format(
        "a Data or HeteroData of PyTorch Geometric",
        (IMPORT,),
        left_out=_ARRAYS,
        magic=b"PK",
        suffixes=(".pt", ".pth"),
    ),
    Format(
        "graphs of dgl",
        (IMPORT,),
        left_out=_ARRAYS,
        magic=(0xDD2E4FF046B4A13F).to_bytes(8, "little"),
    ),
    Format(
        "a data set of OGB",
        (IMPORT,),
        left_out="other tables, by name",
        holds="raw/*",
    ),
    Format(
        "partitions of DistDGL",
        (IMPORT,),
        holds="part*/graph.dgl",
    ),
    Format(
        "a data set of GraphSAINT",
        conversion="emu import FILE/adj_full.npz -o NAME --features FILE/feats.npy "
        "--labels FILE/class_map.json --splits FILE/role.json",
        holds="adj_full.npz",
    ),
    Format("a table of Parquet", conversion=_PANDAS.format("parquet"), magic=b"PAR1"),
    Format("a table of Arrow", conversion=_PANDAS.format("feather"), magic=b"ARROW1"),
    Format("a table of ORC", conversion=_PANDAS.format("orc"), magic=b"ORC"),
    Format(
        "HDF5",
        conversion="python -c \"import h5py, numpy; f = h5py.File('FILE'); "
        "numpy.savez('graph.npz', **{k: f[k][()] for k in f})\", then emu import "
        "graph.npz",
        magic=b"\x89HDF",
    ),
    Format(
        "an array of MATLAB",
        conversion="python -c \"import scipy.io as s; s.mmwrite('graph.mtx', "
        "s.loadmat('FILE')['A'])\", then emu import graph.mtx",
        magic=b"MATLAB",
    ),
    Format(
        "a database of SQLite",
        conversion="sqlite3 -csv -header FILE 'select ...' > edges.csv, then emu "
        "import edges.csv; of Nsight Systems trace by torch.profiler instead",
        magic=b"SQLite format 3",
    ),
    Format(
        "a pickle, which is never loaded",
        conversion="where you trust it, save its arrays by np.savez (edge_index, x, y, "
        "train_idx)",
        magic=b"\x80",
    ),
    Format(
        "GraphML",
        conversion=_NETWORKX.format("read_graphml('FILE')"),
        pattern=r"<graphml\b",
    ),
    Format(
        "GEXF", conversion=_NETWORKX.format("read_gexf('FILE')"), pattern=r"<gexf\b"
    ),
    Format(
        "GML",
        conversion=_NETWORKX.format("read_gml('FILE', label='id')"),
        pattern=r"\A(#.*\n|(?i:creator|version|comment).*\n)*\s*graph\s*\[",
    ),
    Format(
        "Pajek",
        conversion=_NETWORKX.format("read_pajek('FILE')"),
        pattern=r"\A(%.*\n)*\*(?i:network|vertices|arcs|edges)",
    ),
    Format(
        "UCINET DL",
        conversion=_IGRAPH.format("dl"),
        pattern=r"\A(?i:dl)\s+(?i:n|nr|nc|format)\b",
    ),
    Format(
        "GDF of GUESS",
        conversion="its part below edgedef> is a table: emu import that part",
        pattern=r"\A(?i:nodedef)>",
    ),
    Format(
        "DIMACS of roads or flows",
        conversion=_AWK.format("a"),
        pattern=r"^p\s+(sp|max|min)\s+\d",
    ),
    Format(
        "DIMACS of colours",
        conversion=_AWK.format("e"),
        pattern=r"^p\s+(edge|col|tw)\s+\d",
    ),
    Format(
        "TGF",
        conversion="sed '1,/^#/d' FILE > edges.txt, then emu import edges.txt",
        pattern=r"\A(?!#)(.*\n){1,10}?#[ \t]*$",
    ),
    Format(
        "DOT of Graphviz",
        conversion=_NETWORKX.format("nx_pydot.read_dot('FILE')"),
        pattern=r"\A\s*(strict\s+)?(di)?graph\b[^\[\n]*\{",
    ),
    Format(
        "graph6 or sparse6",
        conversion=_NETWORKX.format("read_graph6('FILE')"),
        pattern=r"\A>>(graph|sparse|di)",
    ),
    Format(
        "LGL",
        (IMPORT,),
        left_out="weights",
        pattern=r"\A\s*# *\S+\s*\n\s*[^#\s]\S*( [\d.]+)?\s*\n",
    ),
    Format(
        "lists of neighbours (Friendster)",
        (IMPORT,),
        pattern=r"\A\w+:(\w+(,\w+)*)?\s*\n\w+:(\w+(,\w+)*)?\s*\n",
    ),
    Format(
        "a table of LDBC's social network",
        (IMPORT,),
        "with --columns 1,2",
        pattern=r"\A[^\n]*\b(Person|Forum|Post|Comment|Tag|Place|Organisation)\.id\b",
    ),
    Format(
        "a table of relations for Neo4j",
        (IMPORT,),
        "with --columns FROM,TO",
        pattern=r"\A[^\n]*:START_ID",
    ),
    Format(
        "triples of RDF",
        conversion="awk '{print $1, $3}' FILE > edges.txt, then emu import edges.txt",
        pattern=r"\A(@prefix|<[^>\n]+>\s+<[^>\n]+>)",
    ),
)
#: A table's first lines do not tell edges from values of vertices.
_BESIDE = "or beside a graph's file as its --features, --labels or --splits"
#: Known by little more than their names: nothing is refused for having one of these.
COMMON_FORMATS = (
    Format("a graph of METIS", (IMPORT,), suffixes=(".metis", ".graph")),
    Format(
        "a table of edges",
        (IMPORT,),
        _BESIDE,
        left_out="further columns",
        suffixes=(".csv", ".tsv", ".edges", ".edgelist", ".el", ".tab"),
    ),
    Format(
        "a table of edges",
        (IMPORT,),
        _BESIDE,
        left_out="further columns",
        pattern=r"\A([#%].*\n)*\s*-?\d+[ \t,;|]+-?\d+",
    ),
    Format(
        "an archive of zip",
        conversion="unpack it; what emu share wrote, emu audit takes: emu audit FILE",
        magic=b"PK",
    ),
)
_TABLE = "write a table (csv); features and labels may be npy, npz or json"
#: What no table is, known by little more than its first letter.
OTHER_FORMATS = (
    Format("packed by bzip2", conversion="unpack it: bunzip2 FILE", magic=b"BZh"),
    Format("packed by xz", conversion="unpack it: unxz FILE", magic=b"\xfd7zXZ"),
    Format("packed by zstd", conversion="unpack it: unzstd FILE", magic=b"(\xb5/\xfd"),
    Format("a packed archive (zip)", conversion="unpack it first", magic=b"PK\x03\x04"),
    Format("XML", conversion=_TABLE, pattern=r"\A\s*<"),
    Format("JSON", conversion=_TABLE, pattern=r"\A\s*[{\[]"),
    Format(
        "a tar or another binary file",
        conversion=f"unpack an archive first; else {_TABLE}",
        pattern="\0",
    ),
)
