"""Envelopes of the supported tools, as data.

Each says where a message has what happened, and where it has the row.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum

FieldPath = tuple[str, ...]
"""Names of nested fields, from the envelope on."""


class ChangeKind(IntEnum):
    """Kind of a change message."""

    WRITTEN = 0
    """A row exists now: it was inserted or updated, or a snapshot has read it."""
    REMOVED = 1
    """A row was deleted."""
    OTHER = 2
    """Nothing about rows: a mark of the tool itself, or a change of a table's columns."""
    TRUNCATED = 3
    """All rows were deleted at once, without a message for each."""
    UPDATED = 4
    """A row existed before and exists now.

    Only of tools whose updates may leave values alone; an update of another tool is
    `WRITTEN`.
    """


@dataclass(frozen=True)
class Envelope:
    """The form of one tool's change events: the row, and what happened to it.

    - `tool`: its name, for people.
    - `kind`: the field that says what happened, in one of `words`.
    - `written`: the field with the row after the change; `removed`: the one with the
      row that was deleted; `former`: the one with the row, or a part of it, before an
      update. `has_row_list`: these three are lists, with one item a row.
    - `names`: the paths of the names of database, schema and table.
    - `schema_change`: the field that is true if the message is about the table's
      columns.
    - `marks`: messages without `kind` that say nothing about rows, each by the fields
      that it has and those that it may have.
    - `names_topics`: whether the tool names a topic after the table whose rows it has,
      unless it is configured otherwise.
    - `text_row`: for people, what it means that a row is a text.
    - `leaves_alone`: whether the tool marks values that a change left alone.
    """

    tool: str
    kind: str
    words: tuple[tuple[str, ChangeKind], ...]
    written: str
    removed: str
    former: str
    names: tuple[tuple[str, FieldPath], ...]
    has_row_list: bool = False
    schema_change: str | None = None
    marks: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    names_topics: bool = False
    text_row: str | None = None
    leaves_alone: bool = False

    def is_mark(self, fields: AbstractSet[str]) -> bool:
        """Returns whether a message of these fields says nothing about rows."""
        return any(required <= fields <= required | optional for required, optional in self.marks)


DATABASE, SCHEMA, TABLE = "database", "schema", "table"
"""Names of the database, schema and table that a row is of."""
_AT_TOP = ((DATABASE, (DATABASE,)), (TABLE, (TABLE,)))

DEBEZIUM = Envelope(
    "Debezium",
    "op",
    (
        ("c", ChangeKind.WRITTEN),
        ("r", ChangeKind.WRITTEN),
        ("u", ChangeKind.UPDATED),
        ("d", ChangeKind.REMOVED),
        ("t", ChangeKind.TRUNCATED),
        ("m", ChangeKind.OTHER),
    ),
    written="after",
    removed="before",
    former="before",
    names=(
        (DATABASE, ("source", "db")),
        (SCHEMA, ("source", "schema")),
        (TABLE, ("source", "table")),
    ),
    marks=(
        (frozenset({"ts_ms"}), frozenset()),  # a heartbeat
        # a transaction begins or ends
        (frozenset({"status", "id"}), frozenset({"event_count", "data_collections", "ts_ms"})),
        (
            frozenset({"databaseName", "ddl"}),
            frozenset({"source", "position", "ts_ms", "schemaName", "tableChanges"}),
        ),
    ),
    names_topics=True,
    text_row=(
        "Expected a row, got a text, as events of MongoDB have it: have ExtractNewDocumentState"
        " unwrap them, and take json"
    ),
    leaves_alone=True,
)
CANAL = Envelope(
    "Canal",
    "type",
    (
        ("INSERT", ChangeKind.WRITTEN),
        ("INIT", ChangeKind.WRITTEN),
        ("UPDATE", ChangeKind.WRITTEN),
        ("DELETE", ChangeKind.REMOVED),
        ("TRUNCATE", ChangeKind.TRUNCATED),
        *(
            (word, ChangeKind.OTHER)
            for word in ("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY")
        ),
        *((word, ChangeKind.OTHER) for word in ("GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT")),
        ("TIDB_WATERMARK", ChangeKind.OTHER),
    ),
    written="data",
    removed="data",
    former="old",
    names=_AT_TOP,
    has_row_list=True,
    schema_change="isDdl",
)
MAXWELL = Envelope(
    "Maxwell",
    "type",
    (
        ("insert", ChangeKind.WRITTEN),
        ("update", ChangeKind.WRITTEN),
        ("bootstrap-insert", ChangeKind.WRITTEN),
        ("delete", ChangeKind.REMOVED),
        *((word, ChangeKind.OTHER) for word in ("bootstrap-start", "bootstrap-complete")),
        *(
            (f"{noun}-{verb}", ChangeKind.OTHER)
            for noun in ("table", "database")
            for verb in ("create", "alter", "drop")
        ),
    ),
    written="data",
    removed="data",
    former="old",
    names=_AT_TOP,
)
