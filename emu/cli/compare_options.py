"""Options of ``emu compare`` that are of one kind of what it compares alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from emu.errors import ScenarioError


class Compared(StrEnum):
    """Kinds of comparison."""

    VARIANTS = "placements and rules"
    SYSTEMS = "systems"
    RUNS = "runs"


#: Options that not every kind has -> the kinds that have them.
KINDS_OF: Mapping[str, Collection[Compared]] = {
    **dict.fromkeys(
        ("--policies", "--placements", "--move", "--swap", "--keep-placement"),
        (Compared.VARIANTS,),
    ),
    **dict.fromkeys(
        ("--systems", "--explain", "--same-machines", "--as", "--open"),
        (Compared.SYSTEMS,),
    ),
    **dict.fromkeys(
        ("--to", "--within", "--keep-lr", "--count-looks", "--confirm", "--repeat"),
        (Compared.SYSTEMS,),
    ),
    **dict.fromkeys(("--skip", "--unit"), (Compared.RUNS,)),
    **dict.fromkeys(
        ("--set", "--seeds", "--write", "--jobs"),
        (Compared.VARIANTS, Compared.SYSTEMS),
    ),
    "--out": (Compared.SYSTEMS, Compared.RUNS),
}
#: Options that say nothing alone -> those of which one has to stand beside them.
NEEDED_BY: Mapping[str, tuple[str, ...]] = {
    "--within": ("--to",),
    "--keep-lr": ("--to",),
    "--open": ("--as", "--out"),
}


def check_options(compared: Compared, stated: Collection[str]) -> None:
    """Raise ScenarioError where an option changes nothing of what is compared.

    ``stated`` are the options that the command line has.
    """
    for option in stated:
        kinds = KINDS_OF.get(option, [*Compared])
        if compared not in kinds:
            words = " or ".join(kinds)
            problem = f"is of {words}: leave it out where {compared} are compared"
            if compared is Compared.VARIANTS and kinds == (Compared.SYSTEMS,):
                problem = "is of systems: write --systems all, say, as well"
            raise ScenarioError(problem, file=option)

        companions = NEEDED_BY.get(option, ())
        if companions and not any(other in stated for other in companions):
            names = " or ".join(companions)
            raise ScenarioError(f"changes nothing without {names}", file=option)
