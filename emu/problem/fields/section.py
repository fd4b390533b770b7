"""The base of every section of a scenario file: frozen, and no key unknown."""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from typing_extensions import override

from emu.problem.fields.quantities import Amount, Size

#: Keys and list positions from the top of the file down to a value.
Trail: TypeAlias = tuple[str | int, ...]


class Section(BaseModel):
    """A mapping of a scenario file whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    @override
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema, with the docstring of every key as its description.

        Defaults of quantities are as a file states them, ``30 s``: 30 is an error.
        They are read from the source here and not when the class is made, as by
        ``use_attribute_docstrings``: that was a fifth of a small simulation.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        texts: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if base is Section or not issubclass(base, Section):
                continue
            with suppress(OSError, TypeError):
                tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
                statements = cast("ast.ClassDef", tree.body[0]).body
                texts |= {
                    key.target.id: inspect.cleandoc(text.value.value)
                    for key, text in pairwise(statements)
                    if isinstance(key, ast.AnnAssign)
                    and isinstance(key.target, ast.Name)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                    and isinstance(text.value.value, str)
                }
        keys = {name: field.alias or name for name, field in cls.model_fields.items()}
        numbers = {
            name
            for name, key in keys.items()
            if type(properties.get(key, {}).get("default")) is float
        }
        defaults = cls.model_construct().model_dump(mode="json", include=numbers)
        for name, value in defaults.items():
            properties[keys.get(name, name)]["default"] = value
        for name, field in cls.model_fields.items():
            key = field.alias or name
            if field.description is None and name in texts and key in properties:
                properties[key]["description"] = texts[name]
        return schema


#: Resources that are sizes, with a unit.
SIZES = ("memory", "gpu_memory")


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
    gpu_memory: Size | None = None
    """Memory of all GPUs of a machine. What a training keeps there is counted, unless
    its demands state it."""

    def amounts(self) -> dict[str, float]:
        """Return resource -> amount, of those that are stated."""
        amounts = {
            "cpu": self.cpu,
            "gpu": self.gpu,
            "memory": self.memory,
            "gpu_memory": self.gpu_memory,
        }
        return {r: a for r, a in amounts.items() if a is not None} | self.further()

    def further(self) -> dict[str, float]:
        """Return the amounts of resources that emu has no word for."""
        return dict(self.__pydantic_extra__ or {})
