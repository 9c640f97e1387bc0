"""Maintenance of a Delta table: vacuum, checkpoints, log clean-up and compaction keep receipts
and all files that are needed.

These tests rely on deltalake 1.6: the folder `_windrow/` survives vacuum (lite and full),
checkpoints, log clean-up and compaction.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from tests.sinks.delta.pieces import delta_pieces, staged_paths
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import RefusedError, SchemaChangedError
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.sink import AlreadyDone, Done, Maintenance
from windrow.ingest.sinks.delta.table import data_files, entry_name
from windrow.ingest.sinks.kit.commit import stored_receipts
from windrow.ingest.sinks.kit.commit.stored_receipts import RECEIPTS
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.windows import ROWS, produced_messages, staged_receipt, window

OLD = 1_000_000_000
"""A time long ago, in seconds since 1970."""


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A table with six windows (the second replaced), their dead letters, and files of an
    attempt that died.
    """
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    for n, generation in [*((n, 0) for n in range(6)), (1, 1)]:
        receipt, staged = staged_receipt(sink, n, generation)
        sink.commit_dead(receipt.plan, "a1" if generation == 0 else "b1", staged)
        sink.commit(receipt, staged)
    staged_receipt(sink, 7, attempt="died")
    return sink


def reopen(sink: DeltaBoth) -> DeltaBoth:
    """Returns the sink of another process, without cached state."""
    return DeltaBoth(sink.uri, sink.schema)


def vacuum(sink: DeltaBoth, *, full: bool) -> None:
    """Removes at once all files that a vacuum may remove."""
    DeltaTable(sink.uri).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=full
    )


def clean_log(sink: DeltaBoth) -> None:
    """Makes a checkpoint, and removes the log before it."""
    DeltaTable(sink.uri).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 seconds"}
    )
    DeltaTable(sink.uri).create_checkpoint()
    DeltaTable(sink.uri).cleanup_metadata()
    versions = list((Path(sink.uri) / "_delta_log").glob("*.json"))
    assert len(versions) == 1


