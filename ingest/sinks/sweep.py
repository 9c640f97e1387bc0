"""Staged files that no commit names: seen before a commit, removed by a sweep.

An attempt may be slower than any grace period, and must not find its files gone:

    1 A looks, sees its files, and is stopped.   2 The sweep looks: nothing names them.
    3 It puts a note: what was written until the youngest of them is given up.
    4 It removes them.   5 A wakes: its put meets another state; it looks again, reads the note,
    and is refused.

What is given up is said by the files' own times, never by the sweep's clock, which may be far
ahead: then no window could be committed until that time has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.place import ListedFile, millis
from windrow.ingest.sinks.settle import settle
from windrow.ingest.sinks.staged_files import HasSize, StagedFiles, refuse_gone
from windrow.ingest.sinks.table_store import (
    SWEPT,
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)

LEAST_GRACE = timedelta(hours=1)
"""The shortest grace period: no run stages for longer between two files."""


def check_staged(store: TableStore, state: TableState, committables: Sequence[str]) -> None:
    """See that staged files are there, whole, and not given up, before a change names them.

    Raises:
        RefusedError: says how many are not.
    """
    staged = store.staged
    if staged is not None and not staged.consumed:
        refuse_gone(staged.place, staged.named(committables), state.note(SWEPT))


def remove_consumed(store: TableStore, committables: Sequence[str]) -> None:
    """Remove staged files whose rows a commit has copied out; what can't be removed is
    left to a sweep.
    """
    staged = store.staged
    if staged is not None and staged.consumed:
        with suppress(UnreachableError):
            for file in staged.named(committables):
                staged.place.remove(file.path)


def cutoff_of(older_than: timedelta) -> int:
    """The instant, in epoch milliseconds, before which staged files may be removed.

    Raises:
        ValueError: the grace period is shorter than runs take to stage.
    """
    if older_than < LEAST_GRACE:
        msg = (
            f"a grace period of {older_than} would take the files of runs that are still staging;"
            f" the least is {LEAST_GRACE}"
        )
        raise ValueError(msg)
    return millis(datetime.now(UTC) - older_than)


def sweep(store: TableStore, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Remove files that attempts have staged and no commit names; what was, or would be, removed.

    Args:
        store: the table's.
        older_than: the grace period.
        dry_run: only look.

    Raises:
        ValueError: the grace period is shorter than runs take to stage.
        UnreachableError: what is given up can't be noted in the table; nothing was removed.
    """
    staged, cutoff = store.staged, cutoff_of(older_than)
    if staged is None:
        return []
    gone = orphans(store, staged, cutoff)
    if gone and not dry_run and not staged.consumed:
        gone = given_up(store, staged, cutoff)
    for path in () if dry_run else gone:
        staged.place.remove(path)
    return [f"{staged.uri}/{path}" for path in gone]


def orphans(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> dict[str, int]:
    """Listed before the look: what is staged and committed after that is in neither."""
    listed = _listed(staged)
    with store.reading() as state:
        return {} if state is None else state.unneeded(listed, cutoff)


def given_up(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> dict[str, int]:
    """The orphans, once the table says that no commit may name them."""
    gone: dict[str, int] = {}

    def judge(state: TableState) -> bool | None:
        nonlocal gone
        gone = state.unneeded(_listed(staged), cutoff)
        return None if gone else True

    def on(state: TableState) -> TableChange:
        return TableChange(notes={SWEPT: max(*gone.values(), state.note(SWEPT) or 0)})

    done = settle(store, judge, on)
    if isinstance(done, Unanswered):
        what = (
            f"nothing was removed below {store.place}: what is given up can't be noted in the"
            f" table: {done.why}"
        )
        raise UnreachableError(what, "setup", "Check its storage and rights, then run this again.")
    return gone


def _listed(staged: StagedFiles[HasSize]) -> list[ListedFile]:
    return [file for folder in staged.folders for file in staged.place.walk(folder)]
