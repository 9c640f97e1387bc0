"""Columns for a JSON Schema, for properties with a type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.json.values import converter
from windrow.ingest.infer.candidates import (
    LONGEST,
    Candidate,
    Composite,
    SchemaTypes,
    TypeGuess,
    array,
    is_double,
    mapping,
    record,
)
from windrow.ingest.infer.json_documents import EXACT_OR_TEXT, STRICT, by_key, guess_type, takes
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_PLAIN = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_FORMATS = {"date-time": TypeGuess(TIMESTAMP), "date": TypeGuess(pa.date32())}


def json_candidates(
    written: WriterSchema, documents: Sequence[Mapping[str, Any]] = ()
) -> list[Candidate]:
    """Returns the properties of a schema's objects, and other fields of sampled documents.

    A type that doesn't take the sampled values is replaced by a type that does.

    Raises:
        SpecError: the text isn't a JSON Schema of objects with properties.
    """
    message = f"The JSON Schema of id {written.id} doesn't say which properties the documents have"
    try:
        schema = _Schema(written)
        root, _ = schema.resolve(schema.documents[""], "")
    except (ValueError, RecursionError):
        root = {}
    properties = root.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SpecError(
            message,
            "spec",
            "Infer from the messages alone: windrow infer TOPIC --format json-schema-confluent.",
        )
    required, values = _texts(root.get("required")), by_key(documents)
    types = SchemaTypes(schema.opened)
    return [
        Candidate(
            name,
            types.of(_Part(properties.get(name, {}), "", sampled_values := values.get(name, []))),
            name not in required
            or schema.takes_null(properties[name])
            or len(documents) > sum(value is not None for value in sampled_values),
            _doc(properties.get(name)),
        )
        for name in dict.fromkeys((*properties, *values))
    ]


def _texts(value: Any, limit: int | None = None) -> dict[str, None]:
    """Returns the texts of a list, or of its first `limit` items; empty if it isn't a list."""
    return (
        {text: None for text in value[:limit] if isinstance(text, str)}
        if isinstance(value, list)
        else {}
    )


def _doc(part: Any) -> str:
    doc = part.get("description") if isinstance(part, Mapping) else None
    return doc if isinstance(doc, str) else ""


class _Part(msgspec.Struct, frozen=True):
    """Schema inside a document.

    Attributes:
        written: the schema's JSON.
        base: the name of the document; "" for the root document.
        values: the sampled values that the schema describes.
    """

    written: Any
    base: str
    values: Sequence[Any]


