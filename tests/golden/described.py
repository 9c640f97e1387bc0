"""Descriptions of classes, without names that other programs never see."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import msgspec
from pydantic import BaseModel

_WORDS = ("title", "description", "examples")


def document(kind: Any) -> dict[str, str]:
    """Returns the paths in documents of a class, with types: `windows[].end: string | integer`.

    A `?` follows the name of an optional field. `{}` stands for any key.
    """
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    types_by_path: dict[str, list[str]] = {}
    for path, types in paths(resolved_schema(schema, components), ""):
        types_by_path.setdefault(path, []).append(types)
    return {path: " | ".join(dict.fromkeys(types)) for path, types in types_by_path.items()}


def paths(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    choices = schema.get("anyOf", [schema])
    simple = [choice for choice in choices if choice.get("type") not in {"object", "array"}]
    if simple:
        yield path, " | ".join(map(words, simple))
    for choice in choices:
        for name, below in choice.get("properties", {}).items():
            mark = "" if name in choice.get("required", ()) else "?"
            yield from paths(below, f"{path}.{name}{mark}".lstrip("."))
        for name in ("items", "prefixItems", "additionalProperties"):
            below = choice.get(name)
            for schema_below in below if isinstance(below, list) else [below]:
                if isinstance(schema_below, dict):
                    yield from paths(
                        schema_below, path + ("{}" if name == "additionalProperties" else "[]")
                    )


def words(schema: Any) -> str:
    """Returns a type's description: the values of an enumeration, or its name and constraints."""
    if "enum" in schema:
        return " ".join(map(repr, schema["enum"]))
    return " ".join(str(value) for name, value in schema.items() if name != "default") or "any"


def resolved_schema(schema: Any, components: dict[str, Any]) -> Any:
    """Returns a schema without titles and descriptions, with components instead of
    references.
    """
    if isinstance(schema, list):
        return [resolved_schema(part, components) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(name := schema.get("$ref"), str):
        return resolved_schema(components[name.rpartition("/")[2]], components)
    return {
        name: {inner: resolved_schema(part, components) for inner, part in below.items()}
        if name == "properties"
        else resolved_schema(below, components)
        for name, below in schema.items()
        if name not in {*_WORDS, "$defs"} or not isinstance(below, str | dict)
    }


def named(value: Any) -> Any:
    """Returns the interface of a public name: its arguments, attributes and methods."""
    if not inspect.isclass(value):
        return signature(value) if callable(value) else repr(value)
    members: dict[str, str] = {}
    if not has_annotated(value):
        members["()"] = signature(value.__init__ if issubclass(value, BaseException) else value)
    for kind in reversed(value.__mro__):
        if kind.__module__.partition(".")[0] != "windrow":
            continue
        members |= {name: str(annotation) for name, annotation in attributes(kind).items()}
        for name, member in vars(kind).items():
            if isinstance(member, property | cached_property):
                members[name] = "property"
            elif inspect.isroutine(getattr(kind, name)) and (
                not name.startswith(("_", "test_")) or name == "__call__"
            ):
                members[name] = signature(getattr(kind, name))
    return members


def attributes(kind: type) -> dict[str, Any]:
    """Returns the attributes of a protocol or a section, and the class variables of
    other classes.
    """
    return {
        name: annotation
        for name, annotation in vars(kind).get("__annotations__", {}).items()
        if name[0] != "_" and (has_annotated(kind) or str(annotation).startswith("ClassVar"))
    }


def has_annotated(kind: type) -> bool:
    """Returns whether annotations describe a class better than its signature does.

    These are protocols, and models of pydantic.
    """
    return getattr(kind, "_is_protocol", False) or issubclass(kind, BaseModel)


def signature(function: Any) -> str:
    """Returns the arguments with annotations and defaults, without modules and addresses."""
    if inspect.isbuiltin(function):  # has no signature
        return "(...)"
    modules = r"\b(?:windrow|collections|typing|numpy|datetime|pathlib)\.(?:\w+\.)*(?=[A-Za-z])"
    return re.sub(rf" at 0x[0-9a-f]+|{modules}", "", str(inspect.signature(function)))


def public(module: ModuleType) -> dict[str, Any]:
    """Returns the public classes that a module defines."""
    return {
        name: named(value)
        for name, value in vars(module).items()
        if name[0] != "_" and inspect.isclass(value) and value.__module__ == module.__name__
    }
