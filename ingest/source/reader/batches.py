"""Arrow batches of messages: built from columns, measured, and gathered to a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.schema.messages import HEADERS, MESSAGES, TIMESTAMP_TYPES

HeaderList = list[tuple[str, bytes | None]]

UNREADABLE = "windrow.unreadable-headers"
"""The name of the header that replaces a message's headers if they can't be decoded."""

UNREADABLE_HEADERS: HeaderList = [(UNREADABLE, None)]

_NO_TIMESTAMP = -1
_STAMP = pa.timestamp("ms", tz="UTC")
_NO_HEADERS = pa.nulls(0, HEADERS.value_type)  # pa.array would load pandas


def columns_to_batch(
    tp: TopicPartition,
    offsets: npt.NDArray[np.int64],
    stamps: npt.NDArray[np.int64],
    types: npt.NDArray[np.int8],
    keys: pa.Array,
    values: pa.Array,
    headers: pa.Array,
    epochs: pa.Array,
) -> pa.RecordBatch:
    """Makes a `MESSAGES` batch of messages of one topic-partition.

    Args:
        tp: the topic-partition.
        offsets: the messages' offsets.
        stamps: the timestamps, as librdkafka gives them.
        types: the types of the timestamps, as librdkafka gives them.
        keys: the messages' keys.
        values: the messages' values.
        headers: the messages' headers, as a `HEADERS` column.
        epochs: the messages' leader epochs.
    """
    columns = [
        pa.repeat(pa.scalar(tp.topic, pa.string()), len(offsets)),
        pa.repeat(pa.scalar(tp.partition, pa.int32()), len(offsets)),
        pa.array(offsets),
        _stamps(stamps, types),
        # pa.DictionaryArray, because pa.array would load pandas
        pa.DictionaryArray.from_arrays(pa.array(types), pa.array(TIMESTAMP_TYPES, pa.string())),
        keys,
        values,
        headers,
        epochs,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def first_later(batch: pa.RecordBatch, epoch: int | None) -> int | None:
    """Returns the first row that was written under a later leader epoch than `epoch`.

    It is None if there is no such row, or if `epoch` is None.
    """
    epochs = batch.column("leader_epoch")
    highest = None if epoch is None else pc.max(epochs).as_py()
    if highest is None or highest <= epoch:
        return None
    return int(pc.index(pc.greater(epochs, epoch), value=True).as_py())


def byte_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the total bytes of keys and values up to and including each row.

    They come from the columns' own offsets, so there is no computation for each message.
    """
    keys, values = (_ends(batch.column(name)) for name in ("key", "value"))
    return keys + values


def header_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the total bytes of header names and values up to and including each row."""
    headers = batch.column("headers")
    edges: npt.NDArray[np.int32] = headers.offsets.to_numpy()
    names, values = (_offsets(headers.values.field(i))[edges].astype(np.int64) for i in range(2))
    ends: npt.NDArray[np.int64] = names + values
    row_ends: npt.NDArray[np.int64] = ends[1:] - ends[0]
    return row_ends


def _stamps(stamps: npt.NDArray[np.int64], types: npt.NDArray[np.int8]) -> pa.Array:
    missing = (stamps == _NO_TIMESTAMP) | (types == 0)
    return pa.array(stamps, mask=missing if missing.any() else None).view(_STAMP)


def headers_to_array(headers: Sequence[HeaderList | None]) -> pa.Array:
    """Makes the column of headers; None is a message without headers."""
    ends = np.zeros(len(headers) + 1, np.int32)
    pairs = _NO_HEADERS
    if any(headers):
        np.cumsum([len(message or ()) for message in headers], out=ends[1:])
        flat = [pair for message in headers for pair in message or ()]
        columns = [
            pa.array([key for key, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ]
        pairs = pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS)


def _ends(column: pa.Array) -> npt.NDArray[np.int64]:
    offsets = _offsets(column)
    ends: npt.NDArray[np.int64] = offsets[1:].astype(np.int64) - offsets[0]
    return ends


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Returns the offset of each text or binary in its data, and the end of the last one."""
    end = column.offset + len(column) + 1
    buffer = column.buffers()[1]
    return (
        np.frombuffer(buffer, np.int32)[column.offset : end]
        if buffer is not None and buffer.size
        else np.zeros(1, np.int32)
    )


@dataclass
class Gatherer:
    """Gathers rows into batches of a bounded size.

    A single message that is larger becomes a batch alone.

    Attributes:
        rows_max: the most rows of a batch.
        bytes_max: the most bytes of keys, values and headers of a batch.
    """

    rows_max: int
    bytes_max: int
    _pieces: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def add(self, batch: pa.RecordBatch, ends: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Takes a batch in, and yields the batches that are full.

        Args:
            batch: the batch.
            ends: the total bytes up to and including each row.
        """
        first = 0
        while first < batch.num_rows:
            start_bytes = int(ends[first - 1]) if first else 0
            fitting = (
                int(np.searchsorted(ends, start_bytes + self.bytes_max - self._bytes, side="right"))
                - first
            )
            row_count = min(fitting, self.rows_max - self._rows, batch.num_rows - first)
            if row_count == 0 and not self._pieces:
                row_count = 1
            if row_count:
                self._pieces.append(batch.slice(first, row_count))
                self._rows += row_count
                self._bytes += int(ends[first + row_count - 1]) - start_bytes
                first += row_count
            if first < batch.num_rows or self._rows == self.rows_max:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the gathered rows, if there are any."""
        if self._pieces:
            batch = pa.concat_batches(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
            self._pieces, self._rows, self._bytes = [], 0, 0
            yield batch
