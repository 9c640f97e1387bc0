"""Tests that a record with only data is a msgspec struct, and any other record a dataclass."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

import windrow.assets
import windrow.ingest
import windrow.resources

SCALARS = {str, int, float, bool, bytes, types.NoneType, datetime, timedelta, msgspec.UnsetType}
CONTAINERS = {list, tuple, dict, Collection, Counter, Mapping, Sequence, frozenset, set}
UNIONS = {typing.Union, types.UnionType}
COPIED_BY_SCRIPTS = {"RefusedMessage"}
"""Records of which users' scripts make changed copies with `dataclasses.replace`."""


def is_data(annotation: object) -> bool:
    """Returns whether JSON can represent a field's type, including the types inside it."""
    origin = typing.get_origin(annotation)
    if annotation in {typing.Any, object} or isinstance(annotation, typing.TypeVar):
        return True
    if origin is typing.Annotated:
        return is_data(typing.get_args(annotation)[0])
    if origin in UNIONS | CONTAINERS:
        return all(is_data(inner) for inner in typing.get_args(annotation) if inner is not ...)
    kind = origin or annotation
    return (
        origin is typing.Literal
        or kind in SCALARS | CONTAINERS
        or (inspect.isclass(kind) and issubclass(kind, msgspec.Struct))
    )


def works(record: type) -> bool:
    """Returns whether a record has methods, besides special methods other than `__call__`."""
    return any(
        inspect.isfunction(value) and (name == "__call__" or not name.startswith("__"))
        for ancestor in record.__mro__
        for name, value in vars(ancestor).items()
    )


def is_record(kind: object) -> bool:
    """Returns whether it is a struct, a dataclass or a named tuple."""
    return inspect.isclass(kind) and (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or (kind.__bases__ == (tuple,))
    )


def types_in(record: type) -> dict[str, object]:
    """Returns the types of a record's fields.

    They are empty if only a type checker imports one of the types; such a type isn't data.
    """
    try:
        return typing.get_type_hints(record, include_extras=True)
    except NameError:
        return {}


def records() -> Iterator[tuple[type, dict[str, object]]]:
    """Yields each record of the packages with its fields' types.

    Records of the kinds of sinks are left out; they don't follow the rule yet.
    """
    for package in (windrow.ingest, windrow.assets, windrow.resources):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__") or module.name.startswith("windrow.ingest.sinks."):
                continue
            for kind in vars(importlib.import_module(module.name)).values():
                if is_record(kind) and kind.__module__ == module.name:
                    yield kind, types_in(kind)


def test_a_record_is_a_struct_if_it_is_data_alone() -> None:
    """A record with only data is a msgspec struct.

    A dataclass holds something else, or has methods. There are no named tuples.
    """
    against = list[str]()
    for record, types_of_fields in records():
        if issubclass(record, msgspec.Struct):
            fields = record.__struct_fields__
            other_fields = [name for name in fields if not is_data(types_of_fields.get(name))]
            against += [f"{record} holds more than data: {other_fields}"] if other_fields else []
        elif record.__bases__ == (tuple,):
            against.append(f"{record} is a tuple with names")
        elif record.__name__ not in COPIED_BY_SCRIPTS and not works(record):
            fields = tuple(field.name for field in dataclasses.fields(record))
            data = all(is_data(types_of_fields.get(name)) for name in fields)
            against += [f"{record} is data alone"] if data else []
    assert against == []
