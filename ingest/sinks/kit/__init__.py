"""The building blocks of kinds of sinks: all names that a kind may import from the shared modules.

A kind, windrow's own or a plugin's, imports them from here. Each name has a docstring at its
definition, and `docs/write-your-own.md` has examples. A name is loaded when it is first used:
most commands load only a spec's section, which needs no Arrow.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers only."""

if TYPE_CHECKING:
    from windrow.ingest.crashpoints import crash_point as crash_point
    from windrow.ingest.retry import STORE_WAITS as STORE_WAITS
    from windrow.ingest.retry import retry as retry
    from windrow.ingest.schema.calendar import find_outside_calendar as find_outside_calendar
    from windrow.ingest.schema.checksum import checksum as checksum
    from windrow.ingest.schema.checksum import checksum_text as checksum_text
    from windrow.ingest.schema.checksum import hash_rows as hash_rows
    from windrow.ingest.schema.messages import last_values as last_values
    from windrow.ingest.schema.metadata_types import names_beyond_spark as names_beyond_spark
    from windrow.ingest.schema.partition_fields import PartitionField as PartitionField
    from windrow.ingest.schema.partition_fields import PartitionValues as PartitionValues
    from windrow.ingest.schema.primary_key import BUCKET as BUCKET
    from windrow.ingest.schema.primary_key import PrimaryKey as PrimaryKey
    from windrow.ingest.schema.row_changes import DELETED as DELETED
    from windrow.ingest.schema.row_changes import UNAVAILABLE as UNAVAILABLE
    from windrow.ingest.sinks.kind import Buckets as Buckets
    from windrow.ingest.sinks.kind import Evolve as Evolve
    from windrow.ingest.sinks.kind import KeyColumns as KeyColumns
    from windrow.ingest.sinks.kind import KeyedSection as KeyedSection
    from windrow.ingest.sinks.kind import Mode as Mode
    from windrow.ingest.sinks.kind import OnClusterSection as OnClusterSection
    from windrow.ingest.sinks.kind import PartitionBy as PartitionBy
    from windrow.ingest.sinks.kind import Rows as Rows
    from windrow.ingest.sinks.kind import SinkSection as SinkSection
    from windrow.ingest.sinks.kind import StoragePlace as StoragePlace
    from windrow.ingest.sinks.kind import Version as Version
    from windrow.ingest.sinks.kind import delta_dead_letters as delta_dead_letters
    from windrow.ingest.sinks.kind import key_conflicts as key_conflicts
    from windrow.ingest.sinks.kit.columns.json_columns import JsonEncoder as JsonEncoder
    from windrow.ingest.sinks.kit.columns.json_columns import json_texts as json_texts
    from windrow.ingest.sinks.kit.columns.json_columns import parse_json as parse_json
    from windrow.ingest.sinks.kit.columns.merging import MergeColumns as MergeColumns
    from windrow.ingest.sinks.kit.columns.merging import MergeCounts as MergeCounts
    from windrow.ingest.sinks.kit.columns.merging import refuse_unmergeable as refuse_unmergeable
    from windrow.ingest.sinks.kit.columns.schema_evolution import Evolution as Evolution
    from windrow.ingest.sinks.kit.columns.schema_evolution import allowed_changes as allowed_changes
    from windrow.ingest.sinks.kit.columns.sql_names import quote_identifier as quote_identifier
    from windrow.ingest.sinks.kit.columns.table_columns import fit_columns as fit_columns
    from windrow.ingest.sinks.kit.columns.table_columns import is_scalar as is_scalar
    from windrow.ingest.sinks.kit.columns.table_columns import (
        refuse_unstorable as refuse_unstorable,
    )
    from windrow.ingest.sinks.kit.columns.table_columns import table_schema as table_schema
    from windrow.ingest.sinks.kit.columns.text_concat import concat_texts as concat_texts
    from windrow.ingest.sinks.kit.columns.text_concat import value_buffers as value_buffers
    from windrow.ingest.sinks.kit.commit.commit_loop import run_commit_loop as run_commit_loop
    from windrow.ingest.sinks.kit.commit.commit_loop import table_gone_error as table_gone_error
    from windrow.ingest.sinks.kit.commit.conflicts import already_committed as already_committed
    from windrow.ingest.sinks.kit.commit.conflicts import refuse_gap as refuse_gap
    from windrow.ingest.sinks.kit.commit.conflicts import refuse_overlap as refuse_overlap
    from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable as DeadLetterTable
    from windrow.ingest.sinks.kit.commit.one_transaction import find_transaction as find_transaction
    from windrow.ingest.sinks.kit.commit.pages import Page as Page
    from windrow.ingest.sinks.kit.commit.pages import PagedState as PagedState
    from windrow.ingest.sinks.kit.commit.pages import PageFiles as PageFiles
    from windrow.ingest.sinks.kit.commit.pages import PageLine as PageLine
    from windrow.ingest.sinks.kit.commit.pages import Pages as Pages
    from windrow.ingest.sinks.kit.commit.stored_receipts import ReceiptRow as ReceiptRow
    from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key as committed_by_key
    from windrow.ingest.sinks.kit.commit.stored_receipts import read_receipt as read_receipt
    from windrow.ingest.sinks.kit.commit.stored_receipts import receipt_digest as receipt_digest
    from windrow.ingest.sinks.kit.commit.table_store import Answer as Answer
    from windrow.ingest.sinks.kit.commit.table_store import Conflict as Conflict
    from windrow.ingest.sinks.kit.commit.table_store import StoredReceipt as StoredReceipt
    from windrow.ingest.sinks.kit.commit.table_store import TableChange as TableChange
    from windrow.ingest.sinks.kit.commit.table_store import Unanswered as Unanswered
    from windrow.ingest.sinks.kit.commit.table_store import Written as Written
    from windrow.ingest.sinks.kit.commit.window_table import ReceiptTable as ReceiptTable
    from windrow.ingest.sinks.kit.commit.window_table import WindowTable as WindowTable
    from windrow.ingest.sinks.kit.commit.window_table import check_receipt as check_receipt
    from windrow.ingest.sinks.kit.files.file_stager import DeadLetterLayout as DeadLetterLayout
    from windrow.ingest.sinks.kit.files.file_stager import FileStager as FileStager
    from windrow.ingest.sinks.kit.files.file_stager import GrowingFile as GrowingFile
    from windrow.ingest.sinks.kit.files.file_stager import Layout as Layout
    from windrow.ingest.sinks.kit.files.file_stager import PartitionedFiles as PartitionedFiles
    from windrow.ingest.sinks.kit.files.file_stager import RowLayout as RowLayout
    from windrow.ingest.sinks.kit.files.file_stager import TextStager as TextStager
    from windrow.ingest.sinks.kit.files.filesystem import Place as Place
    from windrow.ingest.sinks.kit.files.parquet_files import ParquetRowWriter as ParquetRowWriter
    from windrow.ingest.sinks.kit.files.parquet_files import (
        explain_file_errors as explain_file_errors,
    )
    from windrow.ingest.sinks.kit.files.parquet_files import (
        explain_storage_errors as explain_storage_errors,
    )
    from windrow.ingest.sinks.kit.files.parquet_files import read_batches as read_batches
    from windrow.ingest.sinks.kit.files.parquet_files import rows_per_batch as rows_per_batch
    from windrow.ingest.sinks.kit.files.put_if_absent import put_if_absent as put_if_absent
    from windrow.ingest.sinks.kit.files.staged_files import DATA_FOLDER as DATA_FOLDER
    from windrow.ingest.sinks.kit.files.staged_files import RowFile as RowFile
    from windrow.ingest.sinks.kit.files.staged_files import StagedFiles as StagedFiles
    from windrow.ingest.sinks.kit.files.staged_files import staged_path as staged_path
    from windrow.ingest.sinks.kit.files.staged_files import window_folder as window_folder
    from windrow.ingest.sinks.kit.files.write_check import refuse_unwritable as refuse_unwritable
    from windrow.ingest.sinks.kit.merge.bucket_merge import BucketFiles as BucketFiles
    from windrow.ingest.sinks.kit.merge.bucket_merge import MergeLayout as MergeLayout
    from windrow.ingest.sinks.kit.merge.bucket_merge import merge_changes as merge_changes
    from windrow.ingest.sinks.kit.merge.keyed_state import KeyedState as KeyedState
    from windrow.ingest.sinks.kit.merge.keyed_state import key_properties as key_properties
    from windrow.ingest.sinks.kit.merge.keyed_state import refuse_other_key as refuse_other_key
    from windrow.ingest.sinks.kit.merge.staged_changes import ChangesFile as ChangesFile
    from windrow.ingest.sinks.kit.merge.staged_changes import begin_changes as begin_changes
    from windrow.ingest.waiting import lock_holder as lock_holder
    from windrow.ingest.waiting import waiting_for as waiting_for

