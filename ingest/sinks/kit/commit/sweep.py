"""Staged files: checked before a commit, removed by a sweep if no commit names them.

An attempt may take longer than any grace period, and must not find its files removed:

    1 A looks, sees its files, and is stopped.   2 The sweep looks: no commit names them.
    3 It puts a note: files that were written until the youngest of them are given up.
    4 It removes them.   5 A wakes: its put meets another state. A looks again, reads the note, and
    is refused.

The note has the time of a file, never that of the sweep's clock. If that clock were far ahead, no
window could be committed until that time has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.kit.commit.commit_loop import run_commit_loop
from windrow.ingest.sinks.kit.commit.table_store import (
    SWEPT,
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)
from windrow.ingest.sinks.kit.files.filesystem import ListedFile, epoch_millis
from windrow.ingest.sinks.kit.files.staged_files import HasSize, StagedFiles, refuse_gone

LEAST_GRACE = timedelta(hours=1)
"""The shortest grace period: longer than any run takes between two files."""


def check_staged(store: TableStore, state: TableState, committables: Sequence[str]) -> None:
    """Refuses staged files that are gone, cut short or given up, before a change names them.

    Raises:
        RefusedError: says how many they are.
    """
    staged = store.staged
    if staged is not None and not staged.consumed:
        refuse_gone(staged.place, staged.named(committables), state.note(SWEPT))


def remove_consumed(store: TableStore, committables: Sequence[str]) -> None:
    """Removes staged files whose rows a commit has copied out.

    Files that can't be removed are left to a sweep.
    """
    staged = store.staged
    if staged is not None and staged.consumed:
        with suppress(UnreachableError):
            for file in staged.named(committables):
                staged.place.remove(file.path)


def cutoff_of(older_than: timedelta) -> int:
    """The instant, in epoch milliseconds, before which staged files may be removed.

    Raises:
        ValueError: the grace period is too short.
    """
    if older_than < LEAST_GRACE:
        msg = (
            f"a grace period of {older_than} would take the files of runs that are still staging;"
            f" the least is {LEAST_GRACE}"
        )
        raise ValueError(msg)
    return epoch_millis(datetime.now(UTC) - older_than)


def sweep(store: TableStore, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Removes files that attempts have staged and no commit names.

    Args:
        store: the table's.
        older_than: the grace period.
        dry_run: only look.

    Returns:
        The URIs of the files that were removed, or would be.

    Raises:
        ValueError: the grace period is too short.
        UnreachableError: the note can't be put into the table; nothing was removed.
    """
    staged, cutoff = store.staged, cutoff_of(older_than)
    if staged is None:
        return []
    files = orphans(store, staged, cutoff)
    if files and not dry_run and not staged.consumed:
        files = given_up(store, staged, cutoff)
    for path in () if dry_run else files:
        staged.place.remove(path)
    return [f"{staged.uri}/{path}" for path in files]


def youngest(store: TableStore) -> int:
    """The instant at which the youngest staged file was last written, in epoch milliseconds."""
    files = [] if store.staged is None else _listed(store.staged)
    return max((epoch_millis(file.modified) for file in files), default=0)


def orphans(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> dict[str, int]:
    """The files to remove. They are listed before the look at the table.

    So a file that is staged and committed meanwhile isn't among them.
    """
    listed = _listed(staged)
    with store.reading() as state:
        return {} if state is None else state.unneeded(listed, cutoff)


def given_up(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> dict[str, int]:
    """The files to remove, after the table has the note that no commit may name them."""
    files: dict[str, int] = {}

    def check(state: TableState) -> bool | None:
        nonlocal files
        files = state.unneeded(_listed(staged), cutoff)
        return None if files else True

    def on(state: TableState) -> TableChange:
        return TableChange(notes={SWEPT: max(*files.values(), state.note(SWEPT) or 0)})

    done = run_commit_loop(store, check, on)
    if isinstance(done, Unanswered):
        raise UnreachableError(
            f"nothing was removed below {store.place}: the table has no note that the files are"
            f" given up: {done.why}",
            "setup",
            "Check its storage and rights, then run this again.",
        )
    return files


def _listed(staged: StagedFiles[HasSize]) -> list[ListedFile]:
    return [file for folder in staged.folders for file in staged.place.walk(folder)]
