"""Delta tables by deltalake: load one, read its owner and files, commit on the loaded version.

deltalake's own retry is off everywhere, because it commits again on a snapshot that windrow
hasn't looked at. With its retry, two creators that race both succeed even with
`create(mode="error")`, and the second one replaces the first one's properties (deltalake 1.6.6:
29 successes in 15 races; without its retry 15).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from windrow.ingest.errors import (
    DamagedError,
    SchemaChangedError,
    SpecError,
    Stage,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.settings.paths import is_url
from windrow.ingest.sinks.delta.stage import StagedFile
from windrow.ingest.sinks.kit import (
    Conflict,
    PartitionField,
    Place,
    PrimaryKey,
    Unanswered,
    refuse_other_key,
)

LOG = "_delta_log"
NEWEST_CHECKPOINT = f"{LOG}/_last_checkpoint"

PAGES_APP = "windrow:pages"
"""The application transaction whose version is the name of the newest page.

`sinks.kit.commit.pages` has the pages.
"""

_ENTRY = re.compile(r"\d{20}\.json")

CLEANED_EVERY = 1000
"""The commits between two clean-ups of the log. Each clean-up lists all files of the log."""

_OF_FEATURES = ("Unsupported", "Column mapping", "catalog-managed")
_OF_THE_LOG = ("found gap", "No table metadata or protocol", "Json error")
"""Words in deltalake's errors about features and about the log, not about the storage."""

_FEATURES = (
    "Something else gave the table what windrow can't read. Take that off with what switched it on"
    " (Spark: ALTER TABLE ... DROP FEATURE), or begin a pipeline with another id and table."
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"(?<=non-2xx status code: )(\d+ [\w ]+):.*?(?:<Code>(\w+)</Code>.*)?$")
"""Matches the answer of an object store, which may repeat the signed headers of the request."""

_RETENTION = "delta.setTransactionRetentionDuration"


def entry_name(version: int) -> str:
    """Returns the path of a version's entry in the log."""
    return f"{LOG}/{version:020d}.json"


def load(uri: str) -> DeltaTable | None:
    """Loads the table as it is now; None if it doesn't exist.

    Raises:
        SpecError: the path is a file.
        SchemaChangedError: the table has features that deltalake can't read.
        DamagedError: its log is incomplete.
        UnreachableError: the table can't be read.
    """
    try:
        with Place(uri).waiting():
            return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except Exception as error:  # its text may repeat a request  # noqa: BLE001
        if Path(uri).is_file():
            raise SpecError(
                f"{uri} is a file, and no folder for a table",
                "setup",
                "Set sink.path to a folder, or to a place where one can be made.",
            ) from None
        place = Place(uri)
        damaged = None if is_url(uri) else newest_entry_error(uri, place)
        if damaged is not None:
            raise damaged from None
        cause = reason(error).partition(": ParsedLogPath")[0]
        message = f"the table {uri} can't be read: {cause}"
        if any(words in cause for words in _OF_FEATURES):
            raise SchemaChangedError(message, "setup", _FEATURES) from None
        if any(words in cause for words in _OF_THE_LOG):
            raise DamagedError(
                message,
                "setup",
                f"Entries of {uri}/{LOG} are gone or damaged: restore them from a backup.",
            ) from None
        raise UnreachableError(message, "setup", place.advice(cause)) from None


def reason(error: Exception) -> str:
    """Returns the first line of an error and its causes, without a trace.

    deltalake writes the causes as a tree. The last causes have the code, after long names.
    """
    first, *more = _COLOUR.sub("", str(error)).strip().splitlines() or [""]
    causes = [
        line.strip().removeprefix("↳").strip() for line in more if line.strip().startswith("↳")
    ]
    sentences = ["no credentials were found"] if "credential" in str(causes) else [first, *causes]
    return _ANSWER.sub(r"\1 \2", ": ".join(sentences))[:1000] or type(error).__name__


def newest_page(uri: str, table: DeltaTable) -> str:
    """Returns the name of the newest page by the log; "" before the first commit.

    Raises:
        UnreachableError: a file of the log can't be read, or was cleaned up meanwhile.
    """
    with _explain_log_errors(uri):
        number = table.transaction_version(PAGES_APP)
    return "" if number is None else f"{number:016x}"


