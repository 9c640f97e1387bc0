"""Chooses and reads dead letters of windows, and converts them to messages or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.export import iso_instant, payload
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.decoder import STAGES
from windrow.ingest.runner.dead_publishing import dead_letters_of_attempt
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_FILE, fit_columns

PAYLOAD = ("key", "value", "headers")
"""The columns with the message itself."""


class Chosen(msgspec.Struct, frozen=True):
    """A choice of a window's dead letters.

    Any reason is accepted, because formats and rules have their own reasons.

    Attributes:
        stage: the stage that refused the message; None: any.
        reason: the reason; None: any.

    Raises:
        SpecError: there is no such stage.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        chosen = windrow.Chosen(stage="value", reason="not_json")
        request = windrow.DeadReplayRequest("after the fix", chosen)
        print(windrow.replay_dead_letters(pipeline, window, request).tried, "were tried")
    """

    stage: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.stage is not None and self.stage not in STAGES:
            raise SpecError(
                f"There is no stage {self.stage!a} of dead letters",
                "spec",
                f"Name one of {', '.join(STAGES)}.",
            )

    def may_be_in(self, receipt: Receipt) -> bool:
        """Returns whether a window may have chosen dead letters, by the counts of its receipt.

        A receipt counts dead letters by reason, not by stage.
        """
        return receipt.counts.dead > 0 and (
            self.reason is None
            or any(self.reason == reason for s in receipt.splits for reason, _ in s.reasons)
        )

    def count_by_reason(self, receipts: Iterable[Receipt]) -> Counter[str]:
        """Counts the dead letters of committed windows by reason, over all stages."""
        totals = sum((receipt.reasons for receipt in receipts), Counter[str]())
        return Counter({r: n for r, n in totals.items() if self.reason in {None, r}})

    def mask(self, dead_letters: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        mask = np.ones(dead_letters.num_rows, bool)
        for column, expected in (("stage", self.stage), ("reason", self.reason)):
            if expected is not None:
                mask &= pc.equal(dead_letters[column], expected).to_numpy(zero_copy_only=False)
        return mask


def dead_letters_of(store: DeadLetters, window: Window, attempt: str) -> Iterator[pa.RecordBatch]:
    """Returns an attempt's dead letters of a window, in batches of bounded size.

    They have the columns of `DEAD_FILE`. Errors are raised while the iterator is read.

    Raises:
        UnreachableError: the dead-letter store doesn't answer.
        RefusedError: the dead letters are damaged or lost.
    """
    return (
        fit_columns(batch, DEAD_FILE) for batch in dead_letters_of_attempt(store, window, attempt)
    )


def messages_of(dead_letters: pa.RecordBatch) -> pa.RecordBatch:
    """Converts dead letters to messages. A timestamp that no table can store becomes null."""
    names = {DEFAULT[name]: name for name in ("topic", "partition", "offset", "timestamp")}
    plain = [names.get(name, name) for name in dead_letters.schema.names]
    return fit_columns(dead_letters.rename_columns(plain), MESSAGES)


def documents(dead_letters: pa.RecordBatch) -> list[dict[str, Any]]:
    """Converts dead letters to JSON documents: ISO instants, bytes as text if they are UTF-8."""
    stamps = (
        dead_letters["_timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    )
    plain = dead_letters.set_column(
        dead_letters.schema.get_field_index("_timestamp"), "_timestamp", stamps
    )
    return [_document(dead_letter) for dead_letter in plain.to_pylist()]


def _document(dead_letter: dict[str, Any]) -> dict[str, Any]:
    stamp = dead_letter["_timestamp"]
    instant = None if stamp is None else iso_instant(stamp)
    return dead_letter | {"_timestamp": instant} | payload(dead_letter)


def refused_attempts(
    store: DeadLetters, committed: Collection[Window], windows: Sequence[Window] | None
) -> dict[str, str]:
    """Returns the newest attempt with dead letters of each window that isn't committed, by key.

    Such an attempt was refused, died before its commit, or is running.

    Args:
        store: the dead letters; it knows the attempts that staged some.
        committed: the committed windows.
        windows: the windows to look for; None: all.
    """
    committed_keys = {window.key for window in committed}
    if windows is None:
        return store.attempts(lambda key: key not in committed_keys)
    return store.attempts(
        {window.key for window in windows}.difference(committed_keys).__contains__
    )
