"""Text of what no column is for, which rows keep (`unknown: keep`).

The text (`shared/rest_text.py`) has the bytes of the message, in its order.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.placeless import Places
from windrow.ingest.formats.shared.rest_text import RestText, kept_name
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_fields import FieldPath

_BLANK: Any = re.compile(r"[ \t\n\r]*+")
_SCAN: Any = json.JSONDecoder(parse_int=str, parse_float=str).scan_once  # type: ignore[attr-defined]
"""Reads a value; returns it, and the index after it."""


class Rest:
    """Reader of the text of one message.

    The parser of the standard library reads it, which has taken the message before.

    Attributes:
        index: the place of the column of these texts; None if rows don't keep them.
        named: the other columns.
    """

    def __init__(self, columns: Columns, reading: Reading) -> None:
        keeps = reading.unknown == "keep"
        self.index, self.named = columns.split_rest(keeps_unknown=keeps)
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
        self._message, self._kept = message, RestText(size)
        self._read(self._blank(0), self._places, ())
        return self._kept.text

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
                    key = kept_name(names)
                self._kept.add(key + self._message[closing:end])
            pos = self._blank(end)
        return self._blank(pos + 1)

    def _blank(self, pos: int) -> int:
        return int(_BLANK.match(self._message, pos).end())
