"""An Iceberg table: what it holds in one state, and one commit on exactly that state.

PyIceberg's own commit tries again on a state that nobody looked at, and removes the manifests of a commit that it takes for failed, which a
lost answer may be. So what it prepares is sent once, by `Prepared.send`, and nothing is removed:

    the branch main is where it was looked at    `AssertRefSnapshotId`: with any other commit in between, this one fails
    columns and partitions are what they were    `AssertCurrentSchemaId`, `AssertDefaultSpecId`
    it is the same table                         `AssertTableUUID`

Every commit of windrow's makes a snapshot, also one without rows, and its summary names the pages (`ingest.sinks.iceberg.pages`) of all
windows up to then. The newest snapshot of windrow's among the ancestors of main tells the state: a rollback takes windows' rows and their
receipts back together. Where all of those are expired, the table's property tells, which names what the last commit named. A rollback
leaves the property as it is, so then a window whose receipt has rows is believed only where the table has any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from windrow.ingest.errors import DamagedError, OutcomeUnknownError, RefusedError, SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.plan import Covered
from windrow.ingest.model.receipt import Committed
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.catalogs import load, reason
from windrow.ingest.sinks.iceberg.names import digest, page_path, window_of
from windrow.ingest.sinks.iceberg.pages import Page, PageLine, Pages, decoded, encoded, page_of
from windrow.ingest.sinks.iceberg.place import LakePlace, local_path
from windrow.ingest.sinks.iceberg.receipts import LakeReceipts
from windrow.ingest.sinks.iceberg.stage import IcebergStagerFactory, LakeFile
from windrow.ingest.sinks.iceberg.storage import TaskStorage, for_tasks, storage_properties
from windrow.ingest.sinks.staging import Layout

TRIES = 100
"""So many times a commit is tried that others' commits came before."""

_CONFLICT = "conflict"
_PAGES = "windrow.pages"
_SWEPT = "windrow.swept"
_BINDING = ("windrow.pipeline", "windrow.ledger", "windrow.grid")

Properties = Mapping[str, str]


def properties_of(binding: Binding) -> dict[str, str]:
    """What a new table says of itself: whose it is, and how its metadata stays small whoever writes it."""
    return {
        **dict(zip(_BINDING, (binding.pipeline, binding.ledger, binding.grid), strict=True)),
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "50",
    }


@dataclass(frozen=True)
class LakeState:
    """One state of a table, as it was looked at.

    `swept`: staged files last written until this instant, in epoch milliseconds, were given up; None if none were.
    """

    table: Table
    pages: Pages
    swept: int | None

    @cached_property
    def place(self) -> LakePlace:
        """The files below it."""
        return place_of(self.table)

    @property
    def number(self) -> int:
        """How many snapshots there have been; it only grows."""
        return max((s.sequence_number or 0 for s in self.table.metadata.snapshots), default=0)

    def tasks(self, column: str, key: str) -> list[FileScanTask]:
        """The files with the rows of a window, each with what was deleted of it."""
        if self.table.current_snapshot() is None:
            return []
        of_window = EqualTo(column, key)  # type: ignore[call-arg, arg-type]  # mypy sees the aliases of pydantic's fields, here and below
        return self._planned(self.table.scan(row_filter=of_window))

    def every_task(self) -> list[FileScanTask]:
        """All files of the table."""
        return [] if self.table.current_snapshot() is None else self._planned(self.table.scan())

    def filled(self) -> set[str]:
        """The windows that the table holds rows of, as far as that is told without reading them: each file lies in one window's part."""
        return {str(task.file.partition[0]) for task in self.every_task() if len(task.file.partition)}

    def _planned(self, scan: DataScan) -> list[FileScanTask]:
        """The files that a scan reads.

        Raises:
            UnreachableError: a manifest can't be read, or is damaged: PyIceberg raises whatever its bytes lead to.
        """
        try:
            return list(scan.plan_files())
        except Exception as error:
            what = f"the manifests of the table {'.'.join(self.table.name())} can't be read: {type(error).__name__}"
            do = "Check the storage. If a file in its folder metadata is damaged or gone, restore it from a backup. Nothing was committed."
            raise UnreachableError(what, "setup", do) from error


