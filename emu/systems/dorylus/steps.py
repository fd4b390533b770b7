"""Kinds of task of a Dorylus job, and those of an interval in order (specs, 5a)."""

from __future__ import annotations

from dataclasses import dataclass

#: Kinds of task that a lambda runs.
EDGE_TENSORS = ("edge_apply", "edge_apply_back")
TENSORS = ("apply", "apply_back", *EDGE_TENSORS)
#: Kinds of task that send it what it pulls.
CALLS = ("call", "recall")
#: Kinds of task whose program of ``nodes`` is called as they are.
_SAME = (
    "apply", "apply_back", "begin", "gather", "scatter", "call", "answer", "recall",
    "held", "late", "ghosts", "stash", "gradient_sum", "weight_update",
)  # fmt: skip
#: The same in a GAT.
_SAME_OF_ATTENTION = (
    *TENSORS, "launch", "call", "gather", "gather_back", "scatter_back",
)  # fmt: skip


def _program(module: str, name: str) -> str:
    return f"emu_nodes.dorylus.{module}:{name.title().replace('_', '')}"


#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    **{kind: _program("programs", kind) for kind in _SAME},
    # A launch only takes time; a stage back runs the program of its stage forward.
    "launch": _program("programs", "nothing"),
    "scatter_back": _program("programs", "scatter"),
    "gather_back": _program("programs", "gather"),
    **{f"attention {k}": _program("attention", k) for k in _SAME_OF_ATTENTION},
}
#: Content of flows by the kinds of their ends.
CARRIES = (
    {
        (sender, to): content
        for sender in CALLS
        for to, content in {
            "apply": "gathered rows",
            "apply_back": "gathered rows and gradients",
            "edge_apply": "rows of edges",
            "edge_apply_back": "rows of edges and gradients",
        }.items()
    }
    | {("stash", to): "stashed weights" for to in TENSORS}
    | {
        ("held", "late"): "answers that are dropped",
        ("edge_apply", "answer"): "attention",
        ("edge_apply_back", "answer"): "gradients of edges",
        ("apply", "answer"): "activations",
        ("apply_back", "answer"): "gradients of rows",
        ("apply", "stash"): "versions of weights",
        ("scatter", "ghosts"): "ghost rows",
        ("scatter_back", "ghosts"): "gradients of ghosts",
        ("weight_update", "apply"): "weights",
    }
    | {
        (source, to): "gradients"
        for source in ("apply", "apply_back", "edge_apply_back", "gradient_sum")
        for to in ("gradient_sum", "weight_update")
    }
)

#: Pools of a server: its vCPUs, and its quota of lambdas.
THREADS = "threads"
LAMBDAS = "lambdas"
#: Kinds of task of parameter servers.
PARAMETER_KINDS = ("stash", "gradient_sum", "weight_update")


@dataclass(frozen=True)
class Step:
    """One task of an interval in an epoch, without its number."""

    name: str
    kind: str
    layer: int
    """Layer whose weights it applies, or whose gather it is or feeds."""

    @property
    def tensor(self) -> bool:
        """True where a lambda runs it."""
        return self.kind in TENSORS

    @property
    def receiver(self) -> str:
        """Name of the tasks that receive what a scatter sends, ``in`` or ``din``."""
        return self.name.replace("sc", "in")

    @property
    def launches_early(self) -> bool:
        """True where its lambda is launched when the graph task before it starts.

        One of edges has its slot once it has its rows: held while other intervals have
        none, it would keep them from sending those.
        """
        return self.tensor and self.kind != "edge_apply"

    @property
    def of_edges(self) -> bool:
        """True where it computes on the edges of its interval."""
        return self.kind in EDGE_TENSORS

    def needs_weights(self, *, rematerialize: bool) -> bool:
        """Return True where it needs the forward pass's weights: dAV 0 does not."""
        if self.kind == "apply_back":
            return self.layer > 0 or rematerialize
        return self.of_edges


def convolution_steps(layers: int, *, fuse: bool) -> list[Step]:
    """Return the steps of a GCN; with ``fuse`` the last apply goes straight back."""

    def mark(layer: int) -> str:
        # Of two layers nothing: the second alone scatters.
        return "" if layers == 2 else str(layer)

    last = layers - 1
    steps: list[Step] = []
    for layer in range(layers):
        # Layer 0 gathers features, which ghosts have from the start: nothing is
        # scattered.
        if layer:
            steps.append(Step(f"sc{mark(layer)}", "scatter", layer))
        steps.append(Step(f"ga{layer}", "gather", layer))
        steps.append(Step(f"av{layer}", "apply", layer))

    # The loss and the last layer's backward pass need no other interval.
    if not fuse:
        steps.append(Step(f"dav{last}", "apply_back", last))
    # Features need no gradient, so that nothing is gathered back below layer 1.
    for layer in reversed(range(1, layers)):
        below = layer - 1
        steps.append(Step(f"dsc{mark(layer)}", "scatter_back", layer))
        steps.append(Step(f"dga{mark(layer)}", "gather_back", layer))
        steps.append(Step(f"dav{mark(below)}", "apply_back", below))
    return steps


def attention_steps(layers: int) -> list[Step]:
    """Return the steps of a GAT: AV first, then SC, AE, GA, as in the released code.

    Backwards the edges come first: their gradients go to the sources (dSC), which add
    them up (dGA).
    """
    steps = []
    for layer in range(layers):
        steps += [
            Step(f"av{layer}", "apply", layer),
            Step(f"sc{layer}", "scatter", layer),
            Step(f"ae{layer}", "edge_apply", layer),
            Step(f"ga{layer}", "gather", layer),
        ]
    for layer in reversed(range(layers)):
        steps += [
            Step(f"dae{layer}", "edge_apply_back", layer),
            Step(f"dsc{layer}", "scatter_back", layer),
            Step(f"dga{layer}", "gather_back", layer),
            Step(f"dav{layer}", "apply_back", layer),
        ]
    return steps
