"""Which metadata columns a table has, and how they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping

from windrow.ingest.config.document import Place, suggest
from windrow.ingest.config.values import refuse, sentence

METADATA = (
    "topic", "partition", "offset", "ordinal", "timestamp", "timestamp-type", "headers", "header-list", "leader-epoch", "key", "value-size",
    "attempt", "window",
)  # fmt: skip
"""What a row can say of the message it came from, in the order of the columns: the names of Flink's Kafka table, and some of our own."""


METADATA_MEANINGS: Mapping[str, str] = {
    "topic": "the message's topic",
    "partition": "its partition",
    "offset": "its offset",
    "ordinal": "which of its message's rows the row is, from 0; with the three above it names a row, where a message may become several",
    "timestamp": "when it was made, or appended to the log; null where it has no timestamp, or one outside the years 1 to 9999",
    "timestamp-type": "which of the two `timestamp` is",
    "headers": "its headers as a map; of two with one key the last, as in Flink",
    "header-list": "all its headers, in order",
    "leader-epoch": "under which leader epoch it was appended",
    "key": "its key, as bytes",
    "value-size": "how many bytes its value has; null for a tombstone",
    "attempt": "which run's try at the window wrote the row",
    "window": "which window the row belongs to; the table's partition column",
}
"""What each column holds, in words for `docs/settings.md`."""


METADATA_DEFAULT: Mapping[str, str] = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp", "window")}
"""The columns of a table whose spec says nothing of them."""


METADATA_SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in METADATA}, "additionalProperties": False}


_NEEDED = {
    "topic": "receipts are verified against it", "partition": "receipts are verified against it",
    "offset": "receipts are verified against it", "window": "windows are verified and replaced by it",
}  # fmt: skip


_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def checked_metadata(value: object) -> Mapping[str, str]:
    """The mapping with the defaults filled in, in the order of `METADATA`."""
    if not isinstance(value, Mapping):
        raise sentence("must be a mapping")
    wrong: list[tuple[Place, str]] = [
        ((str(name),), f"unknown key{suggest(str(name), METADATA)}") for name in value if name not in METADATA
    ]
    written = {name: None if column == "none" else column for name, column in value.items() if name in METADATA}
    wrong += [((name,), what) for name, column in written.items() if (what := _column_mistake(name, column)) is not None]
    whole = {**METADATA_DEFAULT, **written}
    found = {name: str(whole[name]) for name in METADATA if whole.get(name) is not None}
    seen: dict[str, str] = {}
    for name, column in found.items():
        other = seen.setdefault(column.casefold(), name)
        if other != name:
            place = name if name in written else other
            wrong.append(((place,), f"{other} and {name} would both be column {column}, and tables don't tell case apart"))
    if wrong:
        refuse(wrong)
    return found


def _column_mistake(name: str, column: object) -> str | None:
    if column is None:
        return None if name not in _NEEDED else f"can't be left out: {_NEEDED[name]}"
    if not isinstance(column, str) or not _COLUMN.fullmatch(column):
        return "must be a column name, up to 128 of a-z A-Z 0-9 _ and no digit first, or none to leave it out"
    return None
