"""Instants as text, always with a time zone."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from windrow.ingest.model.instants import InstantError, is_zone, parse_instant, to_utc

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
    """An instant in any zone becomes the instant in UTC. Spaces around it are ignored."""
    instant = parse_instant(text)
    assert (instant, instant.tzinfo) == (datetime(2026, 1, 2, 3, tzinfo=UTC), UTC)


@pytest.mark.parametrize(
    ("text", "message", "advice"),
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
def test_what_is_no_instant_says_what_it_is_and_what_to_do(
    text: str, message: str, advice: str
) -> None:
    """An invalid instant raises InstantError with the advice what was probably meant."""
    with pytest.raises(InstantError) as excinfo:
        parse_instant(text)
    assert (excinfo.value.message, excinfo.value.advice, str(excinfo.value)) == (
        message,
        advice,
        f"{message}: {advice}",
    )


def test_a_datetime_is_put_into_utc() -> None:
    """A datetime is converted to UTC, and one without a time zone is refused."""
    instant = to_utc(datetime(2026, 1, 2, 5, tzinfo=EAST))
    assert (instant, instant.tzinfo) == (datetime(2026, 1, 2, 3, tzinfo=UTC), UTC)
    with pytest.raises(
        InstantError, match=r"^has no time zone: give the datetime a tzinfo, such as datetime.UTC$"
    ):
        to_utc(datetime(2026, 1, 2))  # noqa: DTZ001


@pytest.fixture
def everywhere(tmp_path: Path) -> Iterator[None]:
    """A machine whose database of time zones has all these names."""
    header = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    for name in ("Some/Where", "localtime", "posixrules", "posix/UTC", "right/UTC"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(header + struct.pack(">lbb", 0, 0, 0) + b"UTC\0")
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Some/Where", True),
        ("Some", False),
        ("Some/Where/Else", False),
        ("../Some/Where", False),
        ("Nowhere", False),
        ("", False),
        (None, False),
        (1, False),
        ("localtime", False),
        ("posixrules", False),
        ("posix/UTC", False),
        ("right/UTC", False),
    ],
)
def test_a_zone_is_a_name_that_means_the_same_everywhere(name: object, is_one: bool) -> None:
    """A zone is a name that means the same on each machine.

    It is no folder, path or number, and no name that each machine defines for itself.
    """
    assert is_zone(name) is is_one
