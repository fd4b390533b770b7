"""Kinds of task of a Dorylus job: their programs, and what flows between them."""

from __future__ import annotations

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    kind: f"emu_nodes.dorylus.programs:{program}"
    for kind, program in {
        "begin": "Begin",
        "launch": "Nothing",
        "gather": "Gather",
        "scatter": "Scatter",
        "call": "Call",
        "apply": "Apply",
        "answer": "Answer",
        "scatter_back": "Scatter",
        "gather_back": "GatherBack",
        "apply_back": "ApplyBack",
        "recall": "Recall",
        "held": "Held",
        "late": "Late",
        "ghosts": "Ghosts",
        "stash": "Stash",
        "gradient_sum": "GradientSum",
        "weight_update": "WeightUpdate",
    }.items()
} | {
    f"attention {kind}": f"emu_nodes.dorylus.attention:{program}"
    for kind, program in {
        "launch": "Launch",
        "call": "Call",
        "gather": "Gather",
        "scatter": "Scatter",
        "scatter_back": "ScatterBack",
        "gather_back": "GatherBack",
        "apply": "Apply",
        "apply_back": "ApplyBack",
        "edge_apply": "EdgeApply",
        "edge_apply_back": "EdgeApplyBack",
    }.items()
}
#: Content of flows by the kinds of their ends.
CARRIES = (
    {
        (sender, to): content
        for sender in ("call", "recall")
        for to, content in {
            "apply": "gathered rows",
            "apply_back": "gathered rows and gradients",
            "edge_apply": "rows of edges",
            "edge_apply_back": "rows of edges and gradients",
        }.items()
    }
    | {
        ("held", "late"): "answers that are dropped",
        ("stash", "apply"): "stashed weights",
        ("edge_apply", "answer"): "attention",
        ("edge_apply_back", "answer"): "gradients of edges",
        ("stash", "edge_apply"): "stashed weights",
        ("stash", "edge_apply_back"): "stashed weights",
        ("apply", "answer"): "activations",
        ("apply_back", "answer"): "gradients of rows",
        ("apply", "stash"): "versions of weights",
        ("stash", "apply_back"): "stashed weights",
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

#: Kinds of task of parameter servers.
PARAMETER_KINDS = ("stash", "gradient_sum", "weight_update")
