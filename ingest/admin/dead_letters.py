"""Which dead letters are a window's: the store knows attempts, the sink which of them counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.files import iso_instant, text_or_base64
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.decoder import STAGES
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.dead_publishing import dead_letters_of_attempt
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.sinks.columns import DEAD_FILE, DEAD_LETTERS


def read_dead(
    sink: Sink,
    store: DeadLetters,
    window: Window,
    limit: int | None = None,
    attempt: str | None = None,
) -> pa.Table:
    """A window's dead letters, at most `limit`: `_topic, _partition, _offset,
    _timestamp`, the message, `stage, reason, detail`.

    Those of the attempt that the sink's receipt names, none if the window isn't
    committed; or, to look into a refusal, those of another `attempt`.
    """
    if attempt is None:
        committed = sink.look(window)
        if committed is None:
            return DEAD_LETTERS.empty_table()
        attempt = committed.receipt.attempt
    return store.read(window, attempt, limit)


PAYLOAD = ("key", "value", "headers")
"""The columns of dead letters that hold what was sent."""


class Chosen(msgspec.Struct, frozen=True):
    """Some of a window's dead letters: those of a stage, those with a reason, or both; None: any.

    Raises:
        SpecError: there is no such stage. Reasons are the formats' and the rules' own,
            so any may be asked for.
    """

    stage: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """No dead letter is of a stage that there isn't, so who names one means another."""
        if self.stage is not None and self.stage not in STAGES:
            raise SpecError(
                f"There is no stage {self.stage!a} of dead letters",
                "spec",
                f"Name one of {', '.join(STAGES)}.",
            )

    def may_be_in(self, receipt: Receipt) -> bool:
        """Whether a window has any, as far as its receipt tells, which knows reasons alone."""
        return receipt.counts.dead > 0 and (
            self.reason is None
            or any(self.reason == reason for s in receipt.splits for reason, _ in s.reasons)
        )

    def mask(self, letters: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which of a batch they are."""
        chosen = np.ones(letters.num_rows, bool)
        for column, wanted in (("stage", self.stage), ("reason", self.reason)):
            if wanted is not None:
                chosen &= pc.equal(letters[column], wanted).to_numpy(zero_copy_only=False)
        return chosen


def letters_of(store: DeadLetters, window: Window, attempt: str) -> Iterator[pa.RecordBatch]:
    """An attempt's dead letters of a window, in batches of bounded size that have the
    columns of `DEAD_LETTERS` but for the window's.

    Raises (when read on):
        UnreachableError, RefusedError: as `ports.dead_letters.DeadLetters.contents`.
    """
    return map(_as_now, dead_letters_of_attempt(store, window, attempt))


def _as_now(letters: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of today: a file may be older, and have fewer, or have been rewritten
    with other types for the same.
    """
    there = set(letters.schema.names)
    columns = [
        letters[f.name].cast(f.type) if f.name in there else pa.nulls(letters.num_rows, f.type)
        for f in DEAD_FILE
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_FILE)


def messages_of(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters as the messages that they are.

    A timestamp that no table can hold was null already.
    """
    names = {f"{DEFAULT[name]}": name for name in ("topic", "partition", "offset", "timestamp")}
    columns = {
        names.get(name, name): column
        for name, column in zip(letters.schema.names, letters.columns, strict=True)
    }
    return pa.RecordBatch.from_arrays(
        [_as(columns[f.name], f.type) for f in MESSAGES], schema=MESSAGES
    )


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return (
        column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    )


def documents(letters: pa.RecordBatch) -> list[dict[str, Any]]:
    """Dead letters as JSON has them: instants in ISO's form, bytes as text where they are UTF-8."""
    stamps = letters["_timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    plain = letters.set_column(letters.schema.get_field_index("_timestamp"), "_timestamp", stamps)
    return [_document(letter) for letter in plain.to_pylist()]


def _document(letter: dict[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = {
        name: text_or_base64(letter[name]) for name in ("key", "value") if name in letter
    }
    if "headers" in letter:
        payload["headers"] = [
            {"key": header["key"], "value": text_or_base64(header["value"])}
            for header in letter["headers"]
        ]
    stamp = letter["_timestamp"]
    return letter | {"_timestamp": None if stamp is None else iso_instant(stamp)} | payload


def refused_attempts(
    sink: Sink, store: DeadLetters, windows: Sequence[Window] | None = None
) -> dict[str, str]:
    """Of windows that aren't committed and have dead letters all the same: the newest
    attempt that left any.

    Writes nothing.

    Such an attempt was refused, or died before its commit, or is at work now.

    Args:
        sink: says what is committed.
        store: says who left dead letters.
        windows: of these; None: of all.
    """
    if windows is None:
        committed = {c.receipt.window.key for c in sink.receipts()}
        return store.attempts(lambda key: key not in committed)
    waiting = {
        window.key
        for window, committed in zip(windows, sink.looks(windows), strict=True)
        if committed is None
    }
    return store.attempts(waiting.__contains__)
