"""The log of a table of files: a numbered manifest in JSON for each change. Pure.

    _windrow/log/0000000000/00000000000000000000.json    the table's owner, format and columns
    _windrow/log/0000000000/00000000000000000001.json    a window: its files, offsets and receipt

The numbers put all changes of the table in one order, and each number's file can be created only
once. A commit has read everything up to N - 1 and creates N. So any two changes at once conflict.
Manifests that are named by their windows alone would keep a window from being committed twice, but
not two windows from having the same offsets.

The first manifest of a folder also has the whole table as it was before the change; in large tables
only that of every second folder, or fewer. So to open a table only the newest manifests are read,
however old the table is. As the whole table is in one file with a change, it can't be behind or
ahead of the log.
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
"""Version of the format."""

PER_FOLDER = 256
"""Manifests in a folder; part of the format, as readers need it for a manifest's path."""

WINDOWS_PER_MANIFEST = 16
"""Windows of the table for each manifest that lies between two with the whole table."""


class BrokenLogError(ValueError):
    """A manifest, by its number, can't be used."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class OtherFormError(ValueError):
    """A manifest has another version of the format; the text says an older or a later one."""


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows: its path below the table, its size in bytes, its number of rows."""

    path: str
    size: int
    rows: int


class WindowFiles(msgspec.Struct, frozen=True):
    """A window's newest generation: its files, the offsets that it covers, its receipt.

    `version` is the number of its manifest.
    """

    key: str
    files: tuple[RowFile, ...]
    ranges: tuple[Covered, ...]
    receipt: NamedReceipt
    version: int


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """The table after some manifests.

    `replaced`: files of older generations, with the time of their replacement in milliseconds since
    1970. `notes`: see `sinks.table_store.TableChange`. `columns`: a serialized Arrow schema.
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
    """One change of the table.

    `windrow`: the version of the format. `after`: the fingerprint of the manifest before it, which
    shows a manifest that was written after another table at this place. `table`: the whole table
    before this change, in some manifests that begin a folder. `columns`: all columns of the table,
    where the change adds some. `replaced`: files that the change replaces, with the time.
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

    `whole`: number of the newest manifest with the whole table. `keys`: keys of the windows in the
    manifests that were read last.
    """

    number: int
    newest: bytes
    table: Table
    whole: int
    keys: tuple[str, ...] = ()

    @property
    def is_due(self) -> bool:
        """True if the next manifest has to have the whole table.

        It has it at the beginning of a folder, and less often the larger the table is, so that the
        size of all manifests grows with the table and not with its square.
        """
        next_one = self.number + 1
        far = next_one - self.whole >= len(self.table.windows) / WINDOWS_PER_MANIFEST
        return next_one % PER_FOLDER == 0 and far


def followed(log: Log | None, contents: Iterable[tuple[int, bytes]]) -> Log | None:
    """Applies manifests to a log. The table is copied once, however many they are.

    Args:
        log: the log so far; None if nothing was read, then the first manifest has the whole table.
        contents: numbers and bytes of the manifests that follow.

    Raises:
        BrokenLogError: one is no manifest, or doesn't follow the one before it.
        OtherFormError: one has another version of the format.
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
        swept = one.notes.get(SWEPT, -1)  # files that were replaced until then may be gone
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
    """Encodes the manifest that follows a log with a change."""
    table = log.table if log.is_due else None
    whole = msgspec.structs.replace(change, after=fingerprint(log.newest), table=table)
    return msgspec.json.encode(whole) + b"\n"


def first_manifest(table: Table) -> bytes:
    """Encodes the manifest that begins a table."""
    return msgspec.json.encode(Manifest(FORM, "", table)) + b"\n"


def has_table(content: bytes) -> bool:
    """Returns whether a manifest has the whole table, so that a log can be read from it on."""
    try:
        return bytes(msgspec.json.decode(content, type=_AnyTable).table) != b""
    except msgspec.DecodeError:
        return False


class _AnyTable(msgspec.Struct):
    table: msgspec.Raw = msgspec.Raw(b"")


class _AnyForm(msgspec.Struct):
    """The field that a manifest has in any version of the format."""

    windrow: int


def fingerprint(content: bytes) -> str:
    """The first 128 bits of a manifest's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def folder_of(number: int) -> str:
    """Folder of a manifest."""
    return f"{FILES_LOG}/{number // PER_FOLDER:010d}"


def path_of(number: int) -> str:
    """Path of a manifest."""
    return f"{folder_of(number)}/{number:020d}.json"