def test_files_that_hide_rows_are_not_joined(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with deletion vectors refuses to be joined, before anything is written, also in a
    dry run. The error's way out works: without joins the other steps are done.
    """

    class Vectors:
        reader_features = writer_features = ("deletionVectors",)

    monkeypatch.setattr(DeltaTable, "protocol", lambda _: Vectors)
    version, joining = DeltaTable(sink.uri).version(), Maintenance(timedelta(days=1), None, 1 << 20)
    for dry_run in (True, False):
        with pytest.raises(SchemaChangedError, match=r"deletionVectors.*maintain.file_size: 0"):
            sink.maintain(joining, dry_run=dry_run)
    assert DeltaTable(sink.uri).version() == version
    assert sink.maintain(Maintenance(timedelta(days=1), timedelta(minutes=-30))).removed_files


@pytest.mark.parametrize(
    "maintenance", ["vacuum lite", "vacuum full", "log", "compact", "everything"]
)
def test_receipts_outlive_maintenance(sink: DeltaBoth, maintenance: str) -> None:
    """After any maintenance, looks and receipts are the same as before, with Delta versions,
    and rows are unchanged.
    """
    committed: list[Committed] = list(sink.receipts())
    assert [c.version for c in committed] == [1, 7, 3, 4, 5, 6]
    if maintenance in {"compact", "everything"}:
        DeltaTable(sink.uri).optimize.compact()
    if maintenance in {"vacuum lite", "vacuum full", "everything"}:
        vacuum(sink, full=maintenance != "vacuum lite")
    if maintenance in {"log", "everything"}:
        clean_log(sink)
    assert list(reopen(sink).receipts()) == committed
    assert [reopen(sink).look(window(n)) for n in range(6)] == committed
    report = check(produced_messages(range(6)), delta_pieces(sink.uri), [], [], content="id")
    assert report.invented == report.duplicated == ()


def test_windows_go_on_after_clean_up(sink: DeltaBoth) -> None:
    """After clean-up and compaction, committed windows stay committed, replacements replace,
    and new windows are accepted.
    """
    DeltaTable(sink.uri).optimize.compact()
    clean_log(sink)
    vacuum(sink, full=True)
    fresh = reopen(sink)
    assert isinstance(fresh.commit(*staged_receipt(fresh, 0)), AlreadyDone)
    for n, generation in ((1, 2), (6, 0)):
        receipt, staged = staged_receipt(fresh, n, generation, "c1")
        fresh.commit_dead(receipt.plan, "c1", staged)
        assert isinstance(fresh.commit(receipt, staged), Done)
    receipts = [c.receipt for c in fresh.receipts()]
    report = check(
        produced_messages(range(7)),
        delta_pieces(sink.uri),
        [fresh.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )
    assert (
        report.missing
        == report.duplicated
        == report.invented
        == report.receipts
        == report.accounting
        == ()
    ), str(report)


def test_a_vacuum_full_takes_only_what_no_commit_names(sink: DeltaBoth) -> None:
    """A full vacuum removes the dead attempt's files and replaced files.

    A commit of files that it removed is refused.
    """
    receipt, staged = staged_receipt(sink, 8)
    vacuum(sink, full=True)
    assert {p.relative_to(sink.uri).as_posix() for p in staged_paths(sink.uri)} == set(_named(sink))
    with pytest.raises(RefusedError, match="2 of 2 staged files"):
        sink.commit(receipt, staged)
    assert sink.look(window(8)) is None


def test_a_receipt_that_no_commit_names_means_nothing(sink: DeltaBoth) -> None:
    """Receipt files of attempts that died before their commit don't count as committed, and
    don't block their ranges.
    """
    receipt, _ = staged_receipt(sink, 8, attempt="died")
    stored_receipts.write(sink.store.files, receipt)
    torn = Path(sink.uri) / RECEIPTS / f"2026-01-02T09_00_00Z.0.{'0' * 32}.json"
    torn.write_text("{")
    fresh = reopen(sink)
    assert fresh.look(window(8)) is None
    assert len(list(fresh.receipts())) == 6
    assert isinstance(fresh.commit(*staged_receipt(fresh, 8, attempt="a2")), Done)


def test_rows_without_a_receipt_are_told(sink: DeltaBoth) -> None:
    """Verification reports a window whose rows another program wrote."""
    from deltalake import write_deltalake

    stranger = delta_pieces(sink.uri)[0]
    stranger = stranger.set_column(
        stranger.schema.get_field_index("_window"),
        "_window",
        [["2031-01-01T00:00:00Z"] * stranger.num_rows],
    )
    write_deltalake(sink.uri, stranger, mode="append")
    assert "2031-01-01T00:00:00Z" in sink.audit().windows()
    assert "2031-01-01T00:00:00Z" not in {c.receipt.window.key for c in sink.receipts()}


JOIN = Maintenance(keep_files=timedelta(days=1), file_size=1 << 20)


def test_joined_files_change_no_data(sink: DeltaBoth) -> None:
    """Files are joined in an append-only table with a change data feed, too. Each of their actions
    says that no data changes, so the feed has no row of the commit.
    """
    properties = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}
    DeltaTable(sink.uri).alter.set_table_properties(properties)
    before = DeltaTable(sink.uri).version()
    assert reopen(sink).maintain(JOIN).new_files == 6
    joined = DeltaTable(sink.uri)
    actions = [
        json.loads(line)
        for version in range(before + 1, joined.version() + 1)
        for line in Path(sink.uri, entry_name(version)).read_text().splitlines()
    ]
    changes = [a[kind]["dataChange"] for a in actions for kind in ("add", "remove") if kind in a]
    assert (len(changes), any(changes)) == (12 + 6, False)
    feed = joined.load_cdf(starting_version=before + 1, ending_version=joined.version())
    assert pa.RecordBatchReader.from_stream(feed).read_all().num_rows == 0
    report = check(produced_messages(range(6)), delta_pieces(sink.uri), [], [], content="id")
    assert report.invented == report.duplicated == ()


def test_files_with_hidden_rows_are_not_joined(sink: DeltaBoth) -> None:
    """A table whose files alone don't show its rows is refused, and stays as it is."""
    DeltaTable(sink.uri).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    before = delta_pieces(sink.uri)
    with pytest.raises(SchemaChangedError, match="its files alone don't tell"):
        reopen(sink).maintain(JOIN)
    assert delta_pieces(sink.uri) == before


def _named(sink: DeltaBoth) -> list[str]:
    return [file.path for file in data_files(DeltaTable(sink.uri))]
