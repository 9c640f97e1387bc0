"""Columns of a JSON Schema, for properties with a type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.json.values import converter
from windrow.ingest.infer.candidates import (
    LONGEST,
    Candidate,
    TypeBudget,
    TypeGuess,
    is_double,
    list_of,
    map_of,
    struct_of,
)
from windrow.ingest.infer.documents import (
    EXACT_OR_TEXT,
    STRICT,
    by_key,
    guess_type,
    takes,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.schema.dtypes import TIMESTAMP

_PLAIN = {
    "integer": TypeGuess(pa.int64()),
    "number": TypeGuess(pa.float64()),
    "boolean": TypeGuess(pa.bool_()),
}
_FORMATS = {"date-time": TypeGuess(TIMESTAMP), "date": TypeGuess(pa.date32())}


def json_candidates(
    written: WriterSchema, documents: Sequence[Mapping[str, Any]] = ()
) -> list[Candidate]:
    """The properties of a schema's objects, and what sampled documents have besides.

    A type that doesn't take the sampled values is replaced by one that does.

    Raises:
        SpecError: the text is no JSON Schema of objects with properties.
    """
    what = f"The JSON Schema of id {written.id} doesn't say which properties the documents have"
    try:
        schema = _Schema(written)
        root, _ = schema.resolve(schema.root, "")
    except (ValueError, RecursionError):
        root = {}
    properties = root.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SpecError(
            what,
            "spec",
            "Infer from the messages alone: windrow infer TOPIC --format json-schema-confluent.",
        )
    required, values = _texts(root.get("required")), by_key(documents)
    return [
        Candidate(
            name,
            schema.type_of(properties.get(name, {}), (), "", found := values.get(name, [])),
            name not in required
            or schema.takes_null(properties[name])
            or len(documents) > sum(value is not None for value in found),
            _doc(properties.get(name)),
        )
        for name in dict.fromkeys((*properties, *values))
    ]


def _texts(value: Any, most: int | None = None) -> dict[str, None]:
    """The texts of a list, or of its first `most` items; none if it is no list."""
    return (
        {text: None for text in value[:most] if isinstance(text, str)}
        if isinstance(value, list)
        else {}
    )


def _doc(part: Any) -> str:
    doc = part.get("description") if isinstance(part, Mapping) else None
    return doc if isinstance(doc, str) else ""


class _Schema:
    """A schema, and the schemas that it refers to.

    In its methods, `around` are the references and types that a type is in, and `base` is
    the name of its document.
    """

    def __init__(self, written: WriterSchema) -> None:
        self._documents = {
            "": json.loads(written.text),
            **{name: json.loads(text) for name, text in written.references},
        }
        self._budget = TypeBudget()

    @property
    def root(self) -> Any:
        return self._documents[""]

    def resolve(self, part: Any, base: str) -> tuple[Mapping[str, Any], str]:
        """Follows a schema's references; returns their target and its document.

        The target is an empty schema if the references lead nowhere.
        """
        for _ in range(50):
            if not isinstance(part, Mapping):
                return {}, base
            reference = part.get("$ref")
            if not isinstance(reference, str):
                return part, base
            name, _, pointer = reference.partition("#")
            base = name or base
            part = _at(self._documents.get(base), pointer)
        return {}, base

    def type_of(
        self, written: Any, around: tuple[str, ...], base: str, values: Sequence[Any]
    ) -> TypeGuess:
        """The stated type, or that of the sampled values if it doesn't take them."""
        present = [value for value in values if value is not None]
        stated = self._stated(written, around, base, present)
        if stated.lenient or not present or _takes(stated.type, present):
            return stated
        found = guess_type(present, depth=len(around))
        return replace(
            found, note=found.note or stated.note or "not all of its values are of its schema"
        )

    def _stated(
        self, written: Any, around: tuple[str, ...], base: str, values: Sequence[Any]
    ) -> TypeGuess:
        refusal = self._budget.refusal(len(around))
        if refusal is not None:
            return refusal
        part, base = self.resolve(written, base)
        reference = written.get("$ref") if isinstance(written, Mapping) else None
        if isinstance(reference, str):
            if f"{base}{reference}" in around:
                return TypeGuess(None, f"{reference!a} holds itself")
            around = (*around, f"{base}{reference}")
        for word in ("oneOf", "anyOf", "allOf"):
            if isinstance(part.get(word), list) and "type" not in part:
                return self._one_of(word, part[word], around, base, values)
        kinds = _kinds(part)
        others = [kind for kind in kinds if kind != "null"]
        if not others:
            return TypeGuess(None, "it has no type")
        if len(others) > 1:
            return EXACT_OR_TEXT.mixed(f"it has several types: {', '.join(others)}")
        return self._of_kind(others[0], part, (*around, others[0]), base, values)

    def takes_null(self, written: Any) -> bool:
        """Returns whether a schema allows null."""
        part, base = self.resolve(written, "")
        choices = [
            choice
            for word in ("oneOf", "anyOf")
            if isinstance(part.get(word), list)
            for choice in part[word]
        ]
        return "null" in _kinds(part) or any(
            "null" in _kinds(self.resolve(choice, base)[0]) for choice in choices
        )

    def _one_of(
        self,
        word: str,
        choices: list[Any],
        around: tuple[str, ...],
        base: str,
        values: Sequence[Any],
    ) -> TypeGuess:
        """The type of the only schema that isn't null."""
        left = [choice for choice in choices if _kinds(self.resolve(choice, base)[0]) != ["null"]]
        if len(left) != 1:
            tried = STRICT if word == "allOf" else EXACT_OR_TEXT
            return tried.mixed(f"{word} of {len(left)} schemas")
        return self._stated(left[0], (*around, word), base, values)

    def _of_kind(
        self,
        kind: str,
        part: Mapping[str, Any],
        around: tuple[str, ...],
        base: str,
        values: Sequence[Any],
    ) -> TypeGuess:
        if kind == "object":
            objects = [value for value in values if isinstance(value, dict)]
            return self._object(part, around, base, by_key(objects))
        if kind == "array":
            items = [item for value in values if isinstance(value, list) for item in value]
            return list_of(self.type_of(part.get("items"), around, base, items))
        if kind == "string":
            words = _texts(part.get("enum"), LONGEST)
            plain = TypeGuess(
                pa.string(), f"one of {', '.join(f'{word!a}' for word in words)}" if words else ""
            )
            return _FORMATS.get(str(part.get("format")), plain)
        return _PLAIN.get(kind) or TypeGuess(None, f"{kind!a} is no type")

    def _object(
        self,
        part: Mapping[str, Any],
        around: tuple[str, ...],
        base: str,
        values: Mapping[str, list[Any]],
    ) -> TypeGuess:
        properties, more = part.get("properties"), part.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            return struct_of(
                (name, self.type_of(properties.get(name), around, base, values.get(name, [])))
                for name in dict.fromkeys((*map(str, properties), *values))
            )
        if isinstance(more, Mapping):
            every = [value for found in values.values() for value in found]
            return map_of(self.type_of(more, around, base, every))
        return TypeGuess(None, "it doesn't say which properties it has")


def _takes(kind: pa.DataType | None, values: Sequence[Any]) -> bool:
    """Returns whether a type takes all values as they are; what is inside is judged by itself."""
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
    """Resolves a JSON pointer; None if it leads nowhere."""
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
