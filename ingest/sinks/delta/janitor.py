"""Staged files that nobody can need any more: no commit names them, and the attempts that wrote them are given up before they are removed.

An attempt may be slower than any grace period (a process that was stopped for a week), and a commit that was sent may arrive when nobody
waits for it any more. Neither may find its files gone:

    1 A loads version 7, sees its staged files, is stopped.     2 The sweep looks at version 7: no commit names A's files.
    3 It commits version 8: what was written up to the youngest of them is given up.     4 It removes A's files.
    5 A wakes. Its commit is made on version 7, and fails.     6 A loads version 8, sees what was given up, and is refused.

Without step 3, A's commit would arrive in step 5 and name files that aren't there. Were A first in step 3, the sweep's own commit would
fail, and its next look would find A's files named. So every outcome is known before a file is removed, whatever the grace period; that
only keeps attempts that are still at work from being given up.

What is given up is told by the files' own times, never by the sweep's clock: with one that is far ahead, it would give up what attempts
have yet to stage, and no window could be committed until that time has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

from deltalake import DeltaTable

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.names import COMMITS_APP, STAGED, SWEPT_APP
from windrow.ingest.sinks.place import ListedFile, Place, millis

_LEAST = timedelta(hours=1)


def orphans(staged: Iterable[ListedFile], named: frozenset[str], cutoff: int) -> dict[str, int]:
    """Which staged files may go, and when each was last written, in epoch milliseconds: until the cutoff, and no commit names it. Pure."""
    return {f.path: at for f in sorted(staged, key=lambda f: f.path) if f.path not in named and (at := millis(f.modified)) <= cutoff}


def sweep(uri: str, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Remove a table's orphans, or only look for them; their paths, with the table's place before them.

    Raises:
        ValueError: for a grace period under an hour.
        UnreachableError: the table could not be told what is given up; nothing was removed.
    """
    if older_than < _LEAST:
        msg = f"a grace period of {older_than} would take the files of runs that are still staging; the least is {_LEAST}"
        raise ValueError(msg)
    place, cutoff = Place(uri), millis(datetime.now(UTC) - older_than)
    gone = _look(uri, place, cutoff)[1] if dry_run else _given_up(uri, place, cutoff)
    if not dry_run:
        for path in gone:
            place.remove(path)
    return [f"{uri}/{path}" for path in gone]


def _look(uri: str, place: Place, cutoff: int) -> tuple[DeltaTable | None, dict[str, int]]:
    """The table, and its orphans. Files are listed first: what is staged and committed after that is in neither list."""
    staged = list(place.walk(STAGED))
    table = tables.load(uri)
    return table, {} if table is None else orphans(staged, tables.needed(table), cutoff)


def _given_up(uri: str, place: Place, cutoff: int) -> dict[str, int]:
    """The orphans, once the table says that nobody may commit them any more: on exactly the state in which no commit names them."""
    waits = list(tables.WAITS)
    while True:
        table, gone = _look(uri, place, cutoff)
        if table is None or not gone:
            return {}
        version = tables.versions(uri, table)
        apps = {SWEPT_APP: max(*gone.values(), version(SWEPT_APP) or 0), COMMITS_APP: (version(COMMITS_APP) or 0) + 1}
        why = tables.attempt(partial(tables.append, table, [], tables.once(apps, {"windrow": SWEPT_APP})))
        if why is None:
            return gone
        if not tables.again(uri, table.version(), waits):
            what = f"nothing was removed below {uri}: the table could not be told what is given up: {why}"
            raise UnreachableError(what, "setup", "Check the table's storage and rights, then run this again.")
