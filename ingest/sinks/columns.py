"""Which columns windrow's own files hold: of rows, and of dead letters. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ingest.schema.messages import HEADERS
from ingest.schema.metadata import DEFAULT, fields

DEAD_FILE = pa.schema(
    [
        *fields(DEFAULT)[:-1],
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("schema_id", pa.string()),
        pa.field("attempt", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("pipeline", pa.string(), nullable=False),
    ]
)
"""One dead letter a row: the whole message, why it was refused, which schema it named, and by which attempt. These columns, and
`DEFAULT["window"]` by which their table is partitioned, have the same names whatever the table of rows calls such things."""

DEAD_LETTERS = DEAD_FILE.append(pa.field(DEFAULT["window"], pa.string()))
"""As they are read: with the window's key."""


def file_schema(rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """What a staged file of rows holds: the row columns, then what they say of the message that each row came from."""
    return pa.schema([*(pa.field(f.name, f.type, f.nullable) for f in rows), *fields(metadata)[:-1]])
