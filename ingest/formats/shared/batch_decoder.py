"""Decoder of batches that tries a fast way first, then a strict way.

The fast way takes a message only if it is certainly a row. The strict way decodes each
other message alone, and decides whether it is a row or is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.decoded import DeadLetters
from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.ports.decoder import Decoded, Ignored

_LOG = logging.getLogger("windrow.decode")

_NO_DEFAULTS: Mapping[str, pa.Scalar] = {}
_CHUNK = 1 << 20
"""Bytes of messages whose rows are kept as Python objects until they become Arrow arrays."""


@dataclass(frozen=True)
class Taken:
    """Messages that the fast way took.

    Attributes:
        mask: True for each message that was taken.
        columns: the columns of the taken messages' rows, in the order of the messages.
        truncated: the numbers of the rows that have a truncated timestamp.
        ignored: the numbers of the messages with fields that no column is for.
    """

    mask: npt.NDArray[np.bool_]
    columns: list[pa.Array]
    truncated: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    ignored: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class FastWay(Protocol):
    """Fast way: a single pass over the bytes of many messages."""

    def ready(self) -> bool:
        """Returns whether the pass can start now, without waiting for its compilation."""

    def decode(self, messages: pa.BinaryArray, skip: int) -> Taken:
        """Decodes the messages that are certainly rows. A null is never taken.

        Args:
            messages: the messages.
            skip: the number of bytes to skip at the start of each message.
        """


class StrictWay(Protocol):
    """Strict way: decodes one message at a time, and refuses it if it isn't a row."""

    @property
    def truncation(self) -> Truncation:
        """Rule for timestamps finer than a microsecond, with the flags of the last message."""

    def decode(self, message: bytes) -> list[Any]:
        """Returns the values of the columns, in order, as Python objects for pyarrow.

        Raises:
            RefusedValueError: the message isn't a row.
        """

    def ignored_fields(self, message: bytes) -> Iterable[str]:
        """Returns the paths of fields that no column is for, in a message that is a row.

        The names in a path are joined with dots; a key of a map is `*`.
        """


