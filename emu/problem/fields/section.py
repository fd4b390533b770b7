"""The base of every section of a scenario file: frozen, and no key unknown."""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from itertools import pairwise
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from typing_extensions import override

from emu.problem.fields.quantities import Amount, Pieces, Schema, Size

#: Keys and list positions from the top of the file down to a value.
Trail: TypeAlias = tuple[str | int, ...]
#: Name of a key -> its docstring.
Descriptions: TypeAlias = dict[str, str]
#: Where sections are written, by their classes.
_SOURCE_FILES: dict[type, str] = {}


class Section(BaseModel):
    """A mapping of a scenario file whose keys are all known."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
    )

    @override
    def __init_subclass__(cls, **options: Any) -> None:
        """Note the file while its module is there: it may be gone for the schema."""
        super().__init_subclass__(**options)
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        _SOURCE_FILES[cls] = file or ""

    @override
    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: Any,
        handler: GetJsonSchemaHandler,
    ) -> Schema:
        """Return the JSON Schema, with the docstring of every key as its description.

        Defaults of quantities are as a file states them, ``30 s``: 30 is an error.
        They are read from the source here and not when the class is made, as by
        ``use_attribute_docstrings``: that was a fifth of a small simulation.
        """
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        properties = resolved.get("properties", {})
        keys = {name: field.alias or name for name, field in cls.model_fields.items()}

        numbers = set()
        for name, key in keys.items():
            stated = properties.get(key, {})
            # A float is a quantity; a count or a truth value is written as it is.
            if type(stated.get("default")) is float:
                numbers.add(name)
        section = cls.model_construct()
        defaults = section.model_dump(mode="json", include=numbers)
        for name, value in defaults.items():
            key = keys.get(name, name)
            properties[key]["default"] = value

        texts = cls._descriptions()
        for name, field in cls.model_fields.items():
            key = keys[name]
            is_described = name in texts and key in properties
            if field.description is None and is_described:
                properties[key]["description"] = texts[name]
        return schema

    @classmethod
    def _descriptions(cls) -> Descriptions:
        """Return the docstrings of its keys, those of its bases included."""
        texts: Descriptions = {}
        # Bases first: what a section says of a key itself holds.
        for base in reversed(cls.__mro__):
            file = _SOURCE_FILES.get(base, "")
            if file:
                by_class = _read_descriptions(file)
                texts |= by_class.get(base.__qualname__, {})
        return texts


@cache
def _read_descriptions(file: str) -> dict[str, Descriptions]:
    """Return the docstrings of the keys of every class in a file, by its name."""
    try:
        with tokenize.open(file) as source:
            tree = ast.parse(source.read())
    # Without its source a schema lacks descriptions, and is right otherwise.
    except (OSError, SyntaxError):
        return {}
    by_class = {}
    for name, section in _list_classes(tree):
        by_class[name] = dict(_list_descriptions(section))
    return by_class


def _list_classes(
    node: ast.AST,
    prefix: str = "",
) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes in a piece of source, by their qualified names."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef):
            # As ``__qualname__`` has it, by which sections are looked up.
            inner = f"{prefix}{child.name}.<locals>."
        # Classes are statements: below an expression there is none.
        if isinstance(child, ast.stmt):
            yield from _list_classes(child, inner)


def _list_descriptions(section: ast.ClassDef) -> Iterator[tuple[str, str]]:
    # Python keeps no docstring of an attribute: it is the statement behind it.
    for key, text in pairwise(section.body):
        match key, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, cleandoc(words)
            case _:
                pass


class Resources(Section):
    """Amounts of resources: ``cpu``, ``gpu``, ``memory``, and any further one."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Amount] = Field(init=False)

    cpu: Pieces | None = None
    """Cores; without it unlimited (machine) or none needed (task)."""
    gpu: Pieces | None = None
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
        stated = {
            name: amount for name, amount in amounts.items() if amount is not None
        }
        return stated | self.further()

    def further(self) -> dict[str, float]:
        """Return the amounts of resources that emu has no word for."""
        return dict(self.__pydantic_extra__ or {})