@dataclass(frozen=True)
class LakeWriting:
    """What a commit does to a table.

    `added` and `removed`: files with rows; `part`: the window that the added ones are of. `schema`: the columns from then on. `windows`,
    `notes` and `covered`: what its page says; `swept`: what is given up. `summary`: for people, in the snapshot's.
    """

    part: str = ""
    added: Sequence[LakeFile] = ()
    removed: Sequence[DataFile] = ()
    schema: Schema | None = None
    windows: Callable[[int], Mapping[str, PageLine]] = lambda _snapshot: {}
    notes: Mapping[str, int] = field(default_factory=dict)
    covered: Sequence[Covered] = ()
    swept: int | None = None
    summary: Mapping[str, str] = field(default_factory=dict)


class Prepared(Transaction):
    """A commit that is ready to be sent, once. Its manifests are written; nothing is visible yet."""

    snapshot: int
    _worked_out: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table as it is to be. PyIceberg works it out, and copies all of it, at each of a dozen looks in one commit."""
        if not self._updates:
            return self._table.metadata
        if self._worked_out is None or self._worked_out[0] is not self._updates:
            self._worked_out = (self._updates, super().table_metadata)
        return self._worked_out[1]

    def send(self) -> None:
        """Have the catalog take it, or not: no error tells surely that it didn't."""
        uuid = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        self._table._do_commit(updates=self._updates, requirements=(*self._requirements, uuid))  # noqa: SLF001 - what a transaction calls

    def become(self, schema: Schema | None) -> None:
        """Have the table have these columns; and none that came meanwhile."""
        about = self._table.metadata
        asked: tuple[TableRequirement, ...] = (
            AssertCurrentSchemaId(current_schema_id=about.current_schema_id),  # type: ignore[call-arg]
            AssertDefaultSpecId(default_spec_id=about.default_spec_id),  # type: ignore[call-arg]
        )
        new: tuple[TableUpdate, ...] = ()
        if schema is not None:
            numbered = schema.model_copy(update={"schema_id": 1 + max(s.schema_id for s in about.schemas)})
            new = (AddSchemaUpdate(schema=numbered), SetCurrentSchemaUpdate(schema_id=-1))  # type: ignore[call-arg]
        self._apply(new, asked)


