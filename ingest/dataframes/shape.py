"""The rows of a DataFrame: messages as they are, or the rows that a pipeline makes of them.

Both classes have `schema`, the columns, and `open(split)`, which returns a function from
a batch of the split's messages to one array per column, of its type or one that casts to
it. Both are picklable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.accounting import refuse_unplaced
from windrow.ingest.runner.task import rows_with_messages
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.metadata_arrays import columns as metadata_columns
from windrow.ingest.schema.metadata_arrays import of_message
from windrow.ingest.schema.metadata_types import TYPES, fields
from windrow.ingest.schema.row_changes import change_schema

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoded, Decoder
    from windrow.ingest.ports.transform import Transform


@dataclass(frozen=True)
class AsMessages:
    """Messages with all their fields; a timestamp that no table can hold is null."""

    @property
    def schema(self) -> pa.Schema:
        kinds = {"timestamp": TYPES["timestamp"], "timestamp_type": TYPES["timestamp-type"]}
        return pa.schema(
            [pa.field(f.name, kinds.get(f.name, f.type), f.nullable) for f in MESSAGES]
        )

    def open(self, split: Split) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        del split
        at = MESSAGES.get_field_index("timestamp")
        return lambda messages: [
            metadata_columns(["timestamp"], messages, "")[0] if i == at else column
            for i, column in enumerate(messages.columns)
        ]


@dataclass(frozen=True)
class AsRows:
    """The rows of a pipeline's table, with the metadata columns of their messages.

    `primary_key`: of a table that has one; then the rows are changes, in the order of
    each split's log, and the last column says which are deletes
    (`ingest.schema.row_changes`). `drops`: True if messages that can't become rows are left
    out; else they refuse the read.
    """

    decoder: Decoder
    transform: Transform
    rows: pa.Schema
    metadata: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    drops: bool = False

    @property
    def schema(self) -> pa.Schema:
        own = change_schema(self.rows, self.primary_key) if self.primary_key else self.rows
        return pa.schema([*own, *fields(self._metadata_columns)])

    @property
    def _metadata_columns(self) -> dict[str, str]:
        """The metadata columns that come from messages alone."""
        return of_message(self.metadata)

    def open(self, split: Split) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        """Returns the function from messages to arrays.

        Raises:
            RefusedError: a message can't become a row; when the function is called.
        """
        decode, transform, names = (
            self.decoder.open(),
            self.transform.open(),
            list(self._metadata_columns),
        )

        def shape(messages: pa.RecordBatch) -> list[pa.Array]:
            decoded = transform(decode(messages), messages)
            refuse_unplaced(split, messages, decoded, keyed=bool(self.primary_key))
            if len(decoded.dead_index) and not self.drops:
                raise _undecodable(split, messages, decoded)
            rows, of_rows = rows_with_messages(messages, decoded, keyed=bool(self.primary_key))
            return [*rows.columns, *metadata_columns(names, of_rows, "")]

        return shape


Shape = AsMessages | AsRows


def _undecodable(split: Split, messages: pa.RecordBatch, decoded: Decoded) -> RefusedError:
    """Makes the error of a batch's first message that can't become a row."""
    offset = messages.column("offset")[decoded.dead_index[0].as_py()].as_py()
    reason, detail = decoded.dead_reason[0].as_py(), decoded.dead_detail[0].as_py()
    others = (
        f", and {len(decoded.dead_index) - 1} more after it" if len(decoded.dead_index) > 1 else ""
    )
    return RefusedError(
        f"A message can't become a row: {reason}: {detail}{others}",
        "decode",
        "Fix the schema, read columns=messages, or set mode=dropmalformed, which leaves such"
        " messages out.",
        split.topic,
        split.partition,
        offset,
    )
