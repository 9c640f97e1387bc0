"""The counts of a receipt: missing offsets, totals of splits, and the digest of its plan."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.model.test_plan import PLAN
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, Counts, Receipt, SplitCounts

ONE = SplitCounts(
    "t", 0, 10, 100, 100, 40, 1_000, 30, 7, 3, 30, 7, 5, skipped=20, late=2, early=1, rows=30
)
TWO = SplitCounts("t", 1, 0, 9, 9, 9, 200, 9, 0, 0, 9, 0, 0, late=4, early=8, rows=9)


def test_what_is_missing_was_there_and_held_nothing_visible() -> None:
    """`missing` is the range without the offsets that were read and skipped."""
    assert (ONE.missing, TWO.missing) == (30, 0)


def test_a_windows_totals() -> None:
    """Each count of a window is the sum over its splits, and 0 without splits."""
    assert Counts.total(iter([ONE, TWO])) == Counts(
        read=49,
        bytes=1_200,
        valid=39,
        dead=7,
        dropped=3,
        invisible=30,
        aborted=5,
        skipped=20,
        late=6,
        early=9,
        rows=39,
        filtered=0,
    )
    assert Counts.total([]) == Counts()


def test_a_split_of_which_nothing_was_read() -> None:
    """A split without messages was read to its end, and each of its counts is 0."""
    assert SplitCounts.of_nothing(Split("t", 3, 10, 100, 4, 5)) == SplitCounts(
        topic="t",
        partition=3,
        start=10,
        stop=100,
        next_offset=100,
        read=0,
        bytes=0,
        valid=0,
        dead=0,
        dropped=0,
        rows_staged=0,
        dead_staged=0,
        aborted=0,
        rows=0,
    )


def test_of_nothing_the_checksums_are_0() -> None:
    """The checksums of no rows are sixteen zeros."""
    assert Checksums() == Checksums("0000000000000000", "0000000000000000")


def receipt(digest: str) -> Receipt:
    """Returns a receipt of the plan with this digest."""
    return Receipt(
        PLAN,
        digest,
        0,
        "a",
        "r",
        "l",
        "hourly",
        Counts(),
        (),
        (),
        "code",
        datetime(2026, 1, 2, tzinfo=UTC),
        1.0,
    )


def test_a_receipts_digest_is_its_plans() -> None:
    """A receipt with another digest than its plan's raises ValueError with the window."""
    assert receipt(PLAN.digest).window == PLAN.window
    with pytest.raises(
        ValueError,
        match=r"^the digest in the receipt of window 2026-01-02T03:00:00Z is not its plan's$",
    ):
        receipt(PLAN.digest[::-1])