class _Schema:
    """JSON Schema, and the schemas that it refers to.

    Attributes:
        documents: the JSON of each document, by name; the root document is "".
    """

    def __init__(self, written: WriterSchema) -> None:
        self.documents = {
            "": json.loads(written.text),
            **{name: json.loads(text) for name, text in written.references},
        }

    def resolve(self, part: Any, base: str) -> tuple[Mapping[str, Any], str]:
        """Follows a schema's references; returns the target and the name of its document.

        The target is an empty schema if a reference has no target.
        """
        for _ in range(50):
            if not isinstance(part, Mapping):
                return {}, base
            reference = part.get("$ref")
            if not isinstance(reference, str):
                return part, base
            name, _, pointer = reference.partition("#")
            base = name or base
            part = _at(self.documents.get(base), pointer)
        return {}, base

    def takes_null(self, written: Any) -> bool:
        """Returns whether a schema allows null."""
        part, base = self.resolve(written, "")
        choices = [
            choice
            for keyword in ("oneOf", "anyOf")
            if isinstance(part.get(keyword), list)
            for choice in part[keyword]
        ]
        return "null" in _kinds(part) or any(
            "null" in _kinds(self.resolve(choice, base)[0]) for choice in choices
        )

    def opened(self, part: _Part) -> TypeGuess | Composite:
        """Returns the schema's type, or the sampled values' type if it doesn't take them."""
        present = [value for value in part.values if value is not None]
        guess_or_composite = self._stated_type(msgspec.structs.replace(part, values=present))
        if isinstance(guess_or_composite, TypeGuess):
            return _held(guess_or_composite, present)
        reference = part.written.get("$ref")
        return replace(
            guess_or_composite,
            make=lambda guesses: _held(guess_or_composite.make(guesses), present),
            name=ascii(f"{part.base}{reference}") if isinstance(reference, str) else "",
        )

    def _stated_type(self, unresolved: _Part) -> TypeGuess | Composite:
        part, base = self.resolve(unresolved.written, unresolved.base)
        for keyword in ("oneOf", "anyOf", "allOf"):
            if isinstance(part.get(keyword), list) and "type" not in part:
                return self._one_of(keyword, part[keyword], base, unresolved.values)
        others = [kind for kind in _kinds(part) if kind != "null"]
        if len(others) > 1:
            return EXACT_OR_TEXT.mixed_type(f"it has several types: {', '.join(others)}")
        kind = others[0] if others else ""
        if kind == "object":
            return self._object(part, base, unresolved.values)
        if kind == "array":
            items = [
                item for value in unresolved.values if isinstance(value, list) for item in value
            ]
            return array(_Part(part.get("items"), base, items))
        if kind == "string":
            words = [f"{word!a}" for word in _texts(part.get("enum"), LONGEST)]
            plain = TypeGuess(pa.string(), f"one of {', '.join(words)}" if words else "")
            return _FORMATS.get(str(part.get("format")), plain)
        problem = f"{kind!a} is no type" if kind else "it has no type"
        return TypeGuess(_PLAIN.get(kind), "" if kind in _PLAIN else problem)

    def _one_of(
        self, keyword: str, choices: list[Any], base: str, values: Sequence[Any]
    ) -> TypeGuess | Composite:
        """Returns the type of the only choice that isn't null; else a type of mixed values."""
        non_null_choices = [
            choice for choice in choices if _kinds(self.resolve(choice, base)[0]) != ["null"]
        ]
        if len(non_null_choices) != 1:
            tried = STRICT if keyword == "allOf" else EXACT_OR_TEXT
            return tried.mixed_type(f"{keyword} of {format_count(len(non_null_choices), 'schema')}")
        return Composite([_Part(non_null_choices[0], base, values)], lambda guesses: guesses[0])

    def _object(
        self, part: Mapping[str, Any], base: str, values: Sequence[Any]
    ) -> TypeGuess | Composite:
        properties, more = part.get("properties"), part.get("additionalProperties")
        values_by_property = by_key([value for value in values if isinstance(value, dict)])
        if isinstance(properties, Mapping) and properties:
            fields = dict.fromkeys((*map(str, properties), *values_by_property))
            parts = (
                (field, _Part(properties.get(field), base, values_by_property.get(field, [])))
                for field in fields
            )
            return record(parts)
        if isinstance(more, Mapping):
            all_values = [value for of_key in values_by_property.values() for value in of_key]
            return mapping(_Part(more, base, all_values))
        return TypeGuess(None, "it doesn't say which properties it has")


def _held(stated: TypeGuess, values: Sequence[Any]) -> TypeGuess:
    """Returns a schema's type if it takes the sampled values, else the values' type."""
    if stated.lenient or not values or _takes(stated.type, values):
        return stated
    guess = guess_type(values)
    note = guess.note or stated.note or "not all of its values are of its schema"
    return replace(guess, note=note)


def _takes(kind: pa.DataType | None, values: Sequence[Any]) -> bool:
    """Returns whether a type takes all values. Items and fields inside aren't checked."""
    if kind is None or pa.types.is_nested(kind):
        shape = list if kind is not None and pa.types.is_list(kind) else dict
        return kind is not None and all(isinstance(value, shape) for value in values)
    return all(takes(converter(kind), value) for value in values) and (
        not pa.types.is_floating(kind) or all(map(is_double, values))
    )


def _kinds(part: Mapping[str, Any]) -> list[str]:
    kind = part.get("type")
    return (
        [kind]
        if isinstance(kind, str)
        else [k for k in kind if isinstance(k, str)]
        if isinstance(kind, list)
        else []
    )


def _at(document: Any, pointer: str) -> Any:
    """Resolves a JSON pointer; returns None if it has no target."""
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
