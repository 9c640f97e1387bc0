"""Labels have one text form each, which sorts as they do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ingest.model.label import instant, label_text, require_label

EAST = timezone(timedelta(hours=2))


def test_the_text_of_an_instant() -> None:
    """In UTC with a Z; fractions only where there are any."""
    assert instant(datetime(2026, 1, 2, 5, tzinfo=EAST)) == "2026-01-02T03:00:00Z"
    assert instant(datetime(2026, 1, 2, 3, 0, 0, 5, tzinfo=UTC)) == "2026-01-02T03:00:00.000005Z"


def test_the_text_of_a_label() -> None:
    """An instant's, or a batch's number with nine digits."""
    assert label_text(datetime(2026, 1, 2, 3, tzinfo=UTC)) == "2026-01-02T03:00:00Z"
    assert [label_text(7), label_text(123_456_789)] == ["batch-000000007", "batch-123456789"]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (-1, "^start must not be negative: -1$"),
        (datetime(2026, 1, 2), r"^start must be an aware datetime in UTC, not datetime.datetime\(2026"),  # noqa: DTZ001 - as it says
        (datetime(2026, 1, 2, tzinfo=EAST), "^start must be an aware datetime in UTC, not "),
    ],
)
def test_what_is_no_label_is_refused(label: int | datetime, words: str) -> None:
    """The field that it stands in is named."""
    with pytest.raises(ValueError, match=words):
        require_label("start", label)


def test_what_is_a_label_is_not() -> None:
    """The first number is 0; UTC under any name is UTC."""
    for label in (0, 1, datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=timezone(timedelta(0), "Z"))):
        require_label("start", label)
