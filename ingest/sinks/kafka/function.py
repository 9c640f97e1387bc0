"""A user's function that says into which partition each message goes.

It is asked where rows are staged, for there the rows are at hand; what it says travels
with the staged messages. A split is published from the files of one attempt, in one
transaction, so another attempt may be told something else and no message is there
twice; which is why what a function says is no part of what two attempts must have in
common.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.load import FunctionReference, function_now
from windrow.ingest.sinks.kafka.places import PARTITION, Numbers

_DO = "Nothing was published. Fix the function, then run the window again."


class PartitionFunction(msgspec.Struct, frozen=True):
    """Which function, and how many partitions each topic had when the window was
    staged; `only`: the one topic, None: a row says which.

    Picklable: the function's file travels along.
    """

    function: FunctionReference
    topics: Mapping[str, int]
    only: str | None

    def beside(self, encoded: pa.RecordBatch, rows: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """Encoded messages with the partition of each, by the rows that they were made from.

        Raises:
            RefusedError: the function fails, or doesn't say a partition of the topic
                for each of them.
            SpecError: it can't be loaded.
        """
        if self.only is not None:
            found = self._asked(self.only, encoded["key"], rows, encoded["offset"], split)
            return encoded.append_column(PARTITION, pa.array(found))
        found, told = np.empty(encoded.num_rows, np.int32), encoded["topic"].dictionary_encode()
        codes = told.indices.to_numpy()
        for code, topic in enumerate(told.dictionary.to_pylist()):
            at = np.flatnonzero(codes == code)
            found[at] = self._asked(
                topic, encoded["key"].take(at), rows.take(at), encoded["offset"].take(at), split
            )
        return encoded.append_column(PARTITION, pa.array(found))

    def _asked(
        self, topic: str, keys: pa.Array, rows: pa.RecordBatch, offsets: pa.Array, split: Split
    ) -> Numbers:
        function, count = function_now(self.function), self.topics[topic]
        try:
            said = function(keys, rows, count)
        except Exception as error:  # noqa: BLE001
            last = traceback.extract_tb(error.__traceback__)[-1]
            what = (
                f"The function {self.function} fails for rows that go to {topic}:"
                f" {type(error).__name__} ({last.filename}:{last.lineno})"
            )
            raise self._refused(what, split, offsets[0].as_py()) from None
        numbers = _whole_numbers(said)
        if isinstance(numbers, str):
            what = (
                f"The function {self.function} must say a whole number for each row: for"
                f" {rows.num_rows} rows that go to {topic} {numbers}"
            )
            raise self._refused(what, split, offsets[0].as_py())
        if len(numbers) != rows.num_rows:
            what = (
                f"The function {self.function} says {len(numbers)} partitions for {rows.num_rows}"
                f" rows that go to {topic}"
            )
            raise self._refused(what, split, offsets[0].as_py())
        wrong = np.flatnonzero((numbers < 0) | (numbers >= count))
        if len(wrong):
            first = int(wrong[0])
            what = (
                f"The function {self.function} says partition {numbers[first]} of {topic}, which"
                f" has {count}, from 0 on"
            )
            raise self._refused(what, split, offsets[first].as_py())
        return numbers.astype(np.int32)

    @staticmethod
    def _refused(what: str, split: Split, offset: int) -> RefusedError:
        return RefusedError(what, "stage", _DO, split.topic, split.partition, offset)


def _whole_numbers(said: Any) -> np.ndarray[Any, Any] | str:
    """What a function gave back, as an array; or what it is instead."""
    if isinstance(said, pa.ChunkedArray):
        said = said.combine_chunks()
    if isinstance(said, pa.Array):
        if said.null_count:
            return f"it says {said.null_count} nulls"
        if not pa.types.is_integer(said.type):
            return f"it says {said.type}"
        said = said.to_numpy(zero_copy_only=False)
    if isinstance(said, np.ndarray):
        if said.ndim != 1 or not np.issubdtype(said.dtype, np.integer):
            return f"it says an array of {said.ndim} dimensions of {said.dtype}"
        return said
    return f"it gives back {type(said).__name__}, which is no array of Arrow's or NumPy's"
