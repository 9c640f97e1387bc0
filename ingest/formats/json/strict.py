"""Strict decoder of one JSON message: returns the columns' values, or refuses the message.

It is simple and slow. The compiled pass (`scan.py`) may only take messages that this module
takes, too.

The standard library parses the message. Only its parser returns the literal of every number,
and every key of an object, duplicates included. msgspec isn't used: it takes the last of two
equal keys, and an integer of any size as a float. The refusals have msgspec's wording.
"""

from __future__ import annotations

import json
import json.scanner
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa

from windrow.ingest.formats.json.rest import Rest
from windrow.ingest.formats.json.values import (
    Convert,
    Source,
    converter,
    integer,
    refuse_unknown,
    wrong_type,
)
from windrow.ingest.formats.shared.budget import budget
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading
from windrow.ingest.formats.shared.placeless import Placeless
from windrow.ingest.formats.shared.refusal import RefusedValueError, text_of
from windrow.ingest.schema.columns import Column, Columns

MAX_DEPTH = 100
"""Deepest nesting of objects and arrays. It fits on the stack of every parser."""

_BRACKETS = re.compile(r"[\[\]{}]")
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Strings of a JSON text.

The last string may lack its closing quote. Otherwise the search would try each quote in it
as the start of a string, in quadratic time.
"""
_WHOLE_PAIRS = re.compile(
    r"(?:[^\\]++|\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?!u[dD][89a-fA-F]).))*+",
    re.DOTALL,
)
"""JSON in which each escaped half of a surrogate pair is followed by its other half.

The text is searched, because a document of small values takes much more memory.
"""


class StrictJson:
    """Decodes one message at a time."""

    def __init__(self, columns: Columns, reading: Reading = EXACT) -> None:
        self.truncation = Source(columns.finer)
        self._rest = Rest(columns, reading)
        columns = self._rest.named
        self._fields: list[tuple[Column, Convert]] = [
            (c, converter(c.type, c.epoch, reading.field(c.name), self.truncation, c.zone))
            for c in columns.columns
        ]
        self._takes_bare_value = reading.is_only_column and len(columns.columns) == 1
        self._only = {c.name for c in columns.columns} if reading.unknown == "dead" else None
        self._placeless = Placeless(columns, _inside)
        self._names = _names(pa.struct(list(columns.arrow_schema)))
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=integer,
            parse_float=str.encode,
            parse_constant=float if reading.non_numeric else _constant,
        )
        if self.truncation.noting:
            self._note_spans()

    def decode(self, message: bytes) -> list[Any]:
        document = self._parse(message)
        self.truncation.budget = budget(len(message))
        if self._takes_bare_value and type(document) is not dict:
            document = {self._fields[0][0].name: document}
        if type(document) is not dict:
            raise wrong_type("object", document, "$")
        refuse_unknown(document, self._only, "$")
        row = [_field(document, column, convert) for column, convert in self._fields]
        self.truncation.ignored = next(self._placeless(document), None) is not None
        if self._rest.index is not None:
            row.insert(self._rest.index, self._rest.text(self.truncation.text, len(message)))
        return row

    def ignored_fields(self, message: bytes) -> Iterator[str]:
        return self._placeless(self._parse(message))

    def _parse(self, message: bytes) -> Any:
        text = text_of(message, "JSON")
        if _depth(text) > MAX_DEPTH:
            raise RefusedValueError(
                "too_deep", f"Expected at most {MAX_DEPTH} objects and arrays in one another", ""
            )
        self.truncation.text = text
        self.truncation.spans.clear()
        try:
            # The parser in Python takes digits of any script, so the parser in C checks first.
            if self.truncation.noting and not text.isascii():
                json.loads(text, parse_int=str, parse_float=str)
            document = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            raise RefusedValueError(
                "not_json", f"JSON is malformed: {error.msg} (character {error.pos})", ""
            ) from None
        # UTF-8 can't encode half a surrogate pair.
        if "\\u" in text and _WHOLE_PAIRS.fullmatch(text) is None:
            raise RefusedValueError(
                "not_json", "JSON is malformed: half a surrogate pair in a string", ""
            )
        return document

    def _note_spans(self) -> None:
        """Makes the parser note where each object and each list is in the text.

        Only the standard library's parser in Python allows this.
        """

        def noting(parse: Callable[..., tuple[Any, int]]) -> Callable[..., tuple[Any, int]]:
            def parsed(text_and_at: tuple[str, int], *rest: Any) -> tuple[Any, int]:
                value, end = parse(text_and_at, *rest)
                self.truncation.spans[id(value)] = text_and_at[1] - 1, end
                return value, end

            return parsed

        decoder: Any = self._decoder
        decoder.parse_object, decoder.parse_array = (
            noting(decoder.parse_object),
            noting(decoder.parse_array),
        )
        decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Makes an object of its pairs; refuses an object that has a key twice.

        A key that the schema doesn't name is data, so the refusal doesn't name it.
        """
        members = dict(pairs)
        if len(members) < len(pairs):
            ((key, _),) = Counter(name for name, _ in pairs).most_common(1)
            name = f" `{key}`" if key in self._names else ""
            raise RefusedValueError(
                "duplicate_key", f"Object holds the key{name} more than once", ""
            )
        return members


def _field(document: dict[str, Any], column: Column, convert: Convert) -> Any:
    value = document.get(column.name)
    path = f"$.{column.name}"
    if value is not None:
        return convert(value, path)
    if column.nullable:
        return None
    if column.name in document:
        raise RefusedValueError("missing", "Expected a value, got null", path)
    raise RefusedValueError("missing", "Object misses a required field", path)


def _inside(value: Any, _names: object) -> Iterable[tuple[str | None, Any]]:
    """Returns the members of a value, in the form of `placeless.Open`."""
    if isinstance(value, dict):
        return value.items()
    return ((None, item) for item in value) if isinstance(value, list) else ()


def _constant(_: str) -> NoReturn:
    raise RefusedValueError("not_json", "JSON is malformed: it has no NaN and no Infinity", "")


def _depth(text: str) -> int:
    """Returns how deep objects and arrays are nested. Never recursive.

    Returns an upper bound if this bound is at most `MAX_DEPTH`.
    """
    max_depth = text.count("[") + text.count("{")
    if max_depth <= MAX_DEPTH:
        return max_depth
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += 1 if bracket.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _names(kind: pa.DataType) -> set[str]:
    """Returns all names of the schema, at any depth."""
    if pa.types.is_struct(kind):
        return {f.name for f in kind} | {name for f in kind for name in _names(f.type)}
    if pa.types.is_map(kind):
        return _names(kind.item_type)
    return _names(kind.value_type) if pa.types.is_list(kind) else set()
