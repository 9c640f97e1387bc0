"""Delta tables: load afresh, tell what one is bound to, commit on what was looked at.

Every write here and in the sink goes by one rule:

    commit on exactly the snapshot that was looked at (`max_commit_retries=0`), and if another commit came first, load and look again

delta-rs's own retry commits again on a snapshot that nobody looked at. Even `create(mode="error")` then lets two racing creators
both succeed, the second one replacing the first one's properties (measured with deltalake 1.6.6: 29 successes in 15 races; without
its retry 15).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from windrow.ingest.errors import OutcomeUnknownError, RefusedError, SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.sinks.delta.entry import Tip, write_entry
from windrow.ingest.sinks.delta.log import entry_name
from windrow.ingest.sinks.delta.logged import Table, handle_of
from windrow.ingest.sinks.delta.stage import StagedFile
from windrow.ingest.sinks.delta.trouble import is_full, reason, torn_entry, unfinished
from windrow.ingest.sinks.place import Place, normal, to_check, waiting_for_storage

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

WAITS = (0.2, 1.0, 3.0)
"""Seconds before each further try after a failure that was no conflict."""

_CONFLICT = "conflict"
_RETENTION = "delta.setTransactionRetentionDuration"


def load(uri: str) -> DeltaTable | None:
    """The table as it is now, never a handle from before; None if it isn't there.

    Raises:
        UnreachableError: if that can't be told.
    """
    try:
        with waiting_for_storage(uri):
            return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except Exception as error:
        torn = torn_entry(Place(normal(uri)))
        if torn is not None:
            raise UnreachableError(f"{torn.what(uri)}: {reason(error)}", "setup", torn.cure(uri)) from error
        what = f"the table {uri} can't be read: {reason(error)}"
        raise UnreachableError(what, "setup", to_check(uri)) from error


def refuse_unfinished(uri: str, place: Place, version: int) -> None:
    """Before a commit on a snapshot: its newest entry, if windrow wrote it, is there to its last line. Reads that one file.

    Raises:
        UnreachableError: it isn't, and nothing may be built on it.
    """
    torn = unfinished(place, version)
    if torn is not None:
        raise UnreachableError(torn.what(uri), "commit", torn.cure(uri))


def refuse_strange_rows(uri: str, filled: Container[str], window_key: str) -> None:
    """Before the first commit of a window: the table must not hold rows of it.

    Raises:
        RefusedError: it does, and a commit would put the same messages beside them.
    """
    if window_key in filled:
        what = f"the table {uri} holds rows of window {window_key} that no commit of windrow brought"
        do = "Nothing was committed. Find out what wrote them (the table's history tells), remove them, and run the window again."
        raise RefusedError(what, "commit", do)


def versions(uri: str, table: DeltaTable) -> Callable[[str], int | None]:
    """The snapshot's answer to: which version has this application id? deltalake reads the log for each.

    Raises (when asked):
        UnreachableError: a file of the log can't be read, or was cleaned up meanwhile.
    """

    def version(app: str) -> int | None:
        try:
            return table.transaction_version(app)
        except Exception as error:
            what = f"the log of the table {uri} can't be read: {reason(error)}"
            raise UnreachableError(
                what, "setup", "If its log is being cleaned up, run again; else check its storage and rights."
            ) from error

    return version


def rows_of(uri: str, table: DeltaTable, window_key: str) -> Dataset:
    """One window's files as a dataset, read by Arrow's own file system.

    With deltalake's, which is Python's, a scan's threads may still be in the interpreter when that ends, and the process aborts.

    Raises:
        UnreachableError: another client has given the table a feature that deltalake doesn't read, such as deletion vectors.
    """
    asked = [(partition_column(table), "=", window_key)]
    try:
        return table.to_pyarrow_dataset(filesystem=Place(normal(uri)).filesystem(), file_pruning_predicate=asked)
    except DeltaError as error:
        what = f"the rows of the table {uri} can't be read: {reason(error)}"
        do = "Take that off with what switched it on; of deletion vectors: REORG TABLE ... APPLY (PURGE), then DROP FEATURE."
        raise UnreachableError(what, "setup", do) from error


def partition_column(table: Table) -> str:
    """The partition column, as the table itself says; `binding` has compared it with the one that is wanted."""
    return table.metadata().partition_columns[0]


@dataclass(frozen=True)
class Laid:
    """How rows lie in a table: by which column it is partitioned, and what its properties say of that besides.

    `column`: that of the window, which is a text, or another one.
    """

    column: str
    type: pa.DataType = field(default_factory=pa.string)
    properties: Mapping[str, str] = field(default_factory=dict)


def binding(uri: str, table: Table, laid: Laid) -> Binding:
    """What the table is bound to; checked before any use.

    Raises:
        SchemaChangedError: if its rows lie in another way: a replacement would take other windows' rows with it.
        SpecError: if the table was made by something else, or would forget its receipts.
    """
    meta = table.metadata()
    kept: Mapping[str, str] = meta.configuration
    if meta.partition_columns != [laid.column]:
        what = f"the table {uri} is partitioned by {', '.join(meta.partition_columns) or 'nothing'}, not by {laid.column}"
        do = (
            "Set sink.mode, or the name of metadata window, back if it was changed; else give the sink a path of its own: windrow makes "
            "the table."
        )
        raise SchemaChangedError(what, "setup", do)
    other = [
        f"{name} is {kept.get(name)} in the table, {value} in the spec"
        for name, value in laid.properties.items()
        if kept.get(name) != value
    ]
    if other:
        what = f"the table {uri} was made with another primary key: {'; '.join(other)}"
        do = "Set it back, or begin a pipeline with another id and table: rows that are there can't be put in another order."
        raise SchemaChangedError(what, "setup", do)
    try:
        bound = Binding(kept["windrow.pipeline"], kept["windrow.ledger"], kept["windrow.grid"])
    except KeyError as missing:
        what = f"the table {uri} was not made by windrow: its property {missing} is missing"
        raise SpecError(what, "setup", "Give the sink a path of its own; windrow makes the table.") from None
    if _RETENTION in kept:
        what = f"the table {uri} sets {_RETENTION} = {kept[_RETENTION]}: it would forget which windows it holds"
        raise SpecError(what, "setup", f"Unset it: ALTER TABLE ... UNSET TBLPROPERTIES ('{_RETENTION}').")
    return bound


_HARMLESS = frozenset({"timestampNtz"})
"""Features of the protocol that say nothing of where rows lie in their files."""


def refuse_hidden_rows(uri: str, table: Table) -> None:
    """Before files of the table are read one by one, to be written anew.

    Raises:
        SchemaChangedError: the table has features by which its files alone don't tell what it holds.
    """
    features = set(table.protocol().reader_features or ()) - _HARMLESS
    if features:
        what = f"the table {uri} has the features {', '.join(sorted(features))}: its files alone don't tell which rows it holds"
        raise SchemaChangedError(what, "commit", "Nothing was committed. Take them off the table, which is to be written by windrow alone.")


def may_lose_files(table: Table) -> bool:
    """Whether a commit may take files away: not from a table that says `delta.appendOnly`, whose commits Delta refuses then."""
    return str(table.metadata().configuration.get("delta.appendOnly")).lower() != "true"


def listed(table: Table) -> pa.Table:
    """What the table's log says of each of its files. `pyarrow.table` would load pandas for it."""
    return pa.RecordBatchReader.from_stream(handle_of(table).get_add_actions(flatten=True)).read_all()


