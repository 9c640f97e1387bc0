"""What deltalake's errors stand for: a full disk, a log that a loss of power cut short.

Reads the log's newest file, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from windrow.ingest.errors import UnreachableError, WindrowError
from windrow.ingest.sinks.delta.names import PAGES_APP
from windrow.ingest.sinks.place import Place

LOG = "_delta_log"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENTRY = re.compile(r"\d{20}\.json")


def reason(error: Exception) -> str:
    """The error's first line and the causes below it, which deltalake draws as a tree;
    without the trace that may follow.
    """
    first, *more = _COLOUR.sub("", str(error)).strip().splitlines() or [""]
    causes = [
        line.strip().removeprefix("↳").strip() for line in more if line.strip().startswith("↳")
    ]
    return ": ".join([first, *causes])[:300] or type(error).__name__


@contextmanager
def explained_files() -> Iterator[None]:
    """While a commit reads files of the table and writes others: what the system says, in words.

    Raises:
        UnreachableError: one can't be read or written.
    """
    try:
        yield
    except OSError as error:
        what = (
            "a file of the table can't be read or written:"
            f" {error.strerror or type(error).__name__}"
        )
        raise UnreachableError(
            what,
            "commit",
            "Nothing was committed. Make room or fix the storage, then run the window again.",
        ) from error


class TornEntry(msgspec.Struct, frozen=True):
    """The newest entry of a table's log, which isn't whole.

    Taking it away is safe: Delta makes an entry visible by one rename and doesn't sync
    it, so a loss of power may leave it empty, full of zeros or cut short. While it is
    there nobody can load the table; or, cut right at a line's end, windrow commits
    nothing on top of it. So nothing was built on it. Without it the table is as it was
    before that commit: its rows and the name of its receipt go together, and the window
    is one that isn't committed.
    """

    name: str

    def what(self, uri: str) -> str:
        """What happened, and to which file."""
        return (
            "the newest entry of the table's log is damaged, as by a loss of power in the middle"
            f" of a commit: {uri}/{LOG}/{self.name}"
        )

    def cure(self, uri: str) -> str:
        """What to do."""
        path = f"{uri}/{LOG}/{self.name}"
        return (
            "That commit did not arrive whole, and the table is as before without it. While no run"
            f" is going, set the file aside: mv '{path}' '{path}.torn'. If windrow brought it, run"
            " its window again, which reads the same offsets; windrow verify SPEC names the window"
            " that the ledger has and the table hasn't."
        )


def torn_entry(place: Place) -> TornEntry | None:
    """The newest entry of the log under a place, if it isn't lines of JSON; None also
    if that can't be told.
    """
    try:
        newest = max((name for name in place.names(LOG) if _ENTRY.fullmatch(name)), default=None)
        content = b"" if newest is None else place.get(f"{LOG}/{newest}")
    except (WindrowError, OSError):
        return None
    return None if newest is None or _is_whole(content) else TornEntry(newest)


def unfinished(place: Place, version: int) -> TornEntry | None:
    """The entry of a version, if it is one of windrow's commits without its last lines;
    None also if that can't be told.

    Cut at a line's end it loads: with rows, and without the transactions behind them,
    by which a later run would know that they are there.
    """
    name = f"{version:020d}.json"
    try:
        lines = [msgspec.json.decode(line) for line in place.get(f"{LOG}/{name}").splitlines()]
        ours = any("windrow" in line.get("commitInfo", ()) for line in lines)
        ended = any(line.get("txn", {}).get("appId") == PAGES_APP for line in lines)
    except (WindrowError, OSError, msgspec.DecodeError, AttributeError, TypeError):
        return None
    return TornEntry(name) if ours and not ended else None


def _is_whole(content: bytes) -> bool:
    try:
        for line in content.splitlines():
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True
