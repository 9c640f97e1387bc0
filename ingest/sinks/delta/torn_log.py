"""The newest entry of a Delta log, where a loss of power has cut it off.

Delta makes an entry visible by one rename and doesn't sync it, so a loss of power may leave it
empty, full of zeros or incomplete. It is safe to remove it. While it exists nobody can load the
table; or, if it was cut off exactly at a line's end, windrow refuses to commit on top of it. So no
commit depends on it. Without it the table is as before that commit, which has neither rows nor a
receipt then, and the window isn't committed.
"""

from __future__ import annotations

import re

import msgspec

from windrow.ingest.errors import Stage, UnreachableError, WindrowError
from windrow.ingest.sinks.place import Place

LOG = "_delta_log"

PAGES_APP = "windrow:pages"
"""The application whose version is the name of the newest page (`ingest.sinks.pages`)."""

_ENTRY = re.compile(r"\d{20}\.json")


def entry_name(version: int) -> str:
    """Path of the log's entry of a version."""
    return f"{LOG}/{version:020d}.json"


def newest_entry_error(uri: str, place: Place) -> UnreachableError | None:
    """Error of a newest entry that isn't lines of JSON; None if it is, or can't be read."""
    try:
        newest = max(filter(_ENTRY.fullmatch, place.names(LOG)), default=None)
        content = b"" if newest is None else place.get(f"{LOG}/{newest}")
    except (WindrowError, OSError):
        return None
    try:
        for line in content.splitlines():
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return _torn(f"{uri}/{LOG}/{newest}", "setup")
    return None


def refuse_unfinished(uri: str, place: Place, version: int) -> None:
    """Refuses to commit on top of an entry of windrow that lacks its last lines.

    An entry that was cut off at a line's end can be loaded: with its rows, but without the
    application transaction behind them, by which a later run knows that they are there.

    Raises:
        UnreachableError: the entry of this version is such a one.
    """
    name = entry_name(version)
    try:
        lines = [msgspec.json.decode(line) for line in place.get(name).splitlines()]
        ours = any("windrow" in line.get("commitInfo", ()) for line in lines)
        ended = any(line.get("txn", {}).get("appId") == PAGES_APP for line in lines)
    except (WindrowError, OSError, msgspec.DecodeError, AttributeError, TypeError):
        return  # the entry can't be judged
    if ours and not ended:
        raise _torn(f"{uri}/{name}", "commit")


def _torn(path: str, stage: Stage) -> UnreachableError:
    what = (
        "the newest entry of the table's log is damaged, as by a loss of power in the middle"
        f" of a commit: {path}"
    )
    do = (
        "That commit did not arrive whole, and the table is as before without it. While no run"
        f" is going, set the file aside: mv '{path}' '{path}.torn'. If windrow brought it, run"
        " its window again, which reads the same offsets; windrow verify SPEC names the window"
        " that the ledger has and the table hasn't."
    )
    return UnreachableError(what, stage, do)
