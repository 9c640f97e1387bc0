"""One entry of a table's log: what began the table, brought a window, or gave staged files up. JSON both ways; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from windrow.ingest.model.binding import Binding
from windrow.ingest.sinks.place import FILES_LOG

ENTRY_VERSION = 1
"""The form that is written now."""

_PER_FOLDER = 1000

ColumnText = tuple[str, str, bool]
"""A column's name, its Arrow type in words, and whether it may be null."""


class RowFile(msgspec.Struct, frozen=True):
    """A file of rows in the stager's own words: its path below the table's place, its size in bytes, its rows."""

    path: str
    size: int
    rows: int


class BeginTable(msgspec.Struct, frozen=True, tag="begin", tag_field="kind"):
    """The first entry: whose table it is, in which format, with which columns."""

    binding: Binding
    format: str
    columns: tuple[ColumnText, ...]


class BringWindow(msgspec.Struct, frozen=True, tag="window", tag_field="kind"):
    """A window's generation: all of its files, and its receipt, whose bytes are kept as they are.

    `columns`: all of the table's from here on, where it has more than before.
    """

    files: tuple[RowFile, ...]
    receipt: msgspec.Raw
    columns: tuple[ColumnText, ...] = ()


class GiveUpStaged(msgspec.Struct, frozen=True, tag="sweep", tag_field="kind"):
    """What was staged until an instant, in epoch milliseconds, may not be committed any more. `removed`: files of older generations."""

    until: int
    removed: tuple[str, ...] = ()


Change = BeginTable | BringWindow | GiveUpStaged


class LogLine(msgspec.Struct, frozen=True):
    """An entry as it is written. `windrow`: its form; `after`: the fingerprint of the entry before it, so that a log is one log."""

    windrow: int
    after: str
    entry: Change


def encoded(after: str, change: Change) -> bytes:
    """An entry's bytes."""
    return msgspec.json.encode(LogLine(ENTRY_VERSION, after, change)) + b"\n"


def decoded(content: bytes) -> LogLine:
    """An entry back.

    Raises:
        msgspec.DecodeError: it is not one.
    """
    return msgspec.json.decode(content, type=LogLine)


def rebuilt(after: str, brought: BringWindow, columns: Sequence[ColumnText], wanted: str) -> bytes | None:
    """The exact bytes of a lost entry that brought a window, proved by its fingerprint; None if it was another one.

    Args:
        after: the fingerprint of the entry before it.
        brought: its files and its receipt. Which columns it named is tried: none, or the first few of those that the table has now.
        columns: these, to which later entries may have added.
        wanted: the fingerprint that the entry behind it has for it.
    """
    named = ((), *(tuple(columns[:many]) for many in range(1, len(columns) + 1)))
    contents = (encoded(after, msgspec.structs.replace(brought, columns=some)) for some in named)
    return next((content for content in contents if fingerprint(content) == wanted), None)


def fingerprint(content: bytes) -> str:
    """Which entry it is."""
    return hashlib.sha256(content).hexdigest()[:32]


def folder_of(number: int) -> str:
    """Where an entry lies: folders of a thousand, so that to list one stays cheap however old the table is."""
    return f"{FILES_LOG}/{number // _PER_FOLDER:010d}"


def path_of(number: int) -> str:
    """The file of an entry."""
    return f"{folder_of(number)}/{number:020d}.json"


def first_in_next_folder(number: int) -> int:
    """The number with which the folder after that of an entry begins."""
    return (number // _PER_FOLDER + 1) * _PER_FOLDER
