"""Files that nobody can need any more: staged ones that no entry names, and those of generations that were replaced.

An attempt may be slower than any grace period, and an entry that was put may arrive when nobody waits for it any more. Neither may find
its files gone, so they are given up by an entry first:

    1 A has read up to 7, and is stopped.   2 The sweep reads up to 7: no entry names A's files.   3 It puts 8: they are given up.
    4 It removes them.   5 A wakes. Its entry is number 8, too: taken.   6 A reads 8, sees what was given up, and is refused.

Were A first in step 3, the sweep's entry would find the name taken, and its next look would find A's files named. What is given up is told
by the files' own times, never by the sweep's clock, which may be far ahead. Files of an older generation stay for the grace period after
they were replaced: readers may have begun to read them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.files.entry import GiveUpStaged
from windrow.ingest.sinks.files.log import FilesLog
from windrow.ingest.sinks.files.stage import DATA
from windrow.ingest.sinks.files.state import FilesState
from windrow.ingest.sinks.place import ListedFile, Place, millis

_LEAST = timedelta(hours=1)
_TRIES = 20


def orphans(listed: Iterable[ListedFile], state: FilesState, cutoff: int) -> dict[str, int]:
    """Which files may go, and when each was last written: until the cutoff, and no part of the table since then either. Pure."""
    named = {file.path for file in state.files()}
    old = {file.path: at for file in listed if (at := millis(file.modified)) <= cutoff and file.path not in named}
    return {path: at for path, at in sorted(old.items()) if state.replaced.get(path, cutoff) <= cutoff}


def sweep(uri: str, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Remove a table's orphans, or only look for them; their paths, with the table's place before them.

    Raises:
        ValueError: for a grace period under an hour.
        UnreachableError: the log could not be told what is given up; nothing was removed.
    """
    if older_than < _LEAST:
        msg = f"a grace period of {older_than} would take the files of runs that are still staging; the least is {_LEAST}"
        raise ValueError(msg)
    place, log, cutoff = Place(uri), FilesLog(uri), millis(datetime.now(UTC) - older_than)
    gone = _look(place, log, cutoff)[1] if dry_run else _given_up(uri, place, log, cutoff)
    if not dry_run:
        for path in gone:
            place.remove(path)
    return [f"{uri}/{path}" for path in gone]


def _look(place: Place, log: FilesLog, cutoff: int) -> tuple[FilesState | None, Mapping[str, int]]:
    """The table, and its orphans. Files are listed first: what is staged and committed after that is in neither list."""
    listed = list(place.walk(DATA))
    state = log.look()
    return state, {} if state is None else orphans(listed, state, cutoff)


def _given_up(uri: str, place: Place, log: FilesLog, cutoff: int) -> Mapping[str, int]:
    """The orphans, once the log says that nobody may commit them any more: behind exactly the state in which no entry names them."""
    why = ""
    for n in range(_TRIES):
        state, gone = _look(place, log, cutoff)
        if state is None or not gone:
            return {}
        try:
            log.put(state, GiveUpStaged(max(gone.values()), tuple(path for path in gone if path in state.replaced)))
        except FileExistsError:
            continue
        except OSError as error:
            why = str(error)
            time.sleep(min(0.1 * n, 1))
        else:
            return gone
    what = f"nothing was removed below {uri}: its log could not be told what is given up: {why or 'others always came first'}"
    raise UnreachableError(what, "setup", "Check the table's storage and rights, then run this again.")
