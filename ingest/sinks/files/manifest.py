"""The log of a table of files: numbered manifests, one for each change, JSON both ways. Pure.

    _windrow/log/0000000000/00000000000000000000.json    whose table it is, its format and columns
    _windrow/log/0000000000/00000000000000000001.json    a window: its files, offsets and receipt

A manifest's number is its place in the one order of all that ever happened to the table, and the
name that the number makes is taken only once. Who commits has read everything up to N - 1 and puts
N. That is what makes any two changes meet: a manifest named by its window alone would keep a window
from being committed twice, but not two windows from holding the same offsets.

The first manifest of a folder has the whole table as it was then, beside its own change; in large
tables that of every second folder, or fewer. So who opens a table reads the newest manifests alone,
however old the table is; and as it is one file with the change, it can't be behind or ahead of the
log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa

from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered
from windrow.ingest.sinks.place import FILES_LOG
from windrow.ingest.sinks.receipt_files import NamedReceipt
from windrow.ingest.sinks.table_store import SWEPT

FORM = 3
"""The version of the format."""

PER_FOLDER = 256
"""Part of the form: readers work out a manifest's path by it."""

WINDOWS_PER_MANIFEST = 16
"""A table with so many times as many windows has the whole table in a manifest that much rarer."""


class BrokenLogError(ValueError):
    """A manifest can't be used: its number, and why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class OtherFormError(ValueError):
    """A manifest is of another format version; the text says whether older or later."""


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows as its stager described it: its path below the table, its size in
    bytes, its rows.
    """

    path: str
    size: int
    rows: int


class WindowFiles(msgspec.Struct, frozen=True):
    """A window's newest generation: all of its files, the offsets that it covers, its receipt.

    `version`: the number of the manifest that brought it.
    """

    key: str
    files: tuple[RowFile, ...]
    ranges: tuple[Covered, ...]
    receipt: NamedReceipt
    version: int


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """The table after some manifests.

    `replaced`: files of older generations, with the instant in epoch milliseconds since which they
    are no part of the table. `notes`: see `sinks.table_store.TableChange`. `columns`: an Arrow
    schema, as Arrow serializes it.
    """

    owner: TableOwner
    format: str
    columns: bytes
    windows: Mapping[str, WindowFiles] = {}
    replaced: Mapping[str, int] = {}
    notes: Mapping[str, int] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))

    def files(self) -> Iterator[RowFile]:
        """All files of the table, in the order of windows."""
        return (file for key in sorted(self.windows) for file in self.windows[key].files)


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change.

    `windrow`: its form. `after`: the fingerprint of the manifest before it, so that a log is one
    log: a manifest that was put by somebody who had looked at another table is told. `table`: in
    some that begin a folder, what the table was before this change. `columns`: all of the table's
    from here on, where it has more than before. `replaced`: files that are no part of the table
    from here on, with the instant.
    """

    windrow: int
    after: str
    table: Table | None = None
    brought: WindowFiles | None = None
    columns: bytes = b""
    replaced: Mapping[str, int] = {}
    notes: Mapping[str, int] = {}


class Log(msgspec.Struct, frozen=True):
    """The table as of the manifest `number`, whose bytes are `newest`.

    `whole`: the newest manifest that has the whole table. `keys`: the windows that the manifests
    brought which were read last.
    """

    number: int
    newest: bytes
    table: Table
    whole: int
    keys: tuple[str, ...] = ()

    @property
    def is_due(self) -> bool:
        """Whether the next manifest has to have the whole table.

        At the beginning of a folder, and the rarer the larger the table is: so all manifests
        together grow as the table does, and not as its square.
        """
        next_one = self.number + 1
        far = next_one - self.whole >= len(self.table.windows) / WINDOWS_PER_MANIFEST
        return next_one % PER_FOLDER == 0 and far


def followed(log: Log | None, contents: Iterable[tuple[int, bytes]]) -> Log | None:
    """A log with more manifests. The table is copied once, however many they are.

    Args:
        log: what is known of it; None if nothing is, then the first manifest has the whole table.
        contents: the numbers and bytes of the manifests that follow.

    Raises:
        BrokenLogError: one is no manifest, or was written behind another one.
        OtherFormError: one is of another form.
    """
    if log is None:
        number, newest, table, whole = -1, b"", None, -1
    else:
        number, newest, table, whole = log.number, log.newest, log.table, log.whole
    windows, replaced, notes = _parts(table)
    keys = []
    for number, content in contents:
        one = _decoded(number, content)
        if table is None:
            if one.table is None:
                raise BrokenLogError(number, "it doesn't say what the table was before it")
            table = one.table
            windows, replaced, notes = _parts(table)
        elif one.after != fingerprint(newest):
            raise BrokenLogError(number, "it was written behind another one than the one before it")
        if one.brought is not None:
            _refuse_left_out(number, one.brought, windows)
            windows[one.brought.key] = one.brought
            keys.append(one.brought.key)
        swept = one.notes.get(SWEPT, -1)  # what was replaced until then was old enough to go, too
        replaced = {path: at for path, at in replaced.items() if at > swept} | dict(one.replaced)
        notes |= one.notes
        table = msgspec.structs.replace(table, columns=one.columns or table.columns)
        newest, whole = content, whole if one.table is None else number
    if table is None:
        return None
    table = msgspec.structs.replace(table, windows=windows, replaced=replaced, notes=notes)
    return Log(number, newest, table, whole, tuple(keys))


def _parts(
    table: Table | None,
) -> tuple[dict[str, WindowFiles], dict[str, int], dict[str, int]]:
    if table is None:
        return {}, {}, {}
    return dict(table.windows), dict(table.replaced), dict(table.notes)


def _decoded(number: int, content: bytes) -> Manifest:
    try:
        form = msgspec.json.decode(content, type=_AnyForm).windrow
        if form == FORM:
            return msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, ValueError) as error:
        raise BrokenLogError(number, "it can't be read") from error
    raise OtherFormError("an older one" if form < FORM else "a later one")


def _refuse_left_out(number: int, brought: WindowFiles, windows: Mapping[str, WindowFiles]) -> None:
    was, generation = windows.get(brought.key), brought.receipt.generation
    if generation != (0 if was is None else was.receipt.generation + 1):
        what = f"it brings generation {generation} of window {brought.key}"
        raise BrokenLogError(number, f"{what}, and that isn't the next one")


def next_manifest(log: Log, change: Manifest) -> bytes:
    """The bytes of the manifest that puts a change behind a log."""
    table = log.table if log.is_due else None
    whole = msgspec.structs.replace(change, after=fingerprint(log.newest), table=table)
    return msgspec.json.encode(whole) + b"\n"


def first_manifest(table: Table) -> bytes:
    """The bytes of the manifest that begins a table."""
    return msgspec.json.encode(Manifest(FORM, "", table)) + b"\n"


def has_table(content: bytes) -> bool:
    """Whether a manifest has the whole table: a log can be read from it on."""
    try:
        return bytes(msgspec.json.decode(content, type=_AnyTable).table) != b""
    except msgspec.DecodeError:
        return False


class _AnyTable(msgspec.Struct):
    table: msgspec.Raw = msgspec.Raw(b"")


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
