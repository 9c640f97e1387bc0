"""All application transactions of a snapshot at once.

deltalake answers for one id at a time and reads the log for each: seconds for the receipts of 1,000 windows, where this takes a
tenth of one. It reads what the Delta protocol lays down: the newest checkpoint at or below the version, and the commits behind it.
Anything unexpected is no answer, and the caller asks deltalake instead.
"""

from __future__ import annotations

import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import UnreachableError
from ingest.sinks.place import Place

_LOG = "_delta_log"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class _Txn(msgspec.Struct):
    app: str = msgspec.field(name="appId")
    version: int


class _Action(msgspec.Struct):
    txn: _Txn | None = None


class _Add(msgspec.Struct):
    partition: dict[str, str | None] = msgspec.field(name="partitionValues")


class _PlainAction(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an entry that adds or removes files, and nothing else."""

    txn: _Txn | None = None
    add: _Add | None = None
    remove: msgspec.Raw = msgspec.Raw()
    commitInfo: msgspec.Raw = msgspec.Raw()  # noqa: N815  # Delta's name


class _LastCheckpoint(msgspec.Struct):
    version: int


class LogEntry(msgspec.Struct, frozen=True):
    """What is read of an entry: its application transactions, and of each file that it adds the values of the partition columns."""

    transactions: dict[str, int]
    added: list[dict[str, str | None]]


_DECODER = msgspec.json.Decoder(_Action)
_PLAIN = msgspec.json.Decoder(_PlainAction)


def transactions(place: Place, version: int) -> dict[str, int] | None:
    """Application id -> version, as of a table version; None if the log is not of the plain kind, or changes under our hands."""
    names = place.names(_LOG)
    starts = [int(found[1]) for found in map(_CHECKPOINT.fullmatch, names) if found is not None and int(found[1]) <= version]
    start = max(starts, default=-1)
    latest: dict[str, int] = {}
    try:
        if start >= 0:
            latest |= _checkpoint(place, checkpoint_name(start))
        for number in range(start + 1, version + 1):
            for line in place.get(entry_name(number)).splitlines():
                action = _DECODER.decode(line)
                if action.txn is not None:
                    latest[action.txn.app] = action.txn.version
    except (OSError, msgspec.DecodeError, pa.ArrowException, KeyError):
        return None
    return latest


def entry_name(version: int) -> str:
    """Where the log's entry of a version lies, under the table."""
    return f"{_LOG}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Where the checkpoint of a version lies, where it is a single file."""
    return f"{_LOG}/{version:020d}.checkpoint.parquet"


def newest_checkpoint(place: Place) -> int | None:
    """The version of the checkpoint that was written last; -1 if there is none, None if that can't be told."""
    try:
        return msgspec.json.decode(place.get(f"{_LOG}/_last_checkpoint"), type=_LastCheckpoint).version
    except FileNotFoundError:
        return -1
    except (UnreachableError, msgspec.DecodeError):
        return None


def entry_in(content: bytes) -> LogEntry:
    """An entry that adds or removes files.

    Raises:
        msgspec.DecodeError: it does something else, or isn't whole.
    """
    actions = [_PLAIN.decode(line) for line in content.splitlines()]
    return LogEntry(
        {action.txn.app: action.txn.version for action in actions if action.txn is not None},
        [action.add.partition for action in actions if action.add is not None],
    )


def _checkpoint(place: Place, path: str) -> dict[str, int]:
    """Those in a checkpoint, of which nine tenths are of files and stay unread."""
    with place.filesystem().open_input_file(path) as source, pq.ParquetFile(source) as file:
        read = file.read(columns=["txn.appId", "txn.version"])["txn"].combine_chunks()
    apps, versions = (read.flatten()[read.type.get_field_index(name)].to_pylist() for name in ("appId", "version"))
    return {app: version for app, version in zip(apps, versions, strict=True) if app is not None}