@contextmanager
def _explain_log_errors(uri: str) -> Iterator[None]:
    """Converts deltalake's errors while it reads more of the log of a table.

    Raises:
        UnreachableError: a file of the log can't be read, or was cleaned up meanwhile.
    """
    try:
        yield
    except Exception as error:  # its text may repeat a request  # noqa: BLE001
        raise UnreachableError(
            f"the log of the table {uri} can't be read: {reason(error)}",
            "setup",
            "If its log is being cleaned up, run again; else check its storage and rights.",
        ) from None


@dataclass(frozen=True)
class Shape:
    """The layout of a table.

    Attributes:
        column: the first partition column: the window's, or the bucket's.
        primary_key: the table's primary key; None if it has none.
        partition_by: the partition fields. Each is another partition column.
    """

    column: str
    primary_key: PrimaryKey | None
    partition_by: tuple[PartitionField, ...] = ()

    @property
    def columns(self) -> list[str]:
        """All partition columns."""
        return [self.column, *(field.name for field in self.partition_by)]


def owner_of(uri: str, table: DeltaTable, shape: Shape) -> TableOwner:
    """Reads the owner of a table. It is called before any use of the table.

    Raises:
        SchemaChangedError: the table has another layout, so a replacement would remove other
            rows too.
        SpecError: something other than windrow made the table, or its log forgets windrow's
            windows.
    """
    meta = table.metadata()
    configuration: Mapping[str, str] = meta.configuration
    owner = TableOwner.from_properties(configuration, uri)
    PartitionField.refuse_other(
        uri, PartitionField.read_description(configuration), shape.partition_by
    )
    if meta.partition_columns != shape.columns:
        partitioned_by = ", ".join(meta.partition_columns) or "nothing"
        raise SchemaChangedError(
            f"the table {uri} is partitioned by {partitioned_by}, not by"
            f" {', '.join(shape.columns)}",
            "setup",
            "Set sink.mode, or the name of metadata window, back if it was changed; else give the "
            "sink a path of its own: windrow makes the table.",
        )
    refuse_other_key(uri, configuration, shape.primary_key)
    if _RETENTION in configuration:
        raise SpecError(
            f"the table {uri} sets {_RETENTION} = {configuration[_RETENTION]}: it would forget"
            " which windows it holds",
            "setup",
            f"Unset it: ALTER TABLE ... UNSET TBLPROPERTIES ('{_RETENTION}').",
        )
    return owner


# ------------------------------------------------------------------------ an entry that was cut off
#
# Delta makes an entry visible by one rename and doesn't sync it. So a loss of power may leave the
# newest entry empty, full of zeros or incomplete. Then the table can't be loaded; or, if the entry
# was cut off exactly at the end of a line, windrow refuses to commit after it. So no commit depends
# on the entry, and it is safe to remove. Without it the table is as before that commit: it has
# neither the rows nor the receipt of that commit. An object store has whole entries only.


def newest_entry_error(uri: str, folder: Place) -> UnreachableError | None:
    """Returns the error for a newest entry of the log that isn't lines of JSON.

    None if it is, or if it can't be read.
    """
    try:
        newest = max(filter(_ENTRY.fullmatch, folder.names(LOG)), default=None)
        content = b"" if newest is None else folder.get(f"{LOG}/{newest}")
    except (WindrowError, OSError):
        return None
    try:
        for line in content.splitlines():
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return _cut_off(f"{uri}/{LOG}/{newest}", "setup")
    return None


def refuse_unfinished(uri: str, folder: Place, version: int) -> None:
    """Refuses to commit after an entry of windrow that lacks its last lines.

    An entry that was cut off at the end of a line can be loaded. It has its rows, but not the
    application transaction in the last line, so a later run wouldn't know that the window is
    committed.

    Raises:
        UnreachableError: the entry of this version lacks its last lines.
    """
    name = entry_name(version)
    try:
        lines = [msgspec.json.decode(line) for line in folder.get(name).splitlines()]
        ours = any("windrow" in line.get("commitInfo", ()) for line in lines)
        ended = any(line.get("txn", {}).get("appId") == PAGES_APP for line in lines)
    except (WindrowError, OSError, msgspec.DecodeError, AttributeError, TypeError):
        return  # the entry can't be checked
    if ours and not ended:
        raise _cut_off(f"{uri}/{name}", "commit")


def _cut_off(path: str, stage: Stage) -> UnreachableError:
    return UnreachableError(
        "the newest entry of the table's log is damaged, as by a loss of power in the middle"
        f" of a commit: {path}",
        stage,
        "That commit did not arrive whole, and the table is as before without it. While no run"
        f" is going, set the file aside: mv '{path}' '{path}.torn'. If windrow brought it, run"
        " its window again, which reads the same offsets; windrow verify SPEC names the window"
        " that the ledger has and the table hasn't. If the table has none left, windrow rebind SPEC"
        " comes first.",
    )