def active(table: DeltaTable) -> list[str]:
    """The paths of the table's data files, relative where they lie under it."""
    return [str(path) for path in listed(table)["path"].to_pylist()]


def needed(table: DeltaTable) -> frozenset[str]:
    """The paths that this state of the table names, and those that readers of older versions may still need.

    What a commit has removed, Delta's own vacuum looks after.
    """
    removed = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=False)
    return frozenset(active(table)) | frozenset(removed)


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table. `part`: what the partition column is in it."""

    path: str
    size: int
    part: str


def parts(table: DeltaTable) -> frozenset[str]:
    """What the partition column is in any file. deltalake's own list of them makes a Python object of each file first."""
    found = listed(table)[f"partition.{partition_column(table)}"]
    return frozenset(str(part) for part in found.unique().to_pylist())


def data_files(table: Table) -> list[DataFile]:
    """All files of a table."""
    column = f"partition.{partition_column(table)}"
    files = listed(table).select(["path", "size_bytes", column]).to_pylist()
    return [DataFile(unquote(f["path"]), f["size_bytes"], str(f[column])) for f in files]


def add_actions(table: Table, files: Iterable[StagedFile], part: str) -> list[AddAction | RemoveAction]:
    """Staged files as Delta wants them, of one value of the partition column."""
    values = {partition_column(table): part}
    return [AddAction(f.path, f.size, values, f.modified_ms, data_change=True, stats=f.stats) for f in files]


@dataclass(frozen=True)
class Writing:
    """What a commit does to a table: which files come, and which go.

    `schema`: the columns that the table has from then on; None where they stay as they are. `parts`: the values of the partition column
    whose files all go; None, if the whole table's do.
    """

    actions: list[AddAction | RemoveAction]
    schema: Schema | None = None
    parts: Collection[str] | None = ()

    @property
    def appends(self) -> bool:
        """Whether no file goes but those that an action names, and no column comes."""
        return self.schema is None and self.parts is not None and not self.parts


def refuse_append_only(uri: str, table: Table, version: int, writing: Writing) -> None:
    """Before a commit on this version that takes files away, which an append-only table doesn't let go.

    Raises:
        RefusedError: the table is append-only.
        CommitFailedError: as `brought_to`.
    """
    if may_lose_files(table):
        return
    gone = any(isinstance(action, RemoveAction) for action in writing.actions)
    if gone or any(writing.parts is None or file.part in writing.parts for file in data_files(brought_to(table, version))):
        what = f"the table {uri} is append-only (delta.appendOnly), and this commit would take rows' files away to write them anew"
        raise SchemaChangedError(what, "commit", "Nothing was committed. Unset delta.appendOnly in the table, then run the window again.")


