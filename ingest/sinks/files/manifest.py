"""The log of a table of files: numbered manifests, one for each change, JSON both ways. Pure.

    _windrow/log/0000000000/00000000000000000000.json    whose table it is, its format and columns
    _windrow/log/0000000000/00000000000000000001.json    a window: its files, offsets and receipt

A manifest's number is its place in the one order of all that ever happened to the table, and the
name that the number makes is taken only once. Who commits has read everything up to N - 1 and puts
N. That is what makes any two changes meet: a manifest named by its window alone would keep a window
from being committed twice, but not two windows from holding the same offsets.

The first manifest of each folder has the whole table as it was then, beside its own change. So who
opens a table reads the newest folder and no other, however old the table is; and as it is one file
with the change, it can't be behind or ahead of the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from windrow.ingest.model.binding import Binding
from windrow.ingest.model.plan import Covered
from windrow.ingest.sinks.place import FILES_LOG
from windrow.ingest.sinks.receipt_files import NamedReceipt
from windrow.ingest.sinks.table_store import SWEPT

FORM = 2
"""The form that is written now."""

PER_FOLDER = 256

ColumnText = tuple[str, str, bool]
"""A column's name, its Arrow type in words, and whether it may be null."""


class BrokenLogError(ValueError):
    """A manifest doesn't go on from the one before it; the text says why."""


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows as its stager described it: its path below the table, its size in bytes, its rows."""

    path: str
    size: int
    rows: int


class WindowFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the table holds of a window. `version`: the number of the manifest that brought it."""

    files: tuple[RowFile, ...]
    ranges: tuple[Covered, ...]
    receipt: NamedReceipt
    version: int


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that the manifests so far come to.

    `replaced`: files of older generations, with the instant in epoch milliseconds since which they
    are no part of the table. `notes`: see `sinks.table_store.TableChange`.
    """

    owner: Binding
    format: str
    columns: tuple[ColumnText, ...]
    windows: Mapping[str, WindowFiles] = {}
    replaced: Mapping[str, int] = {}
    notes: Mapping[str, int] = {}

    def files(self) -> Iterator[RowFile]:
        """All files of the table, window by window."""
        return (file for key in sorted(self.windows) for file in self.windows[key].files)


class Brought(msgspec.Struct, frozen=True):
    """A window's generation: all of its files, the offsets that it covers, its receipt."""

    key: str
    files: tuple[RowFile, ...]
    ranges: tuple[Covered, ...]
    receipt: NamedReceipt


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change.

    `windrow`: its form. `after`: the fingerprint of the manifest before it, so that a log is one
    log: who looked at a table that was removed and made anew since can't put anything into the new
    one. `table`: in the first of a folder, what the table was before this change. `columns`: all of
    the table's from here on, where it has more than before. `replaced`: files that are no part of
    the table from here on, with the instant.
    """

    windrow: int
    after: str
    table: Table | None = None
    brought: Brought | None = None
    columns: tuple[ColumnText, ...] = ()
    replaced: Mapping[str, int] = {}
    notes: Mapping[str, int] = {}


class Log(msgspec.Struct, frozen=True):
    """The table as of the manifest `number`, whose bytes are `newest`."""

    number: int
    newest: bytes
    table: Table


def read(number: int, content: bytes, before: Log | None) -> Log:
    """The log with one more manifest.

    Args:
        number: the manifest's.
        content: its bytes.
        before: the log up to the one before it; None where that wasn't read, at the beginning of
            a folder.

    Raises:
        BrokenLogError: it is no manifest, one of another form, or was written behind another one.
    """
    try:
        form = msgspec.json.decode(content, type=_AnyForm).windrow
        one = msgspec.json.decode(content, type=Manifest) if form == FORM else None
    except (msgspec.DecodeError, ValueError) as error:
        raise BrokenLogError("it can't be read") from error
    if one is None:
        older = "an older one; make the table anew" if form < FORM else "a later one; update this one"
        raise BrokenLogError(f"it is of form {form}, which this windrow doesn't read: it is of {older}")
    if before is not None and one.after != fingerprint(before.newest):
        raise BrokenLogError("it was written behind another manifest than the one before it")
    if before is None and one.table is None:
        raise BrokenLogError("it doesn't say what the table was before it")
    was = one.table if before is None else before.table
    assert was is not None
    return Log(number, content, _after(was, one, number))


def next_manifest(log: Log, change: Manifest) -> bytes:
    """The bytes of the manifest that puts a change behind a log."""
    begins = (log.number + 1) % PER_FOLDER == 0
    whole = msgspec.structs.replace(change, after=fingerprint(log.newest), table=log.table if begins else None)
    return msgspec.json.encode(whole) + b"\n"


def first_manifest(table: Table) -> bytes:
    """The bytes of the manifest that begins a table."""
    return msgspec.json.encode(Manifest(FORM, "", table)) + b"\n"


def _after(table: Table, one: Manifest, number: int) -> Table:
    windows, brought = table.windows, one.brought
    if brought is not None:
        was = windows.get(brought.key)
        generation = brought.receipt.generation
        if generation != (0 if was is None else was.receipt.generation + 1):
            what = f"it brings generation {generation} of window {brought.key}"
            raise BrokenLogError(f"{what}, and that isn't the next one")
        kept = WindowFiles(brought.files, brought.ranges, brought.receipt, number)
        windows = {**windows, brought.key: kept}
    swept = one.notes.get(SWEPT, -1)  # a sweep takes what was replaced until then
    replaced = {path: at for path, at in table.replaced.items() if at > swept}
    return msgspec.structs.replace(
        table,
        columns=one.columns or table.columns,
        windows=windows,
        replaced={**replaced, **one.replaced},
        notes={**table.notes, **one.notes},
    )


class _AnyForm(msgspec.Struct):
    """The one field that every manifest of any form has."""

    windrow: int


def fingerprint(content: bytes) -> str:
    """128 bits of a manifest's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def folder_of(number: int) -> str:
    """The folder in which a manifest lies."""
    return f"{FILES_LOG}/{number // PER_FOLDER:010d}"


def path_of(number: int) -> str:
    """The file of a manifest."""
    return f"{folder_of(number)}/{number:020d}.json"
