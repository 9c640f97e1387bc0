"""What a table's log says besides its files: columns, properties, protocol and all application transactions at once.

deltalake answers for one transaction's id at a time and reads the log for each: seconds for the receipts of 1,000 windows, where this takes
a tenth of one; and it takes in every file of the table first. This reads what the Delta protocol lays down: the newest checkpoint, of which
nine tenths are of files and stay unread, and the commits behind it. Anything unexpected is no answer, and the caller asks deltalake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.place import Place

_LOG = "_delta_log"
_ENTRY_NAME = len("00000000000000000000.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class _Txn(msgspec.Struct):
    app: str = msgspec.field(name="appId")
    version: int


class TableMetadata(msgspec.Struct, frozen=True):
    """`schema`: the columns, in Delta's JSON."""

    schema: str = msgspec.field(name="schemaString")
    partition_columns: list[str] = msgspec.field(name="partitionColumns")
    configuration: dict[str, str]


class TableProtocol(msgspec.Struct, frozen=True, rename="camel"):
    """What the table asks of who reads or writes it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class _Add(msgspec.Struct):
    partition: dict[str, str | None] = msgspec.field(name="partitionValues")


class _Action(msgspec.Struct):
    """Of a line of an entry, what is read of it."""

    txn: _Txn | None = None
    add: _Add | None = None
    remove: msgspec.Raw = msgspec.Raw()
    metadata: TableMetadata | None = msgspec.field(name="metaData", default=None)
    protocol: TableProtocol | None = None


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


@dataclass(frozen=True)
class TableLog:
    """What the log says of a table at a version.

    `entry`: that of the version. `checkpoint`: at which it was begun to read; -1 at none. `added`: as of `LogEntry`, of the entries behind
    it; `removes`: whether one of these takes a file away.
    """

    version: int
    entry: bytes
    metadata: TableMetadata
    protocol: TableProtocol
    transactions: dict[str, int]
    checkpoint: int
    added: list[dict[str, str | None]]
    removes: bool


_DECODER = msgspec.json.Decoder(_Action)
_PLAIN = msgspec.json.Decoder(_PlainAction)


def read_log(place: Place, version: int | None = None) -> TableLog | None:
    """The log up to a version, or to its end; None if it is not of the plain kind, lacks something, or changes under our hands."""
    try:
        names = place.names(_LOG)
        last = _newest_entry(names) if version is None else version
        plain = (_CHECKPOINT.fullmatch(name) for name in names if name.endswith(".parquet"))
        start = max((number for said in plain if said is not None and (number := int(said[1])) <= last), default=-1)
        found = _Reading() if start < 0 else _checkpoint(place, checkpoint_name(start))
        entry = place.get(entry_name(last))
        for number in range(start + 1, last + 1):
            found.take(entry if number == last else place.get(entry_name(number)))
    except (OSError, msgspec.MsgspecError, pa.ArrowException, LookupError, ValueError, UnreachableError):
        return None
    if found.metadata is None or found.protocol is None:
        return None
    return TableLog(last, entry, found.metadata, found.protocol, found.transactions, start, found.added, found.removes)


def _newest_entry(names: Iterable[str]) -> int:
    """Raises ValueError if there is none."""
    return int(max(name for name in names if len(name) == _ENTRY_NAME and name.endswith(".json"))[: -len(".json")])


@dataclass
class _Reading:
    """What was read so far."""

    metadata: TableMetadata | None = None
    protocol: TableProtocol | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    added: list[dict[str, str | None]] = field(default_factory=list)
    removes: bool = False

    def take(self, entry: bytes) -> None:
        """The next entry. Raises DecodeError or ValueError if it isn't whole."""
        if not entry:
            what = "an entry without a line"
            raise ValueError(what)
        for line in entry.splitlines():
            action = _DECODER.decode(line)
            self.metadata = action.metadata or self.metadata
            self.protocol = action.protocol or self.protocol
            self.removes |= bool(action.remove)
            if action.txn is not None:
                self.transactions[action.txn.app] = action.txn.version
            if action.add is not None:
                self.added.append(action.add.partition)


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


def parts_in_checkpoint(place: Place, version: int, column: str) -> frozenset[str]:
    """What a partition column is in any file that a checkpoint names.

    Raises:
        UnreachableError: the checkpoint can't be read, or was cleaned up meanwhile.
    """
    try:
        values = _actions(_read(place, checkpoint_name(version), ["add.partitionValues"]), "add").field("partitionValues")
        mine = pc.equal(values.keys, column)
        return frozenset(pc.unique(values.items.filter(mine)).to_pylist())
    except (OSError, pa.ArrowException) as error:
        what = f"the log's checkpoint of version {version} can't be read: {type(error).__name__}"
        raise UnreachableError(what, "setup", "If the log is being cleaned up, run again; else check its storage and rights.") from error


def _checkpoint(place: Place, path: str) -> _Reading:
    """Those in a checkpoint of one file."""
    metadata = [f"metaData.{name}" for name in ("schemaString", "partitionColumns", "configuration")]
    read = _read(place, path, ["txn.appId", "txn.version", *metadata, "protocol"])
    apps, versions = (_actions(read, "txn").field(name).to_pylist() for name in ("appId", "version"))
    (described,) = _actions(read, "metaData").to_pylist(maps_as_pydicts="strict")
    (asked,) = _actions(read, "protocol").to_pylist()
    return _Reading(
        msgspec.convert(described, TableMetadata), msgspec.convert(asked, TableProtocol), dict(zip(apps, versions, strict=True))
    )


def _read(place: Place, path: str, leaves: list[str]) -> pa.Table:
    """Of each row of a checkpoint, which is an action of one kind, what is asked for."""
    with place.filesystem().open_input_file(path) as source, pq.ParquetFile(source) as file:
        return file.read(columns=leaves, use_threads=False)


def _actions(read: pa.Table, kind: str) -> pa.StructArray:
    """Those of one kind."""
    return read[kind].combine_chunks().drop_null()
