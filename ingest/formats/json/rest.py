"""Text of what no column is for, which rows keep (`unknown: keep`).

The text is one JSON object, with the bytes of the message and in its order. A field at the top of
the row keeps its name. The name of any other field is a JSON pointer (RFC 6901) from the row on,
and so is a name that begins with `/`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.shared.budget import REST_SHARE, rest_budget
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.placeless import Places
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import REST, Columns
from windrow.ingest.schema.message_fields import FieldPath

_BLANK: Any = re.compile(r"[ \t\n\r]*+")
_SCAN: Any = json.JSONDecoder(parse_int=str, parse_float=str).scan_once  # type: ignore[attr-defined]
"""Reads a value; returns it, and the index after it."""

_TOO_LARGE = (
    "Expected fields without a column of at most 1 MB, and of at most"
    f" {REST_SHARE} bytes for each byte of the message"
)


def pointer_name(name: str) -> str:
    """Returns a name as a part of a JSON pointer, in the form of a JSON string."""
    return json.dumps(name.replace("~", "~0").replace("/", "~1"), ensure_ascii=False)[1:-1]


class Rest:
    """Reader of the text of one message.

    The parser of the standard library reads it, which has taken the message before.

    Attributes:
        index: the place of the column of these texts; None if rows don't keep them.
        named: the other columns.
    """

    def __init__(self, columns: Columns, reading: Reading) -> None:
        names = [column.name for column in columns.columns]
        keeps = reading.unknown == "keep" and REST in names
        self.index = names.index(REST) if keeps else None
        others = (c for c in columns.columns if not (keeps and c.name == REST))
        self.named = replace(columns, columns=tuple(others))
        self._row_path = columns.row_path or ()
        self._places = Places(pa.struct(list(self.named.arrow_schema)))

    def text(self, message: str, size: int) -> str | None:
        """Returns the text; None if there is nothing to keep.

        Args:
            message: the message.
            size: its bytes.

        Raises:
            RefusedValueError: the text is too large.
        """
        self._message, self._room = message, rest_budget(size) - 1
        self._members = list[str]()
        self._read(self._blank(0), self._places, ())
        return "{" + ",".join(self._members) + "}" if self._members else None

    def _read(self, pos: int, places: Places | None, path: FieldPath) -> int:
        """Reads the value at `pos`; returns the index after it and after white space."""
        bracket = self._message[pos]
        if places is None or bracket not in "[{":
            return self._blank(_SCAN(self._message, pos)[1])
        pos, count = self._blank(pos + 1), 0
        while self._message[pos] not in "]}":
            pos = self._blank(pos + (self._message[pos] == ","))
            begin, name, below = pos, str(count), places.items
            count += 1
            if bracket == "{":
                name, closing = _SCAN(self._message, pos)
                pos = self._blank(self._blank(closing) + 1)
                below = places.values if places.fields is None else places.fields.get(name)
            if bracket == "[" or places.fields is None or name in places.fields:
                pos = self._read(pos, below, (*path, name))
                continue
            end = _SCAN(self._message, pos)[1]
            if path[: len(self._row_path)] == self._row_path:
                names = (*path[len(self._row_path) :], name)
                key = self._message[begin:closing]
                if len(names) > 1 or name.startswith("/"):
                    key = '"' + "".join(f"/{pointer_name(name)}" for name in names) + '"'
                self._members.append(key + self._message[closing:end])
                self._room -= len(self._members[-1].encode()) + 1
                if self._room < 0:
                    raise RefusedValueError("too_large", _TOO_LARGE, "")
            pos = self._blank(end)
        return self._blank(pos + 1)

    def _blank(self, pos: int) -> int:
        return int(_BLANK.match(self._message, pos).end())
