"""The base of every section of a scenario file: frozen, and no key unknown."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from emu.fields.quantities import Amount, Size

#: Keys and list positions from the top of the file down to a value.
Trail: TypeAlias = tuple[str | int, ...]


class Section(BaseModel):
    """A mapping of a scenario file whose keys are all known."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )


class Resources(Section):
    """Amounts of resources: ``cpu``, ``gpu``, ``memory``, and any further one."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Amount] = Field(init=False)

    cpu: Amount | None = None
    """Cores; without it unlimited (machine) or none needed (task)."""
    gpu: Amount | None = None
    """Pieces; where one machine has any, others have none, and a worker of ``dgtp``
    needs one."""
    memory: Size | None = None
    """Size with its unit."""

    def amounts(self) -> dict[str, float]:
        """Return resource -> amount, of those that are stated."""
        known = {"cpu": self.cpu, "gpu": self.gpu, "memory": self.memory}
        return {r: a for r, a in known.items() if a is not None} | self.further()

    def further(self) -> dict[str, float]:
        """Return the amounts of resources that emu has no word for."""
        return dict(self.__pydantic_extra__ or {})