def append(table: Table, actions: list[AddAction | RemoveAction], properties: CommitProperties, tip: Tip | None = None) -> None:
    """Add files on exactly this snapshot; on the tip of the log, where the table is known to be a plain one."""
    if tip is not None:
        if write_entry(tip, table, actions, properties):
            return
        table = brought_to(table, tip.version)
    handle = handle_of(table)
    with waiting_for_storage(handle.table_uri):
        handle.create_write_transaction(actions, "append", handle.schema(), [partition_column(handle)], commit_properties=properties)
    sync_entry(handle.table_uri, handle.version() + 1)


def overwrite(table: DeltaTable, writing: Writing, properties: CommitProperties) -> None:
    """Do that on exactly this snapshot. deltalake lets a table have other columns in no other kind of write."""
    column = partition_column(table)
    goes = None if writing.parts is None else [(column, "in", sorted(writing.parts))]
    schema = table.schema() if writing.schema is None else writing.schema
    with waiting_for_storage(table.table_uri):
        table.create_write_transaction(writing.actions, "overwrite", schema, [column], partition_filters=goes, commit_properties=properties)
    sync_entry(table.table_uri, table.version() + 1)


def brought_to(table: Table, version: int) -> DeltaTable:
    """deltalake's handle at a version that was looked at, which it may be behind.

    Raises:
        CommitFailedError: there is a newer one.
        UnreachableError: it can't be loaded.
    """
    handle = handle_of(table)
    if handle.version() < version:
        handle.update_incremental()
    if handle.version() != version:
        what = f"version {version + 1} was committed by another one"
        raise CommitFailedError(what)
    return handle


def sync_entry(uri: str, version: int) -> None:
    """Have a commit of deltalake's outlive a loss of power, where that is ours to do: it syncs none."""
    place = Place(normal(uri))
    if place.is_local:
        place.fsync(entry_name(version))


def once(transactions: Mapping[str, int], note: Mapping[str, str]) -> CommitProperties:
    """Commit on the snapshot at hand or not at all, with application transactions, and a note for people in commitInfo."""
    apps = [Transaction(name, version) for name, version in transactions.items()]
    return CommitProperties(custom_metadata=dict(note), max_commit_retries=0, app_transactions=apps)


def attempt(write: Callable[[], None]) -> str | None:
    """Try a commit: None if it is surely there; else why that isn't known. Only a look can tell then, whatever the error.

    deltalake 1.6.6 raises CommitFailedError where another commit came first. But a lost answer to a conditional put, tried again by the
    object store's client, looks the same though the commit is ours; and DeltaError, OSError or a bare Exception may come before the
    commit or, from the checkpoint behind it, after.
    """
    try:
        write()
    except Exception as error:  # noqa: BLE001 - not swallowed: every caller looks again, and gives the reason if it still can't tell
        return conflict(error) if isinstance(error, CommitFailedError) else f"{type(error).__name__}: {reason(error)}"
    return None


def conflict(error: CommitFailedError) -> str:
    """What `attempt` says where another commit came first."""
    return f"{_CONFLICT}: {reason(error)}"


def is_conflict(why: str) -> bool:
    """Whether what `attempt` says is that another commit came first."""
    return why.startswith(_CONFLICT)


def again(uri: str, version: int, waits: list[float]) -> bool:
    """After a failure on that version: whether to look and try again.

    At once if the table has moved on: then somebody's commit arrived, perhaps our own, and others' commits never count against our
    tries. Else after the next wait; no, if there is none left.
    """
    next_entry = entry_name(version + 1)
    try:
        if Place(normal(uri)).seen([next_entry])[next_entry] is not None:
            return True
        table = load(uri)
    except UnreachableError:  # the look that follows says so, with the reason
        table = None
    if table is not None and table.version() > version:
        return True
    if not waits:
        return False
    time.sleep(waits.pop(0))
    return True


def refuse_full(uri: str, version: int, why: str) -> None:
    """After the last try on a version: a disk without room is no unknown outcome, if a look says that the table stands where it stood.

    Raises:
        UnreachableError: there is no room, and nothing was committed.
    """
    if not is_full(why):
        return
    try:
        table = load(uri)
    except UnreachableError:
        return
    if table is not None and table.version() == version:
        what = f"there is no room left where the table {uri} lies: {why}"
        do = "Nothing was committed: the table was looked at again. Make room on that disk (or raise the quota), then run the window again."
        raise UnreachableError(what, "commit", do)


def unknown(uri: str, why: str) -> OutcomeUnknownError:
    """The error for a commit whose outcome can't be told."""
    what = f"a commit to {uri} was sent and its outcome isn't known: {why}"
    return OutcomeUnknownError(what, "commit", "Run the window again: it looks into the table first.")
