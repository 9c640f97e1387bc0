"""The envelopes that there are: where each of them says what happened, and where it has the row. Pure data."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Envelope:
    """One tool's envelope.

    `tool`: its name, for people; `kind`: the field that says the change, in one of `words`; `written`: the field with the row that is
    there after the change; `removed`: the one with the row that was deleted; `former`: what an update's row was before, or what of it.
    `many`: these three are lists, item by item; `schema_change`: the field that is true where the message is of the table's shape;
    `named`: whether `database` and `table` say whose row it is.
    """

    tool: str
    kind: str
    words: tuple[tuple[str, ChangeKind], ...]
    written: str
    removed: str
    former: str
    many: bool = False
    schema_change: str | None = None
    named: bool = False


DATABASE, TABLE = "database", "table"
"""The fields that say whose row it is."""

DEBEZIUM = Envelope(
    "Debezium", "op",
    (
        ("c", ChangeKind.WRITTEN), ("r", ChangeKind.WRITTEN), ("u", ChangeKind.WRITTEN), ("d", ChangeKind.REMOVED),
        ("t", ChangeKind.TRUNCATED), ("m", ChangeKind.OTHER),
    ),
    written="after", removed="before", former="before",
)  # fmt: skip
CANAL = Envelope(
    "Canal", "type",
    (
        ("INSERT", ChangeKind.WRITTEN), ("UPDATE", ChangeKind.WRITTEN), ("DELETE", ChangeKind.REMOVED), ("TRUNCATE", ChangeKind.TRUNCATED),
        *((word, ChangeKind.OTHER) for word in ("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY")),
    ),
    written="data", removed="data", former="old", many=True, schema_change="isDdl", named=True,
)  # fmt: skip
MAXWELL = Envelope(
    "Maxwell", "type",
    (
        ("insert", ChangeKind.WRITTEN), ("update", ChangeKind.WRITTEN), ("bootstrap-insert", ChangeKind.WRITTEN),
        ("delete", ChangeKind.REMOVED),
        *((word, ChangeKind.OTHER) for word in ("bootstrap-start", "bootstrap-complete")),
        *((f"{what}-{how}", ChangeKind.OTHER) for what in ("table", "database") for how in ("create", "alter", "drop")),
    ),
    written="data", removed="data", former="old", named=True,
)  # fmt: skip