class BatchDecoder:
    """Decodes batches of values by both ways.

    Only one thread may use it at a time, because a pass writes to memory of its own.
    """

    def __init__(
        self,
        schema: pa.Schema,
        fast: FastWay,
        strict: StrictWay,
        defaults: Mapping[str, pa.Scalar] = _NO_DEFAULTS,
        skip: int = 0,
    ) -> None:
        """Joins both ways.

        Args:
            schema: the schema of the rows.
            fast: the fast way.
            strict: the strict way.
            defaults: the values of columns that neither way decodes, by column.
            skip: the number of bytes to skip at the start of each message.
        """
        self._full_schema, self._defaults, self._skip = schema, defaults, skip
        self.schema = pa.schema([field for field in schema if field.name not in defaults])
        self.fast, self.strict = fast, strict

    def decode(self, values: pa.BinaryArray, on_null: Literal["dead", "drop"]) -> Decoded:
        """Returns the verdict on each message."""
        dead = DeadLetters()
        fast_rows = self.decode_fast(values)
        strict_rows, dropped, cut, ignored = (
            _StrictRows(self.schema, dead),
            0,
            np.flatnonzero(fast_rows.mask)[fast_rows.truncated].tolist(),
            list[int](),
        )
        for i in np.flatnonzero(~fast_rows.mask).tolist():
            message = values[i].as_py()
            if message is None and on_null == "drop":
                dropped += 1
                continue
            try:
                row = self._strictly(message)
                cut += [i] * self.strict.truncation.done
                ignored += [i] * self.strict.truncation.ignored
                strict_rows.add(i, row, len(message or b""))
            except RefusedValueError as refusal:
                dead.add(i, refusal)
        rows, index = self._merge_ways(fast_rows, *strict_rows.arrays())
        return Decoded(
            rows,
            pa.array(index, pa.int64()),
            *dead.arrays(),
            dropped,
            cut=np.array(sorted(cut), np.int64),
            ignored=self._merge_ignored(values, fast_rows.ignored, ignored),
        )

    def _merge_ignored(
        self, values: pa.BinaryArray, fast: npt.NDArray[np.int64], strict: list[int]
    ) -> tuple[Ignored, ...]:
        """Returns the messages of both ways that have fields that no column is for."""
        index = np.sort(np.concatenate([fast, np.array(strict, np.int64)])) if strict else fast

        def fields(position: int) -> Iterable[str]:
            return self.strict.ignored_fields(values[int(index[position])].as_py()[self._skip :])

        return (Ignored(index, fields),) if len(index) else ()

    def decode_fast(self, values: pa.BinaryArray) -> Taken:
        """Runs the fast way; takes no message if the fast way isn't ready, or fails.

        It most likely fails because memory ran out. The strict way needs little memory,
        and decodes all messages then.
        """
        try:
            if self.fast.ready():
                return self.fast.decode(values, self._skip)
        except Exception as error:  # no message may stop a window, not even one that shows a bug  # noqa: BLE001
            _LOG.warning(
                "A batch is decoded slowly: the fast way failed with %s.", type(error).__name__
            )
        return Taken(np.zeros(len(values), np.bool_), [pa.array([], f.type) for f in self.schema])

    def _strictly(self, message: bytes | None) -> list[object]:
        if message is None:
            raise RefusedValueError("tombstone", "Expected a value, got a tombstone", "")
        self.strict.truncation.done = self.strict.truncation.ignored = False
        try:
            return self.strict.decode(message[self._skip :])
        except RefusedValueError:
            raise
        except Exception as error:  # no message may stop a window  # noqa: BLE001
            raise _undecodable(error) from None

    def _merge_ways(
        self, fast_rows: Taken, strict_rows: list[pa.Array], strict_index: list[int]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Returns the rows of both ways in the order of the messages.

        Returns:
            The rows, and the number of each row's message.
        """
        index, columns = (
            np.flatnonzero(fast_rows.mask).astype(np.int64, copy=False),
            fast_rows.columns,
        )
        if strict_index:
            merged_index = np.concatenate([index, np.array(strict_index, np.int64)])
            order = np.argsort(merged_index, kind="stable")
            columns = [
                pa.concat_arrays([c, m]).take(pa.array(order))
                for c, m in zip(columns, strict_rows, strict=True)
            ]
            index = merged_index[order]
        decoded_columns = iter(columns)
        all_columns = [
            pa.repeat(self._defaults[name], len(index))
            if name in self._defaults
            else next(decoded_columns)
            for name in self._full_schema.names
        ]
        return pa.RecordBatch.from_arrays(all_columns, schema=self._full_schema), index


class _StrictRows:
    """Rows of the strict way, and the messages that they came from.

    Python objects take many times the memory of the message, so the rows become Arrow
    arrays after every `_CHUNK` bytes of messages.
    """

    def __init__(self, schema: pa.Schema, dead: DeadLetters) -> None:
        self.schema = schema
        self._dead = dead
        self._rows: list[list[object]] = []
        self._waiting: list[int] = []  # the message numbers of `_rows`
        self._bytes = 0
        self._chunks: list[list[pa.Array]] = [[pa.nulls(0, f.type) for f in schema]]
        self._index: list[int] = []

    def add(self, index: int, row: list[object], size: int) -> None:
        self._rows.append(row)
        self._waiting.append(index)
        self._bytes += size
        if self._bytes > _CHUNK:
            self._flush()

    def arrays(self) -> tuple[list[pa.Array], list[int]]:
        """Returns the columns, and the message number of each row."""
        self._flush()
        return [pa.concat_arrays(column) for column in zip(*self._chunks, strict=True)], self._index

    def _flush(self) -> None:
        rows, waiting = self._rows, self._waiting
        self._rows, self._waiting, self._bytes = [], [], 0
        try:
            self._convert(rows, waiting)
        # A column can't hold one of the values: only the row of that value is refused.
        except Exception:  # noqa: BLE001
            for row, index in zip(rows, waiting, strict=True):
                try:
                    self._convert([row], [index])
                except Exception as error:  # noqa: BLE001
                    self._dead.add(index, _undecodable(error))

    def _convert(self, rows: list[list[object]], index: list[int]) -> None:
        if rows:
            self._chunks.append(
                [
                    pa.array(v, f.type)
                    for v, f in zip(zip(*rows, strict=True), self.schema, strict=True)
                ]
            )
            self._index += index


def _undecodable(error: Exception) -> RefusedValueError:
    """Returns a refusal with the type of the error. The error's text may hold values."""
    if isinstance(error, MemoryError):
        return RefusedValueError(
            "too_large", "Expected a message that fits into the memory of the task", ""
        )
    return RefusedValueError(
        "undecodable",
        f"The decoder failed with {type(error).__name__}: report a bug, with the message",
        "",
    )
