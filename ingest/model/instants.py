"""Instants as people write them: in ISO form, with their time zone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class InstantError(ValueError):
    """A text or a datetime that can't be used as an instant."""

    def __init__(self, message: str, advice: str) -> None:
        """Makes an error.

        Args:
            message: the problem, in words that follow the value.
            advice: what to do.
        """
        super().__init__(f"{message}: {advice}")
        self.message = message
        self.advice = advice


def parse_instant(text: str) -> datetime:
    """Reads an instant in ISO form, and returns it in UTC.

    An instant without a time zone is refused, because its writer and its reader may mean
    different zones.

    Raises:
        InstantError: the text is no instant, or has no time zone.
    """
    written = text.strip()
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise InstantError("is not an instant", "write it like 2026-01-02T03:00:00Z") from None
    if moment.tzinfo is None:
        meant = f"{written}T00:00:00Z" if _DATE.fullmatch(written) else f"{written}Z"
        raise InstantError("has no time zone", f"write {meant} if UTC is meant")
    return to_utc(moment)


def is_zone(name: object) -> bool:
    """Returns whether this names a time zone that every machine defines in the same way."""
    if (
        not isinstance(name, str)
        or name in {"localtime", "posixrules"}
        or name.startswith(("posix/", "right/"))
    ):
        return False
    try:
        return ZoneInfo(name) is not None
    except (KeyError, ValueError, OSError):  # an unknown name; a path; a folder of zones
        return False


def use_zone(name: str | None) -> None:
    """Sets the time zone of Python and of its child processes; None: the machine's time zone."""
    os.environ.pop("TZ", None)
    if name is not None:
        os.environ["TZ"] = name
    time.tzset()


@contextmanager
def in_utc() -> Iterator[None]:
    """Sets the time zone of this process to UTC for the block, in which a user's code runs."""
    previous_zone = os.environ.get("TZ")
    use_zone("UTC")
    try:
        yield
    finally:
        use_zone(previous_zone)


def to_utc(moment: datetime) -> datetime:
    """Converts an aware datetime to UTC.

    Raises:
        InstantError: the datetime has no time zone, or is outside the years 1 to 9999 in
            UTC.
    """
    if moment.tzinfo is None:
        raise InstantError("has no time zone", "give the datetime a tzinfo, such as datetime.UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InstantError(
            "lies outside the calendar", "write an instant between the years 1 and 9999"
        ) from None