_NAMES = {
    "crashpoints": ("crash_point",),
    "retry": (
        "STORE_WAITS",
        "retry",
    ),
    "schema.calendar": ("find_outside_calendar",),
    "schema.checksum": (
        "checksum",
        "checksum_text",
        "hash_rows",
    ),
    "schema.messages": ("last_values",),
    "schema.metadata_types": ("names_beyond_spark",),
    "schema.partition_fields": (
        "PartitionField",
        "PartitionValues",
    ),
    "schema.primary_key": (
        "BUCKET",
        "PrimaryKey",
    ),
    "schema.row_changes": (
        "DELETED",
        "UNAVAILABLE",
    ),
    "sinks.kind": (
        "Buckets",
        "Evolve",
        "KeyColumns",
        "KeyedSection",
        "Mode",
        "OnClusterSection",
        "PartitionBy",
        "Rows",
        "SinkSection",
        "StoragePlace",
        "Version",
        "delta_dead_letters",
        "key_conflicts",
    ),
    "sinks.kit.columns.json_columns": (
        "JsonEncoder",
        "json_texts",
        "parse_json",
    ),
    "sinks.kit.columns.merging": (
        "MergeColumns",
        "MergeCounts",
        "refuse_unmergeable",
    ),
    "sinks.kit.columns.schema_evolution": (
        "Evolution",
        "allowed_changes",
    ),
    "sinks.kit.columns.sql_names": ("quote_identifier",),
    "sinks.kit.columns.table_columns": (
        "fit_columns",
        "is_scalar",
        "refuse_unstorable",
        "table_schema",
    ),
    "sinks.kit.columns.text_concat": (
        "concat_texts",
        "value_buffers",
    ),
    "sinks.kit.commit.commit_loop": (
        "run_commit_loop",
        "table_gone_error",
    ),
    "sinks.kit.commit.conflicts": (
        "already_committed",
        "refuse_gap",
        "refuse_overlap",
    ),
    "sinks.kit.commit.dead_letter_table": ("DeadLetterTable",),
    "sinks.kit.commit.one_transaction": ("find_transaction",),
    "sinks.kit.commit.pages": (
        "Page",
        "PageFiles",
        "PageLine",
        "PagedState",
        "Pages",
    ),
    "sinks.kit.commit.stored_receipts": (
        "ReceiptRow",
        "receipt_digest",
    ),
    "sinks.kit.commit.table_store": (
        "Answer",
        "Conflict",
        "StoredReceipt",
        "TableChange",
        "Unanswered",
        "Written",
    ),
    "sinks.kit.commit.window_table": (
        "ReceiptTable",
        "WindowTable",
        "check_receipt",
        "committed_by_key",
        "read_receipt",
    ),
    "sinks.kit.files.file_stager": (
        "DeadLetterLayout",
        "FileStager",
        "GrowingFile",
        "Layout",
        "PartitionedFiles",
        "RowLayout",
        "TextStager",
    ),
    "sinks.kit.files.filesystem": ("Place",),
    "sinks.kit.files.parquet_files": (
        "ParquetRowWriter",
        "explain_file_errors",
        "explain_storage_errors",
        "read_batches",
        "rows_per_batch",
    ),
    "sinks.kit.files.put_if_absent": ("put_if_absent",),
    "sinks.kit.files.staged_files": (
        "DATA_FOLDER",
        "RowFile",
        "StagedFiles",
        "staged_path",
        "window_folder",
    ),
    "sinks.kit.files.write_check": ("refuse_unwritable",),
    "sinks.kit.merge.bucket_merge": (
        "BucketFiles",
        "MergeLayout",
        "merge_changes",
    ),
    "sinks.kit.merge.keyed_state": (
        "KeyedState",
        "key_properties",
        "refuse_other_key",
    ),
    "sinks.kit.merge.staged_changes": (
        "ChangesFile",
        "begin_changes",
    ),
    "waiting": (
        "lock_holder",
        "waiting_for",
    ),
}
"""The modules below `windrow.ingest`, and the names of each that are offered here."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_MODULES]  # noqa: PLE0604

if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts any name

    def __getattr__(name: str) -> object:
        """Loads a name from its module (PEP 562).

        Raises:
            AttributeError: the kit has no such name.
        """
        if name not in _MODULES:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(f"windrow.ingest.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
