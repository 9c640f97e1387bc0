"""A table in `first_form`, whose receipts have no version and no checksums: the windrow before these made it. It stays as good as new."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.ledger.sql import open_ledger
from ingest.model.codec import from_json, to_json
from ingest.model.receipt import RECEIPT_VERSION, Checksums, Receipt
from ingest.model.staged import Staged
from ingest.operate.deep import compare_contents
from ingest.operate.rebuild import rebuild
from ingest.operate.verify import verify
from ingest.ports.sink import Done
from ingest.sinks.delta.contents import delta_contents
from ingest.sinks.delta.rows import delta_rows
from ingest.sinks.delta.sink import DeltaSink
from tests.operate.things import FakeTopic
from tests.sinks.delta.things import messages

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    """The table: three hours of ten rows each, and a dead letter in the third."""
    shutil.copytree(Path(__file__).parent / "first_form", tmp_path, dirs_exist_ok=True)
    return DeltaSink(str(tmp_path / "table"), ROWS)


def receipts(sink: DeltaSink) -> list[Receipt]:
    return [c.receipt for c in sink.receipts()]


def deep(sink: DeltaSink) -> list[tuple[str, str]]:
    """Level and sentence of what reading back finds."""
    return [(f.level, f.what) for f in compare_contents(receipts(sink), delta_contents(sink.uri, sink.metadata))]


def test_it_is_read_and_written_as_it_was(sink: DeltaSink) -> None:
    """The receipts are read without a version and checksums, and put into JSON again, as a ledger does, they get neither."""
    found = receipts(sink)
    assert [from_json(to_json(r), Receipt) for r in found] == found
    assert not any(word in to_json(r) for r in found for word in ('"version"', '"checksums"'))
    assert [(r.version, r.splits[0].checksums) for r in found] == [(msgspec.UNSET, msgspec.UNSET)] * 3


def test_it_verifies(sink: DeltaSink, tmp_path: Path) -> None:
    """Receipts, windows, a rebuilt ledger, rows and dead letters fit; that nothing can be said of values is information, in one line."""
    ledger = open_ledger(str(tmp_path / "state.db"))
    rebuild("things", sink, ledger)
    reading = partial(compare_contents, read=delta_contents(sink.uri, sink.metadata))
    verified = verify("things", sink, ledger, FakeTopic(down=True), delta_rows(sink.uri), deep=reading)  # type: ignore[arg-type]
    assert (verified.windows, verified.rows) == (3, 30)
    assert [(f.level, f.what) for f in verified.findings if f.about != "topic"] == [
        ("info", "3 of 3 windows were committed before there were checksums: what they hold was read and counted only")
    ]


def test_lost_rows_are_found_without_checksums(sink: DeltaSink) -> None:
    """What can be counted is compared all the same."""
    DeltaTable(sink.uri).delete("_offset = 12")
    assert ("wrong", "shop.things[0] offsets 10 to 20 (exclusive): 9 rows were read back, 10 are in the receipt") in deep(sink)


def test_a_replay_gives_it_checksums(sink: DeltaSink) -> None:
    """Generation 1 of an old window is committed over it, in today's form; the others stay as they are."""
    old = receipts(sink)[1]
    (split,) = old.plan.splits
    stager = sink.stager(old.plan, 1, "again")(split)
    columns = pa.record_batch([pa.array(range(10), pa.int64()), pa.nulls(10, pa.string())], schema=ROWS)
    stager.rows(messages(split).set_column(0, "topic", pa.repeat(split.topic, 10)), columns)
    counted, _, files, _ = stager.finish()
    counts = msgspec.structs.replace(old.splits[0], rows_staged=counted, checksums=stager.checksums())
    new = msgspec.structs.replace(old, generation=1, attempt="again", splits=(counts,), version=RECEIPT_VERSION)
    assert isinstance(sink.commit(new, [Staged(split, counts, files, ())]), Done)
    assert [r.version for r in receipts(DeltaSink(sink.uri, ROWS))] == [msgspec.UNSET, RECEIPT_VERSION, msgspec.UNSET]
    assert deep(sink) == [("info", "2 of 3 windows were committed before there were checksums: what they hold was read and counted only")]
    assert isinstance(receipts(sink)[1].splits[0].checksums, Checksums)
