"""Partitioners, which choose the partition of each message.

A user's function needs the rows, so it is called on the workers, and its partitions are staged
with the messages. Another attempt at the split may get other partitions. That publishes no
message twice, because a split is published from the files of a single attempt. So partitions
are not part of the checksum that two attempts must have in common.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import RefusedError, format_count
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.user_code import FunctionReference, load_function
from windrow.ingest.sinks.kafka.options import Partitioner

Numbers = npt.NDArray[np.int32]

BY_CLIENT = -1
"""Stands for a partition: the client chooses one by the key."""

BY_KEY = "murmur2"
"""librdkafka's name for the partitioner of `key-hash`, which Java's clients also have.

All messages with a null key go to the same partition.
"""

PARTITION = "partition"
"""Column of staged messages with the partition that the user's function chose."""


def partitions(
    partitioner: Partitioner, rows: int, first: int, split: int, source: int, count: int
) -> Numbers:
    """Returns the partitions of consecutive messages, if no function chooses them.

    Args:
        partitioner: the partitioner.
        rows: number of messages.
        first: number of messages of the same split before these.
        split: number of the split in the plan.
        source: the partition that the messages were read from.
        count: number of partitions of the target topic.
    """
    if partitioner == "round-robin":
        return ((np.arange(rows) + first + split) % count).astype(np.int32)
    chosen = {
        "default": BY_CLIENT,
        "key-hash": BY_CLIENT,
        "fixed": split % count,
        "source": source % count,
    }[partitioner]
    return np.full(rows, chosen, np.int32)


_DO = "Nothing was published. Fix the function, then run the window again."


class PartitionFunction(msgspec.Struct, frozen=True):
    """A user's function and its context. Picklable, with the function's file.

    Attributes:
        function: the function.
        topics: number of partitions of each target topic when staging began.
        only: the name of the target topic, if there is only one; None: a row names its
            topic.
    """

    function: FunctionReference
    topics: Mapping[str, int]
    only: str | None

    def with_partitions(
        self, encoded: pa.RecordBatch, rows: pa.RecordBatch, offsets: pa.Array, split: Split
    ) -> pa.RecordBatch:
        """Adds a column with the partition of each message.

        Args:
            encoded: the messages.
            rows: the rows that the messages were made from.
            offsets: the offset of each row's message.
            split: the split that the rows were read from.

        Raises:
            RefusedError: the function fails, or doesn't return one partition of the
                topic for each row.
            SpecError: the function can't be loaded.
        """
        if self.only is not None:
            chosen = self._partitions(self.only, encoded["key"], rows, offsets, split)
            return encoded.append_column(PARTITION, pa.array(chosen))
        chosen, topics = np.empty(encoded.num_rows, np.int32), encoded["topic"].dictionary_encode()
        codes = topics.indices.to_numpy()
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            indices = np.flatnonzero(codes == code)
            chosen[indices] = self._partitions(
                topic,
                encoded["key"].take(indices),
                rows.take(indices),
                offsets.take(indices),
                split,
            )
        return encoded.append_column(PARTITION, pa.array(chosen))

    def _partitions(
        self, topic: str, keys: pa.Array, rows: pa.RecordBatch, offsets: pa.Array, split: Split
    ) -> Numbers:
        function, count = load_function(self.function), self.topics[topic]
        try:
            returned = function(keys, rows, count)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            last = traceback.extract_tb(error.__traceback__)[-1]
            message = (
                f"The function {self.function} fails for rows that go to {topic}:"
                f" {type(error).__name__} ({last.filename}:{last.lineno})"
            )
            raise self._refused_error(message, split, offsets[0].as_py()) from None
        numbers = _whole_numbers(returned)
        if isinstance(numbers, str):
            message = (
                f"The function {self.function} must return a whole number for each row: for"
                f" {format_count(rows.num_rows, 'row')} that go to {topic} it returned {numbers}"
            )
            raise self._refused_error(message, split, offsets[0].as_py())
        if len(numbers) != rows.num_rows:
            message = (
                f"The function {self.function} returned {format_count(len(numbers), 'partition')}"
                f" for {format_count(rows.num_rows, 'row')} that go to {topic}"
            )
            raise self._refused_error(message, split, offsets[0].as_py())
        bad_rows = np.flatnonzero((numbers < 0) | (numbers >= count))
        if len(bad_rows):
            first = int(bad_rows[0])
            message = (
                f"The function {self.function} returned partition {numbers[first]} of {topic},"
                f" which has {format_count(count, 'partition')}, numbered from 0"
            )
            raise self._refused_error(message, split, offsets[first].as_py())
        return numbers.astype(np.int32)

    @staticmethod
    def _refused_error(message: str, split: Split, offset: int) -> RefusedError:
        return RefusedError(message, "stage", _DO, split.topic, split.partition, offset)


def _whole_numbers(returned: Any) -> np.ndarray[Any, Any] | str:
    """Returns a function's result as an array, or describes a result that isn't an array."""
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    if isinstance(returned, pa.Array):
        if returned.null_count:
            return f"{returned.null_count} nulls"
        if not pa.types.is_integer(returned.type):
            return f"an array of {returned.type}"
        returned = returned.to_numpy(zero_copy_only=False)
    if isinstance(returned, np.ndarray):
        if returned.ndim != 1 or not np.issubdtype(returned.dtype, np.integer):
            return f"an array of {returned.ndim} dimensions of {returned.dtype}"
        return returned
    return f"{type(returned).__name__}, which is no array of Arrow's or NumPy's"
