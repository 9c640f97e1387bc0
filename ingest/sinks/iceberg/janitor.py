"""Staged files that nobody can need any more: no snapshot names them, and their attempts are given up before they are removed.

An attempt may be slower than any grace period, and a commit that was sent may arrive when nobody waits for it any more. So first a
commit without rows says on main, on exactly the state in which no snapshot names them, that files last written until then are given
up. Whatever was prepared before it fails, for main isn't where it was; whatever comes after it is refused
(`ingest.sinks.gone.refuse_gone`). What is given up is told by the files' own times, never by the sweep's clock.

Files of snapshots on other branches, of tags and of the table's past are named by those, and stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.iceberg.catalogs import WAITS
from windrow.ingest.sinks.iceberg.names import STAGED
from windrow.ingest.sinks.iceberg.table import TRIES, LakeState, LakeTable, LakeWriting, waits_again
from windrow.ingest.sinks.place import ListedFile, millis

_LEAST = timedelta(hours=1)


def orphans(staged: Iterable[ListedFile], named: frozenset[str], cutoff: int) -> dict[str, int]:
    """Which staged files may go, and when each was last written, in epoch milliseconds: no snapshot names it. Pure."""
    return {f.path: at for f in sorted(staged, key=lambda f: f.path) if f.path not in named and (at := millis(f.modified)) <= cutoff}


def sweep(lake: LakeTable, older_than: timedelta, *, dry_run: bool) -> list[str]:
    """Remove a table's orphans, or only look for them; their paths, with the table's location before them.

    Raises:
        ValueError: for a grace period under an hour.
        UnreachableError: the table could not be told what is given up; nothing was removed.
    """
    if older_than < _LEAST:
        msg = f"a grace period of {older_than} would take the files of runs that are still staging; the least is {_LEAST}"
        raise ValueError(msg)
    cutoff = millis(datetime.now(UTC) - older_than)
    state, gone = _look(lake, cutoff) if dry_run else _given_up(lake, cutoff)
    if state is None:
        return []
    if not dry_run:
        for path in gone:
            state.place.remove(path)
    return [f"{state.table.metadata.location.rstrip('/')}/{path}" for path in gone]


def _look(lake: LakeTable, cutoff: int) -> tuple[LakeState | None, dict[str, int]]:
    """The table, and its orphans. Files are listed first: what is staged and committed after that is in neither list."""
    before = lake.look()
    if before is None:
        return None, {}
    staged = list(before.place.walk(STAGED))
    state = lake.look_now()
    old = [file for file in staged if millis(file.modified) <= cutoff]
    return state, orphans(old, needed(state.table), cutoff) if old else {}


def _given_up(lake: LakeTable, cutoff: int) -> tuple[LakeState | None, dict[str, int]]:
    """The orphans, once the table says that nobody may commit them any more: on exactly the state in which no snapshot names them."""
    waits, tries = list(WAITS), iter(range(TRIES))
    while True:
        state, gone = _look(lake, cutoff)
        if state is None or not gone:
            return state, {}
        writing = LakeWriting(swept=max(*gone.values(), state.swept or 0), summary={"windrow.sweep": str(len(gone))})
        why = lake.attempt(lake.prepared(state, writing).send)
        if why is None:
            return state, gone
        if not waits_again(why, waits, tries, time.sleep):
            what = f"nothing was removed below {lake.at.place}: the table could not be told what is given up: {why}"
            raise UnreachableError(what, "setup", "Check the catalog, the table's storage and the rights, then run this again.")


def needed(table: Table) -> frozenset[str]:
    """The files, relative to the table's location, that any snapshot of it names.

    Raises:
        UnreachableError: a snapshot can't be read.
    """
    begin = f"{table.metadata.location.rstrip('/')}/"
    seen: dict[str, ManifestFile] = {}
    try:
        for snapshot in table.metadata.snapshots:
            seen |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
        entries = [entry for manifest in seen.values() for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]
    except Exception as error:
        what = f"which files the snapshots of {begin} name can't be read: {type(error).__name__}"
        raise UnreachableError(what, "setup", "Nothing was removed. Check the table's storage and rights, then run this again.") from error
    return frozenset(entry.data_file.file_path.removeprefix(begin) for entry in entries)
