"""Two ways to a verdict: the fast one, which takes a message only where it is certain,
then the strict one, alone, whose verdict counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.shared.refusal import RefusedValueError, Truncation
from windrow.ingest.ports.decoder import Decoded

_LOG = logging.getLogger("windrow.decode")

_NONE: Mapping[str, pa.Scalar] = {}
_CHUNK = 1 << 20
"""Bytes of messages whose rows wait as Python's objects."""


@dataclass(frozen=True)
class Taken:
    """Which messages were taken, and their rows' columns, in the order of the messages;
    which rows have a timestamp truncated.
    """

    mask: npt.NDArray[np.bool_]
    columns: list[pa.Array]
    truncated: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class FastWay(Protocol):
    """The fast way: one pass over the bytes of many messages."""

    def decode(self, messages: pa.BinaryArray, skip: int) -> Taken:
        """Decodes the messages that are certainly rows, without so many bytes before each.

        A null is not taken.
        """


class StrictWay(Protocol):
    """The truth about one message."""

    @property
    def truncation(self) -> Truncation:
        """What becomes of its timestamps that are finer than a microsecond."""

    def decode(self, message: bytes) -> list[Any]:
        """The values of the columns, in order, as pyarrow takes them.

        Raises:
            RefusedValueError: with the reason.
        """


class BatchDecoder:
    """Decodes batches. Not for several threads at once: a pass writes to memory of its own.

    `defaults`: the values of those columns of the schema that neither way decodes;
    `skip`: bytes before each message.
    """

    def __init__(
        self,
        schema: pa.Schema,
        fast: FastWay,
        strict: StrictWay,
        defaults: Mapping[str, pa.Scalar] = _NONE,
        skip: int = 0,
    ) -> None:
        self._whole, self._defaults, self._skip = schema, defaults, skip
        self._schema = pa.schema([field for field in schema if field.name not in defaults])
        self.fast, self.strict = fast, strict

    def decode(self, values: pa.BinaryArray, on_null: Literal["dead", "drop"]) -> Decoded:
        """The verdict on each message."""
        dead = _Dead()
        taken = self._taken(values)
        slow, dropped, cut = (
            _Slow(self._schema, dead),
            0,
            np.flatnonzero(taken.mask)[taken.truncated].tolist(),
        )
        for i in np.flatnonzero(~taken.mask).tolist():
            message = values[i].as_py()
            if message is None and on_null == "drop":
                dropped += 1
                continue
            try:
                row = self._decoded(message)
                cut += [i] * self.strict.truncation.done
                slow.add(i, row, len(message or b""))
            except RefusedValueError as refusal:
                dead.add(i, refusal)
        rows, index = self._merged(taken, *slow.arrays())
        return Decoded(
            rows,
            pa.array(index, pa.int64()),
            *dead.arrays(),
            dropped,
            cut=np.array(sorted(cut), np.int64),
        )

    def _taken(self, values: pa.BinaryArray) -> Taken:
        """What the pass takes; nothing if it fails, most likely because memory ran out:
        the strict way needs little, and judges alone.
        """
        try:
            return self.fast.decode(values, self._skip)
        except Exception as error:  # no message may stop a window, not even one that shows a bug  # noqa: BLE001
            _LOG.warning(
                "a batch is decoded slowly, the fast way failed with %s", type(error).__name__
            )
            return Taken(
                np.zeros(len(values), np.bool_), [pa.array([], f.type) for f in self._schema]
            )

    def _decoded(self, message: bytes | None) -> list[object]:
        if message is None:
            raise RefusedValueError("tombstone", "Expected a value, got none", "")
        self.strict.truncation.done = False
        try:
            return self.strict.decode(message[self._skip :])
        except RefusedValueError:
            raise
        except Exception as error:  # as above  # noqa: BLE001
            raise _undecodable(error) from None

    def _merged(
        self, taken: Taken, slow: list[pa.Array], slow_index: list[int]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The rows of both ways in the order of the messages, and which messages they came from."""
        index, columns = np.flatnonzero(taken.mask).astype(np.int64, copy=False), taken.columns
        if slow_index:
            both = np.concatenate([index, np.array(slow_index, np.int64)])
            order = np.argsort(both, kind="stable")
            columns = [
                pa.concat_arrays([c, m]).take(pa.array(order))
                for c, m in zip(columns, slow, strict=True)
            ]
            index = both[order]
        found = iter(columns)
        whole = [
            pa.repeat(self._defaults[name], len(index)) if name in self._defaults else next(found)
            for name in self._whole.names
        ]
        return pa.RecordBatch.from_arrays(whole, schema=self._whole), index


class _Slow:
    """Rows of the strict way: as Python's objects, which take many times the memory of
    the message, only until there are some.
    """

    def __init__(self, schema: pa.Schema, dead: _Dead) -> None:
        self._schema = schema
        self._dead = dead
        self._rows: list[list[object]] = []
        self._waiting: list[int] = []  # their messages
        self._bytes = 0
        self._chunks: list[list[pa.Array]] = [[pa.array([], f.type) for f in schema]]
        self._index: list[int] = []

    def add(self, index: int, row: list[object], size: int) -> None:
        self._rows.append(row)
        self._waiting.append(index)
        self._bytes += size
        if self._bytes > _CHUNK:
            self._flush()

    def arrays(self) -> tuple[list[pa.Array], list[int]]:
        """The columns, and which messages they came from."""
        self._flush()
        return [pa.concat_arrays(column) for column in zip(*self._chunks, strict=True)], self._index

    def _flush(self) -> None:
        rows, waiting = self._rows, self._waiting
        self._rows, self._waiting, self._bytes = [], [], 0
        try:
            self._convert(rows, waiting)
        except (
            Exception  # noqa: BLE001
        ):  # one of them is a value that its column can't hold after all: only that one is refused
            for row, index in zip(rows, waiting, strict=True):
                try:
                    self._convert([row], [index])
                except Exception as error:  # as above  # noqa: BLE001
                    self._dead.add(index, _undecodable(error))

    def _convert(self, rows: list[list[object]], index: list[int]) -> None:
        if rows:
            self._chunks.append(
                [
                    pa.array(v, f.type)
                    for v, f in zip(zip(*rows, strict=True), self._schema, strict=True)
                ]
            )
            self._index += index


def _undecodable(error: Exception) -> RefusedValueError:
    """A dead letter with the type of what was raised; its text may hold values."""
    if isinstance(error, MemoryError):
        return RefusedValueError(
            "too_large", "Expected a message that fits into the memory of the task", ""
        )
    return RefusedValueError(
        "undecodable",
        f"The decoder failed with {type(error).__name__}: report a bug, with the message",
        "",
    )


class _Dead:
    """Dead letters as they are found."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str, str, str]] = []

    def add(self, index: int, refusal: RefusedValueError) -> None:
        self._found.append((index, refusal.stage, refusal.reason, refusal.detail))

    def arrays(self) -> tuple[pa.Int64Array, pa.StringArray, pa.StringArray, pa.StringArray]:
        """Index, stage, reason and detail, in the order of the messages."""
        self._found.sort()
        index, *words = list(zip(*self._found, strict=True)) or [(), (), (), ()]
        stage, reason, detail = (pa.array(of, pa.string()) for of in words)
        return pa.array(index, pa.int64()), stage, reason, detail