class LakeTable:
    """One table, by its catalog.

    Args:
        at: where it is.
        column: the column of the window, by which it is partitioned.
    """

    def __init__(self, at: TableAt, column: str) -> None:
        self.at, self.column = at, column
        self._pages: dict[str, Page] = {}
        self._receipts = LakeReceipts()

    def look(self) -> LakeState | None:
        """The table as it is now; None if it isn't there.

        Raises:
            SpecError, SchemaChangedError: it was made by something else, or isn't partitioned by the window.
            DamagedError: a page is missing or damaged.
            UnreachableError: that can't be told.
        """
        table = load(self.at)
        if table is None:
            return None
        refuse_strange(self.at.place, table, self.column)
        said = _newest_word(table)
        names = said.get(_PAGES, "").split()
        swept = said.get(_SWEPT)
        place = place_of(table)
        state = LakeState(table, Pages(names, [self._page(place, name) for name in names]), None if swept is None else int(swept))
        return state if said is not table.metadata.properties else self._without_taken_back(state)

    def _without_taken_back(self, state: LakeState) -> LakeState:
        """The state without the windows, and the notes of dead letters, whose rows a rollback took back: none of them is in the table."""
        filled = state.filled()
        windows = [key for key, line in state.pages.windows().items() if key not in filled and self._had_rows(state.place, key, line)]
        notes = [name for name in state.pages.notes() if (said := window_of(name, "dead")) is not None and said[0] not in filled]
        return replace(state, pages=state.pages.without(windows, notes))

    def _had_rows(self, place: LakePlace, key: str, line: PageLine) -> bool:
        found = self._receipts.committed_or_damage(place, key, line)
        return isinstance(found, Committed) and found.receipt.counts.rows > 0

    def look_now(self) -> LakeState:
        """The same of a table that must be there."""
        state = self.look()
        if state is None:
            what = f"the table {self.at.place} isn't there any more"
            raise RefusedError(what, "commit", "Was it removed meanwhile? Run the window again.")
        return state

    def prepared(self, state: LakeState, writing: LakeWriting) -> Prepared:
        """A commit on exactly this state, as far as it can be made before it is sent.

        Raises:
            UnreachableError: files can't be read or written; nothing was committed.
        """
        try:
            return self._prepared(state, writing)
        except (UnreachableError, RefusedError):
            raise
        except Exception as error:
            what = f"a commit to {self.at.place} can't be prepared: {reason(self.at, error)}"
            do = "Nothing was committed. Make room or mend the storage, then run the window again."
            raise UnreachableError(what, "commit", do) from error

    def attempt(self, send: Callable[[], None]) -> str | None:
        """Try a commit: None if it is surely there; else why that isn't known. Only a look can tell then, whatever the error."""
        try:
            send()
        except CommitFailedException as error:
            return f"{_CONFLICT}: {reason(self.at, error)}"
        except Exception as error:  # noqa: BLE001 - not swallowed: every caller looks again, and gives the reason if it still can't tell
            return reason(self.at, error)
        return None

    def unknown(self, why: str) -> OutcomeUnknownError:
        """The error for a commit whose outcome can't be told."""
        what = f"a commit to {self.at.place} was sent and its outcome isn't known: {why}"
        return OutcomeUnknownError(what, "commit", "Run the window again: it looks into the table first.")

    def _prepared(self, state: LakeState, writing: LakeWriting) -> Prepared:
        ready = Prepared(state.table)
        ready.become(writing.schema)
        update = ready.update_snapshot()
        producer: Any = update.overwrite() if writing.removed else update.merge_append()
        for file in writing.added:
            producer.append_data_file(_data_file(state.table, file, writing.part))
        for gone in writing.removed:
            producer.delete_data_file(gone)
        ready.snapshot = producer.snapshot_id
        names = self._write_page(state, page_of(writing.windows(ready.snapshot), writing.notes, writing.covered))
        swept = state.swept if writing.swept is None else writing.swept
        word = {_PAGES: " ".join(names), **({} if swept is None else {_SWEPT: str(swept)})}
        producer.snapshot_properties = {**word, **writing.summary}
        producer.commit()
        ready.set_properties(word)
        return ready

    def _write_page(self, state: LakeState, new: Page) -> Sequence[str]:
        """Write the page of a commit; the names of all pages from then on. A commit that says nothing new has none of its own."""
        if not new.size and "" not in state.pages.names:
            return state.pages.names
        page, behind = state.pages.with_page(new)
        content = encoded(page)
        said = digest(content)
        state.place.put(page_path(said), content)
        self._pages[said] = page
        return [said, *behind]

    def _page(self, place: LakePlace, said: str) -> Page:
        if said not in self._pages:
            self._pages[said] = read_page(self.at.place, place, said)
        return self._pages[said]


def read_page(where: str, place: LakePlace, named: str) -> Page:
    """A page that a snapshot names.

    Raises:
        DamagedError: it is missing or damaged.
    """
    try:
        content = place.get(page_path(named))
    except FileNotFoundError:
        content = b""
    page = decoded(content) if digest(content) == named else None
    if page is None:
        what = (
            f"the page {page_path(named)} of the table {where}, which says what windows it holds, is {'damaged' if content else 'missing'}"
        )
        do = "Restore the table's _windrow folder from a backup. Until then no window is written: nobody can tell which ones are there."
        raise DamagedError(what, "commit", do)
    return page


def place_of(table: Table) -> LakePlace:
    """The files below a table."""
    return LakePlace(table.metadata.location, lambda: storage_properties(table))


