"""Envelopes of the supported tools, as data.

An envelope gives the field with the kind of change, and the fields with the row.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import IntEnum

from windrow.ingest.schema.message_fields import FieldPath


class ChangeKind(IntEnum):
    """Kind of a change message."""

    WRITTEN = 0
    """A row exists now: it was inserted or updated, or a snapshot has read it."""
    REMOVED = 1
    """A row was deleted."""
    OTHER = 2
    """No row changed: the message is a mark of the tool, or a change of a table's columns."""
    TRUNCATED = 3
    """All rows were deleted at once, without a message for each."""
    UPDATED = 4
    """A row existed before and exists now.

    Only used for a tool whose updates may omit unchanged values. An update of another tool
    is `WRITTEN`.
    """


@dataclass(frozen=True)
class Envelope:
    """Form of a tool's change events.

    Attributes:
        tool: the tool's name, for errors.
        kind: the path of the kind of change, which is one of `words`. A row without an envelope
            (`is_flat`) may lack it; then it is written.
        words: pairs of a word and the kind of change that it stands for.
        written: the field with the row after the change; "" if the event itself is the row.
        removed: the field with the row that was deleted; "" if the event itself is the row.
        former: the field with the row, or a part of it, before an update.
        names: the paths of the names of database, schema and table.
        has_row_list: whether `written`, `removed` and `former` are lists of rows.
        schema_change: the field that is true if the message is a change of the table's
            columns; None if the tool has no such field.
        marks: messages without `kind` that report no change of rows. Each is a pair of the
            fields that it must have, and the fields that it may have.
        names_topics: whether the tool by default names a topic after the table whose rows
            it writes to the topic.
        text_row: the detail of a dead letter whose row is a text; None if the tool writes no
            rows as texts. Such a row is a column by its path, and no other column is in it.
        leaves_alone: whether the tool marks values that a change left unchanged and that it
            doesn't send.
        deleted: the field that is the text `true` if the row was deleted; None if the tool
            has no such field.
    """

    tool: str
    kind: FieldPath
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
    deleted: str | None = None

    @property
    def is_flat(self) -> bool:
        """Whether the event itself is the row, without an envelope around it."""
        return not self.written

    def is_mark(self, fields: AbstractSet[str]) -> bool:
        """Returns whether a message with these fields is one of `marks`."""
        return any(required <= fields <= required | optional for required, optional in self.marks)


DATABASE, SCHEMA, TABLE = "database", "schema", "table"
"""Keys of the names of a row's database, schema and table."""
_AT_TOP = ((DATABASE, (DATABASE,)), (TABLE, (TABLE,)))

DEBEZIUM = Envelope(
    "Debezium",
    ("op",),
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
        # The begin or the end of a transaction.
        (frozenset({"status", "id"}), frozenset({"event_count", "data_collections", "ts_ms"})),
        (
            frozenset({"databaseName", "ddl"}),
            frozenset({"source", "position", "ts_ms", "schemaName", "tableChanges"}),
        ),
    ),
    names_topics=True,
    text_row=(
        "Expected a row, got a text, as events of MongoDB have it: take the text as a column"
        " (decode.envelope: {document: after}), or have ExtractNewDocumentState unwrap it"
    ),
    leaves_alone=True,
)
FLATTENED = replace(
    DEBEZIUM,
    kind=("__op",),
    written="",
    removed="",
    former="",
    names=((DATABASE, ("__db",)), (SCHEMA, ("__schema",)), (TABLE, ("__table",))),
    marks=(),  # A table may have just the columns of a mark.
    text_row=None,
    deleted="__deleted",
)
"""Rows that Debezium's ExtractNewRecordState has taken out of their envelopes."""
CANAL = Envelope(
    "Canal",
    ("type",),
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
    ("type",),
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
DMS = Envelope(
    "AWS DMS",
    ("metadata", "operation"),
    (
        *((word, ChangeKind.WRITTEN) for word in ("load", "insert", "update")),
        ("delete", ChangeKind.REMOVED),
        *((f"{verb}-table", ChangeKind.OTHER) for verb in ("create", "rename", "drop")),
        *((f"{verb}-column", ChangeKind.OTHER) for verb in ("add", "rename", "drop")),
        *((word, ChangeKind.OTHER) for word in ("change-columns", "column-type-change")),
    ),
    written="data",
    removed="data",
    former="before-image",
    names=((SCHEMA, ("metadata", "schema-name")), (TABLE, ("metadata", "table-name"))),
)
