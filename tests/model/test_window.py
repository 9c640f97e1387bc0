"""A window has a length: some time, or one micro-batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windrow.ingest.model.boundary import Label
from windrow.ingest.model.plan import Window

START = datetime(2026, 1, 2, 3, tzinfo=UTC)
END = START + timedelta(microseconds=1)


def test_a_window_in_time() -> None:
    """A window in time has its start as key, and both ends as span."""
    window = Window("p", START, END)
    assert (window.key, window.span) == ("2026-01-02T03:00:00Z", (START, END))


def test_a_micro_batch() -> None:
    """A micro-batch has its name as key, and no span."""
    window = Window("p", 0, 1)
    assert (window.key, window.span) == ("batch-000000000", None)


@pytest.mark.parametrize(
    ("start", "end"), [(START, START), (END, START), (1, 1), (1, 3), (2, 1), (START, 2), (1, START)]
)
def test_what_has_no_length_is_no_window(start: Label, end: Label) -> None:
    """A window without length, of two batches, or of mixed labels raises ValueError."""
    with pytest.raises(
        ValueError,
        match=r"^a window must end after it starts, a micro-batch with the next number: .* / .*$",
    ):
        Window("p", start, end)


@pytest.mark.parametrize(
    ("start", "end", "field"),
    [(-1, 0, "start"), (START.replace(tzinfo=None), END, "start"), (1, -1, "end")],
)
def test_its_ends_are_labels(start: Label, end: Label, field: str) -> None:
    """An end that is no valid label raises ValueError with the field's name."""
    with pytest.raises(ValueError, match=f"^{field} must"):
        Window("p", start, end)
