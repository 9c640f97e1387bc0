"""The envelopes that there are: where each of them says what happened, and where it has the row. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

FieldPath = tuple[str, ...]
"""Names of fields in one another, from the envelope on."""


class Change(IntEnum):
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

    `tool`: its name, for people; `kind`: the field that says the change, in one of `words`; `written`: the field with the row that is there
    after the change; `removed`: the one with the row that was deleted; `former`: what an update's row was before, whole or where it differs.
    `many`: these three are lists, item by item; `schema_change`: the field that is true where the message is of the table's shape;
    `named`: whether `database` and `table` say whose row it is.
    """

    tool: str
    kind: str
    words: tuple[tuple[str, Change], ...]
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
        ("c", Change.WRITTEN), ("r", Change.WRITTEN), ("u", Change.WRITTEN), ("d", Change.REMOVED), ("t", Change.TRUNCATED),
        ("m", Change.OTHER),
    ),
    written="after", removed="before", former="before",
)  # fmt: skip
CANAL = Envelope(
    "Canal", "type",
    (
        ("INSERT", Change.WRITTEN), ("UPDATE", Change.WRITTEN), ("DELETE", Change.REMOVED), ("TRUNCATE", Change.TRUNCATED),
        *((word, Change.OTHER) for word in ("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY")),
    ),
    written="data", removed="data", former="old", many=True, schema_change="isDdl", named=True,
)  # fmt: skip
MAXWELL = Envelope(
    "Maxwell", "type",
    (
        ("insert", Change.WRITTEN), ("update", Change.WRITTEN), ("bootstrap-insert", Change.WRITTEN), ("delete", Change.REMOVED),
        *((word, Change.OTHER) for word in ("bootstrap-start", "bootstrap-complete")),
        *((f"{what}-{how}", Change.OTHER) for what in ("table", "database") for how in ("create", "alter", "drop")),
    ),
    written="data", removed="data", former="old", named=True,
)  # fmt: skip
