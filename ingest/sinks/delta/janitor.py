"""Staged files that nobody can need any more: no commit names them, and the run that wrote them is long over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from ingest.sinks.delta import table as tables
from ingest.sinks.delta.names import STAGED
from ingest.sinks.delta.place import Found, Place

GRACE = timedelta(hours=24)
"""Longer than any run stages."""

_LEAST = timedelta(hours=1)


def orphans(staged: Iterable[Found], named: frozenset[str], older_than: timedelta, now: datetime) -> list[str]:
    """Which staged files may go. Pure."""
    return sorted(f.path for f in staged if f.path not in named and now - f.modified > older_than)


def sweep(uri: str, older_than: timedelta, now: datetime) -> list[str]:
    """Remove a table's orphans; their paths.

    The listing comes before the look into the table: a file that is committed in between is then named, and stays. One that is
    committed after the look was staged longer ago than the grace period; its commit finds it gone and refuses.

    Raises:
        ValueError: for a grace period under an hour.
    """
    if older_than < _LEAST:
        msg = f"a grace period of {older_than} would take the files of runs that are still staging; the least is {_LEAST}"
        raise ValueError(msg)
    place = Place(uri)
    staged = list(place.walk(STAGED))
    table = tables.load(uri)
    if table is None:
        return []
    # Removed by a commit, but still needed by readers of older versions: Delta's own vacuum looks after those.
    tombstones = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=False)
    gone = orphans(staged, frozenset(tables.active(table)) | frozenset(tombstones), older_than, now)
    for path in gone:
        place.remove(path)
    return gone
