"""A commit written into a table's log by windrow itself, where the table is a plain one on a local disk: files are added, that is all.

deltalake takes in every file of the table again behind each commit, so that a window would cost the more the more there are. What an
append needs of the Delta protocol is little: lines of JSON under the number that follows, taken by nobody else. Two take one number by a
hard link, which fails for the second one; so does deltalake itself. All else is left to deltalake: other tables and places, replacements,
and every checkpoint.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version as version_of
from typing import Any
from urllib.parse import quote

import msgspec
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from windrow.ingest.sinks.delta.log import checkpoint_name, entry_name, newest_checkpoint
from windrow.ingest.sinks.delta.logged import Table, handle_of
from windrow.ingest.sinks.place import Place

_SETTINGS = frozenset({
    "delta.appendOnly", "delta.checkpointInterval", "delta.deletedFileRetentionDuration", "delta.enableExpiredLogCleanup",
    "delta.logRetentionDuration",
})  # fmt: skip
"""Properties that ask nothing of who only adds files. windrow's own ask nothing either; any other may."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})
"""How a disk says that it makes no hard link here, whatever the name; deltalake may know another way."""

_INTERVAL = 100
"""Commits between two checkpoints, where the table says nothing: deltalake's own number."""

_CLEANED_EVERY = 10
"""So many checkpoints lie between two clean-ups of the log, which look at each of its files, to remove those that are a month old."""


def is_plain(place: Place, table: Table) -> bool:
    """Whether an append to the table is nothing but its lines: no feature of the protocol, and no property, that asks for more."""
    protocol, settings = table.protocol(), table.metadata().configuration
    plain = (protocol.min_reader_version, protocol.min_writer_version) == (1, 2) and not (
        protocol.reader_features or protocol.writer_features
    )
    known = all(name in _SETTINGS or name.startswith("windrow.") for name in settings)
    return place.is_local and plain and known and not _has_metadata(msgspec.json.decode(table.schema().to_json()))


def _has_metadata(schema: object) -> bool:
    """Whether a field of a schema in Delta's JSON, however deep, says more than its type: an invariant for one."""
    if isinstance(schema, dict):
        return bool(schema.get("metadata")) or any(map(_has_metadata, schema.values()))
    return isinstance(schema, list) and any(map(_has_metadata, schema))


@dataclass(frozen=True)
class Tip:
    """The newest version of a plain table, as it was looked at, and its entry."""

    place: Place
    version: int
    entry: bytes


def write_entry(tip: Tip, table: Table, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> bool:
    """Add files on exactly this version of a plain table, and have deltalake make the checkpoint that is due.

    Args:
        tip: what was looked at.
        table: the table at this version or an earlier one.
        actions: the files.
        properties: transactions, and a note for people.

    Returns:
        False if this disk knows no hard links: nothing was written.

    Raises:
        CommitFailedError: another commit came first.
        OSError: it may have arrived, or not.
    """
    number, lines = tip.version + 1, b"".join(msgspec.json.encode(line) + b"\n" for line in _lines(table, actions, properties))
    try:
        tip.place.put_new(entry_name(number), lines)
    except FileExistsError:
        what = f"version {number} was committed by another one"
        raise CommitFailedError(what) from None
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    _refuse_unread(tip, number)
    settings = table.metadata().configuration
    every, left = divmod(number + 1, int(settings.get("delta.checkpointInterval") or _INTERVAL))
    if left == 0:
        handle = handle_of(table)
        handle.update_incremental()
        handle.create_checkpoint()
        tip.place.fsync(checkpoint_name(handle.version()))
        if every % _CLEANED_EVERY == 0 and settings.get("delta.enableExpiredLogCleanup") != "false":
            handle.cleanup_metadata()
    return True


def _refuse_unread(tip: Tip, number: int) -> None:
    """After the link: the entry must stand at the log's end, and not where a clean-up had made room.

        1 A looks at version 7 and sleeps.  2 Others go on to 200, and a clean-up takes the entries before the checkpoint, in any order.
        3 A writes entry 8 while 7 is still there. Readers begin at the checkpoint, and never see it.

    Whoever cleans up has written the checkpoint, and its name, before. One that somebody made behind ours gives the same doubt: a look
    ends it.
    """
    newest = newest_checkpoint(tip.place)
    if newest is None or newest >= number or tip.place.get(entry_name(tip.version)) != tip.entry:
        what = f"the log was cleaned up, or the table made anew, while version {number} was written"
        raise OSError(what)


@cache
def _engine() -> str:
    return f"windrow:{version_of('windrow-ingest')}"


def _lines(table: Table, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> Iterator[Mapping[str, Any]]:
    """What happened, the files, and the transactions last: by them it is told that the entry is whole."""
    partitions = table.metadata().partition_columns
    told = {
        "timestamp": time.time_ns() // 1_000_000, "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": msgspec.json.encode(partitions).decode()},
        "engineInfo": _engine(),
    }  # fmt: skip
    yield {"commitInfo": {**told, **(properties.custom_metadata or {})}}
    for action in actions:
        assert isinstance(action, AddAction), "an append removes nothing"
        yield {
            "add": {
                "path": quote(action.path), "partitionValues": action.partition_values, "size": action.size,
                "modificationTime": action.modification_time, "dataChange": action.data_change, "stats": action.stats,
            }
        }  # fmt: skip
    for app in properties.app_transactions or ():
        yield {"txn": {"appId": app.app_id, "version": app.version}}