def stagers(at: TableAt, table: Table, layout: Layout, columns: pa.Schema, window_key: str) -> IcebergStagerFactory:
    """What executors stage a window's rows with, for a table as it is now.

    Raises:
        SpecError: tasks can't open its storage without a secret being sent to them.
    """
    location = table.metadata.location
    storage = TaskStorage() if local_path(location) else for_tasks(at, storage_properties(table))
    return IcebergStagerFactory(location, storage, layout, columns, window_key)


def is_conflict(why: str) -> bool:
    """Whether what `attempt` says is that another commit came first."""
    return why.startswith(_CONFLICT)


def waits_again(why: str, waits: list[float], tries: Iterator[int], sleep: Callable[[float], None]) -> bool:
    """After a commit that isn't known to have arrived: whether to look and try again, now that it has waited.

    At once after a conflict: somebody's commit arrived, perhaps our own, and that never counts against the tries of other failures.
    """
    if next(tries, None) is None or not (is_conflict(why) or waits):
        return False
    if not is_conflict(why):
        sleep(waits.pop(0))
    return True


def bound_to(where: str, table: Table) -> Binding:
    """What a table is bound to.

    Raises:
        SpecError: it was made by something else.
    """
    kept = table.metadata.properties
    missing = next((name for name in _BINDING if name not in kept), None)
    if missing is not None:
        what = f"the table {where} was not made by windrow: its property {missing!r} is missing"
        raise SpecError(what, "setup", "Give the sink a table of its own; windrow makes it.")
    return Binding(*(kept[name] for name in _BINDING))


def refuse_strange(where: str, table: Table, column: str) -> None:
    """Before any use: the table is windrow's, and its rows lie by their windows.

    Raises:
        SpecError: it was made by something else.
        SchemaChangedError: its rows lie in another way: a replacement would take other windows' rows with it.
    """
    bound_to(where, table)
    names = [table.schema().find_column_name(f.source_id) for f in table.spec().fields]
    if names != [column] or not isinstance(table.spec().fields[0].transform, IdentityTransform):
        what = f"the table {where} is partitioned by {', '.join(map(str, names)) or 'nothing'}, not by {column}"
        do = "Set the partitions, or the name of metadata window, back if they were changed; else give the sink a table of its own."
        raise SchemaChangedError(what, "setup", do)


def only_of(state: LakeState, column: str, key: str) -> list[DataFile]:
    """The files of a window, to be taken out whole.

    Raises:
        SchemaChangedError: rows of it lie in a file that may hold others, as one from before the partitions were changed.
    """
    spec = state.table.metadata.default_spec_id
    files = [task.file for task in state.tasks(column, key)]
    mixed = [f.file_path for f in files if f.spec_id != spec or f.partition[0] != key]
    if mixed:
        what = f"{len(mixed)} files with rows of window {key} may hold other windows' rows too, the first is {mixed[0]}"
        raise SchemaChangedError(what, "commit", f"Nothing was committed. Have them written anew, partitioned by {column}.")
    return files


def _newest_word(table: Table) -> Properties:
    """What the newest snapshot of windrow's on main says; the table's properties, where all of those that there were are expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and _PAGES in snapshot.summary.additional_properties:
            return snapshot.summary.additional_properties
        if snapshot.sequence_number == 1:
            return {}  # the table's first one, and none of windrow's behind it
        parent = snapshot.parent_snapshot_id  # of one that is expired PyIceberg leaves nothing, other ones the name
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
    return table.metadata.properties


def _data_file(table: Table, file: LakeFile, part: str) -> DataFile:
    about = file.metrics
    return DataFile.from_args(
        file_path=f"{table.metadata.location.rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(part),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        value_counts=about.values,
        null_value_counts=about.nulls,
        lower_bounds=about.lower,
        upper_bounds=about.upper,
        split_offsets=list(about.splits),
        spec_id=table.metadata.default_spec_id,
    )
