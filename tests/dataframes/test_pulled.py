"""A read with a callback as an iterator."""

from __future__ import annotations

import pyarrow as pa
import pytest

from windrow.ingest.ports.reader import Take, batch_iterator


def batch(n: int) -> pa.RecordBatch:
    """Returns a batch of one row."""
    return pa.record_batch({"n": [n]})


def test_all_in_order() -> None:
    """Each batch comes once, in the order of the read."""

    def read(take: Take) -> None:
        for n in range(100):
            take(batch(n))

    assert [b["n"][0].as_py() for b in batch_iterator(read)] == list(range(100))


def test_an_error_comes_behind_the_batches_before_it() -> None:
    """An error of the read is raised unchanged by the iterator, after the batches before it."""

    def read(take: Take) -> None:
        take(batch(1))
        raise ValueError("expired")

    batches = batch_iterator(read)
    assert next(batches)["n"][0].as_py() == 1
    with pytest.raises(ValueError, match="expired"):
        next(batches)


def test_who_stops_asking_ends_the_read() -> None:
    """Closing the iterator ends the read and runs its clean-up, so `limit()` leaves no
    client open.
    """
    yielded, closed = [], []

    def read(take: Take) -> None:
        try:
            for n in range(100):
                yielded.append(n)
                take(batch(n))
        finally:
            closed.append(True)

    batches = batch_iterator(read)
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator
    assert closed == [True]
    assert len(yielded) <= 3
