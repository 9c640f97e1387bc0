"""Which dead letters are a window's: the store knows attempts, the sink which of them counts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ingest.model.window import Window
from ingest.ports.dead_letters import DeadLetters
from ingest.ports.sink import Sink
from ingest.sinks.columns import DEAD_LETTERS


def read_dead(sink: Sink, store: DeadLetters, window: Window, limit: int | None = None, attempt: str | None = None) -> pa.Table:
    """A window's dead letters, at most `limit`: `_topic, _partition, _offset, _timestamp`, the message, `stage, reason, detail`.

    Those of the attempt that the sink's receipt names, none if the window isn't committed; or, to look into a refusal, those of another
    `attempt`.
    """
    if attempt is None:
        committed = sink.look(window)
        if committed is None:
            return DEAD_LETTERS.empty_table()
        attempt = committed.receipt.attempt
    return store.read(window, attempt, limit)


def refused_attempts(sink: Sink, store: DeadLetters, windows: Sequence[Window] | None = None) -> dict[str, str]:
    """Of windows that aren't committed and have dead letters all the same: the newest attempt that left any. Writes nothing.

    Such an attempt was refused, or died before its commit, or is at work now.

    Args:
        sink: says what is committed.
        store: says who left dead letters.
        windows: of these; None: of all.
    """
    if windows is None:
        committed = {c.receipt.window.key for c in sink.receipts()}
        return store.attempts(lambda key: key not in committed)
    waiting = {window.key for window, committed in zip(windows, sink.looks(windows), strict=True) if committed is None}
    return store.attempts(waiting.__contains__)
