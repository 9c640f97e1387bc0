"""The envelopes that there are: where each of them says what happened, and where it has the row.

Pure data.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum

FieldPath = tuple[str, ...]
"""Names of fields in one another, from the envelope on."""


class ChangeKind(IntEnum):
    """What a message says of a table."""

    WRITTEN = 0
    """A row is there now: it was inserted or updated, or a snapshot has read it."""
    REMOVED = 1
    """A row was deleted."""
    OTHER = 2
    """Nothing of the table's rows: a mark of the tool's own, or another shape of the table."""
    TRUNCATED = 3
    """All rows were deleted at once, which no row says."""
    UPDATED = 4
    """A row is there now and was before, by a tool whose updates may leave values
    alone; of the others it is written.
    """


@dataclass(frozen=True)
class Envelope:
    """One tool's envelope.

    `tool`: its name, for people; `kind`: the field that says the change, in one of
    `words`; `written`: the field with the row that is there after the change;
    `removed`: the one with the row that was deleted; `former`: what an update's row was
    before, or what of it. `names`: where it says whose row it is. `many`: these three
    are lists, item by item; `schema_change`: the field that is true where the message
    is of the table's shape; `marks`: messages without `kind` that say nothing of rows,
    each by the fields that it has and those that it may have; `names_topics`: whether a
    topic is called after the table whose rows it has, unless somebody says otherwise;
    `text_row`: what it means, for people, that a row is a text; `leaves_alone`: whether
    it has a mark for a value that a change left alone.
    """

    tool: str
    kind: str
    words: tuple[tuple[str, ChangeKind], ...]
    written: str
    removed: str
    former: str
    names: tuple[tuple[str, FieldPath], ...]
    many: bool = False
    schema_change: str | None = None
    marks: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    names_topics: bool = False
    text_row: str | None = None
    leaves_alone: bool = False

    def is_mark(self, fields: AbstractSet[str]) -> bool:
        """Whether a message of these fields says nothing of rows."""
        return any(has <= fields <= has | may for has, may in self.marks)


DATABASE, SCHEMA, TABLE = "database", "schema", "table"
"""What says whose row it is."""
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
    ),
    written="data",
    removed="data",
    former="old",
    names=_AT_TOP,
    many=True,
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
            (f"{what}-{how}", ChangeKind.OTHER)
            for what in ("table", "database")
            for how in ("create", "alter", "drop")
        ),
    ),
    written="data",
    removed="data",
    former="old",
    names=_AT_TOP,
)
