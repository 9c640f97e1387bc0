"""An instant as people write it, always with its time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from windrow.ingest.model.instants import InstantError, parse_instant, to_utc

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:00:00Z",
        " 2026-01-02T03:00:00+00:00\n",
        "2026-01-02T05:00:00+02:00",
        "2026-01-02T03Z",
    ],
)
def test_an_instant_in_any_zone_is_one_in_utc(text: str) -> None:
    """Spaces around it are no matter; the clock is UTC's."""
    found = parse_instant(text)
    assert (found, found.tzinfo) == (datetime(2026, 1, 2, 3, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    ("text", "what", "do"),
    [
        ("yesterday", "is not an instant", "write it like 2026-01-02T03:00:00Z"),
        ("", "is not an instant", "write it like 2026-01-02T03:00:00Z"),
        (" 2026-01-02 ", "has no time zone", "write 2026-01-02T00:00:00Z if UTC is meant"),
        ("2026-01-02T03:00:00", "has no time zone", "write 2026-01-02T03:00:00Z if UTC is meant"),
        (
            "9999-12-31T23:00:00-02:00",
            "lies outside the calendar",
            "write an instant between the years 1 and 9999",
        ),
    ],
)
def test_what_is_no_instant_says_what_it_is_and_what_to_do(text: str, what: str, do: str) -> None:
    """Also what was probably meant."""
    with pytest.raises(InstantError) as told:
        parse_instant(text)
    assert (told.value.what, told.value.do, str(told.value)) == (what, do, f"{what}: {do}")


def test_a_datetime_is_put_into_utc() -> None:
    """One without a time zone is refused: it may mean any instant of a day."""
    found = to_utc(datetime(2026, 1, 2, 5, tzinfo=EAST))
    assert (found, found.tzinfo) == (datetime(2026, 1, 2, 3, tzinfo=UTC), UTC)
    with pytest.raises(
        InstantError, match=r"^has no time zone: give the datetime a tzinfo, such as datetime.UTC$"
    ):
        to_utc(datetime(2026, 1, 2))  # noqa: DTZ001
