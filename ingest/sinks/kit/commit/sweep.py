"""Checks of staged files before a commit, and sweeps of the files that no commit names.

An attempt may take longer than any grace period. So a sweep must not remove files that the
attempt then commits:

1. A looks, sees its files, and is stopped.
2. The sweep looks: no commit names the files.
3. The sweep puts a note with the time of the youngest of these files. No commit may name files
   that were written until that time.
4. The sweep removes the files.
5. A continues: its put fails, because the table has another state.
6. A looks again, reads the note, and is refused.

The note has the time of a file, never that of the sweep's clock. With a clock that is far
ahead, no window could be committed until that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.kit.commit.commit_loop import run_commit_loop
from windrow.ingest.sinks.kit.commit.table_store import (
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)
from windrow.ingest.sinks.kit.files.staged_files import SWEPT, HasSize, StagedFiles, cutoff_of


def check_staged(store: TableStore, state: TableState, committables: Sequence[str]) -> None:
    """Refuses staged files that are gone, cut short or given up, before a change names them.

    Raises:
        RefusedError: there are such files; the error says how many.
    """
    staged = store.staged
    if staged is not None and not staged.consumed:
        staged.refuse_gone(staged.decode_committables(committables), state)


def sweep(store: TableStore, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Removes files that attempts have staged and no commit names.

    Args:
        store: the table's store.
        older_than: the grace period.
        dry_run: remove nothing.

    Returns:
        The URIs of the removed files; with `dry_run`, of the files that would be removed.

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
    return staged.remove(files, dry_run=dry_run)


def youngest(store: TableStore) -> int:
    """Returns the last write of the youngest staged file, in epoch milliseconds."""
    return 0 if store.staged is None else max(store.staged.written().values(), default=0)


def orphans(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> Mapping[str, int]:
    """Returns the files to remove. It lists the files before it looks at the table.

    So a file that is staged and committed in between isn't among them.
    """
    old = staged.written_until(cutoff)
    with store.reading() as state:
        return {} if state is None else state.unneeded(old, cutoff)


def given_up(store: TableStore, staged: StagedFiles[HasSize], cutoff: int) -> Mapping[str, int]:
    """Returns the files to remove, after it has put the note that no commit may name them."""
    files: Mapping[str, int] = {}

    def check(state: TableState) -> bool | None:
        nonlocal files
        files = state.unneeded(staged.written_until(cutoff), cutoff)
        return None if files else True

    def on(state: TableState) -> TableChange:
        return TableChange(notes={SWEPT: max(*files.values(), state.note(SWEPT) or 0)})

    done = run_commit_loop(store, check, on)
    if isinstance(done, Unanswered):
        raise UnreachableError(
            f"nothing was removed below {store.location}: the table has no note that the files are"
            f" given up: {done.reason}",
            "setup",
            "Check its storage and rights, then run this again.",
        )
    return files