# --------------------------------------------------------------------------------- files of a table

_HARMLESS = frozenset(
    {
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
"""Features of the protocol that don't change which rows of its files a table has."""


def _hiding_features(table: DeltaTable) -> str:
    """Returns the features that hide rows or columns of the table's files.

    These include column mapping in tables of old protocols.
    """
    features = set(table.protocol().reader_features or ()) - _HARMLESS
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    return ", ".join(sorted(features))


def refuse_hidden_rows(uri: str, table: DeltaTable, way_out: str = "") -> None:
    """Refuses to rewrite files of a table with features that hide some of their rows.

    Args:
        uri: the table's path or URI.
        table: the table.
        way_out: what else can be done, as a sentence after a blank.

    Raises:
        SchemaChangedError: the table has such a feature.
    """
    features = _hiding_features(table)
    if features:
        raise SchemaChangedError(
            f"the table {uri} has the features {features}: its files alone don't tell which rows it"
            " holds",
            "commit",
            "Nothing was committed. Take them off the table, which is to be written by windrow"
            f" alone.{way_out}",
        )


def refuse_unreadable_rows(uri: str, table: DeltaTable) -> None:
    """Refuses to read files of a table with features that hide some of their rows.

    Raises:
        UnreachableError: the table has such a feature.
    """
    features = _hiding_features(table)
    if features:
        raise UnreachableError(
            f"the rows of the table {uri} can't be read: it has the features {features}",
            "setup",
            "Take that off with what switched it on; of deletion vectors: REORG TABLE ... APPLY"
            " (PURGE), then DROP FEATURE.",
        )


def list_added_files(table: DeltaTable) -> pa.Table:
    """Lists the table's files as its log describes them. `pyarrow.table` would load pandas."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def find_needed_paths(uri: str, table: DeltaTable) -> frozenset[str]:
    """Returns the paths of this version's files, and of those that older versions may need.

    Readers may still read older versions. Delta's own vacuum removes the files that a commit
    has removed from the table.
    """
    with _explain_log_errors(uri):
        removed = table.vacuum(
            retention_hours=0, dry_run=True, enforce_retention_duration=False, full=False
        )
    return frozenset(map(unquote, list_added_files(table)["path"].to_pylist())) | frozenset(removed)


def list_replaced(folder: Place, table: DeltaTable, instant: int) -> list[str]:
    """Returns the paths of files that this version lacks since an instant, if they still exist.

    Args:
        folder: the table's place.
        table: the version.
        instant: the instant, in epoch milliseconds.
    """
    age = datetime.now(UTC).timestamp() * 1000 - instant
    with _explain_log_errors(folder.uri):
        replaced = table.vacuum(
            retention_hours=math.ceil(age / 3_600_000),
            dry_run=True,
            enforce_retention_duration=False,
            full=False,
        )
    return [path for path, file in folder.stat_files(replaced).items() if file is not None]


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table.

    Attributes:
        path: the path below the table.
        size: the size in bytes.
        part: its value of the first partition column.
        partition: the texts of the table's partition fields, by their names.
    """

    path: str
    size: int
    part: str
    partition: dict[str, str | None] = {}


def data_files(table: DeltaTable) -> list[DataFile]:
    """Returns all files of a table, by its log."""
    files = list_added_files(table)
    names = table.metadata().partition_columns[1:]
    columns = [f"partition.{name}" for name in names]
    about = files.select(["path", "size_bytes", part_of(table), *columns]).to_pylist()
    return [
        DataFile(
            unquote(f["path"]),
            f["size_bytes"],
            str(f[part_of(table)]),
            {name: _partition_text(f[column]) for name, column in zip(names, columns, strict=True)},
        )
        for f in about
    ]


def _partition_text(value: object) -> str | None:
    """Returns the value of a partition column as the log has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def part_of(table: DeltaTable) -> str:
    """Returns the name of the column of `list_added_files` with the first partition column."""
    return f"partition.{table.metadata().partition_columns[0]}"


# ----------------------------------------------------------------------------------- writing


Action = AddAction | RemoveAction


def add_actions(
    table: DeltaTable, files: Iterable[StagedFile], part: str, *, changes: bool = True
) -> list[Action]:
    """Returns actions that add staged files with one value of the first partition column.

    Args:
        table: the snapshot.
        files: the staged files.
        part: the value of the first partition column.
        changes: whether they have other rows than the files that the same commit removes.
    """
    column = table.metadata().partition_columns[0]
    return [
        AddAction(
            f.path,
            f.size,
            {column: part, **f.partition},
            f.modified_ms,
            data_change=changes,
            stats=f.stats,
        )
        for f in files
    ]


def remove_action(table: DeltaTable, file: DataFile, *, changes: bool = True) -> Action:
    """Returns an action that removes a file.

    Args:
        table: the snapshot.
        file: the file.
        changes: as in `add_actions`.
    """
    now = int(datetime.now(UTC).timestamp() * 1000)
    column = table.metadata().partition_columns[0]
    return RemoveAction(file.path, changes, now, file.size, {column: file.part, **file.partition})


@dataclass(frozen=True)
class Writing:
    """The change of a table's files by one commit.

    Attributes:
        actions: the added and removed files.
        schema: the table's new columns; None if they don't change.
        parts: the values of the partition column whose files are all removed; None to remove
            all files of the table.
    """

    actions: list[Action]
    schema: Schema | None = None
    parts: Collection[str] | None = ()


def refuse_append_only(
    uri: str, table: DeltaTable, act: str, parts: Collection[str] | None
) -> None:
    """Refuses to remove files of an append-only table.

    Args:
        uri: the table's path or URI.
        table: the snapshot.
        act: the act that removes them, for the error.
        parts: the values of the partition column whose files are removed; None for all files.

    Raises:
        SchemaChangedError: the table is append-only, and has such files.
    """
    is_append_only = str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true"
    if is_append_only and any(parts is None or file.part in parts for file in data_files(table)):
        raise SchemaChangedError(
            f"the table {uri} is append-only (delta.appendOnly), and rows' files would go and be"
            f" written anew by {act}",
            "setup",
            "Nothing was committed. Unset delta.appendOnly in the table, then run it again; a"
            " replay by windrow replay SPEC --window W.",
        )


def write(folder: Place, table: DeltaTable, writing: Writing, page: str, note: str) -> None:
    """Commits on exactly this snapshot, or not at all.

    deltalake changes a table's columns only in the mode "overwrite".

    Args:
        folder: the table's place.
        table: the snapshot.
        writing: the change of its files.
        page: name of the newest page. It is in the last line of the log's entry, so an entry
            that was cut off doesn't have it.
        note: text for people who read the table's history.
    """
    columns, partition_columns = (
        writing.schema or table.schema(),
        table.metadata().partition_columns,
    )
    version = table.version() + 1
    clean = None if version % CLEANED_EVERY == 0 else False  # None: the table's own setting
    hooks = PostCommitHookProperties(cleanup_expired_logs=clean)
    properties = CommitProperties(
        custom_metadata={"windrow": note},
        max_commit_retries=0,
        app_transactions=[Transaction(PAGES_APP, int(page, 16))],
    )
    mode, partition_filters = "append", None
    if writing.schema is not None or writing.parts is None or writing.parts:
        mode = "overwrite"
        partition_filters = (
            None if writing.parts is None else [(partition_columns[0], "in", sorted(writing.parts))]
        )
    with Place(table.table_uri).waiting():
        table.create_write_transaction(
            writing.actions,
            mode,
            columns,
            partition_columns,
            partition_filters=partition_filters,
            commit_properties=properties,
            post_commithook_properties=hooks,
        )
    sync_version(folder, version)


def sync_version(folder: Place, version: int) -> None:
    """Syncs a version and its checkpoint to the disk, because deltalake doesn't."""
    if folder.is_local:
        names = [entry_name(version), f"{LOG}/{version:020d}.checkpoint.parquet"]
        for name, file in folder.stat_files(names).items():
            if file is not None:
                folder.fsync(name)


def try_change(act: Callable[[], None], *, local: bool) -> Conflict | Unanswered | None:
    """Makes a change of the table; returns None if it has certainly arrived.

    After any error the caller must look at the table, because the error doesn't say whether the
    commit arrived:

    - deltalake 1.6.6 raises CommitFailedError if another commit came first. It raises the same
      error if the object store's client lost the answer to a conditional put and repeated the
      put, though the commit is ours.
    - DeltaError, OSError or a bare Exception may come before the commit, or after it from the
      checkpoint.
    """
    try:
        act()
    except CommitFailedError as error:
        return Conflict(reason(error))
    except Exception as error:  # noqa: BLE001
        cause = f"{type(error).__name__}: {reason(error)}"
        return Unanswered.by_storage(cause, is_local=local)
    return None
