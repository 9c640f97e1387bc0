"""A table in `first_form`, whose receipts have no version and no checksums: the windrow
before these made it.

It stays as good as new.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.admin.things import FakeTopic
from tests.sinks.beside import DeltaBoth
from tests.sinks.things import messages
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import verify
from windrow.ingest.admin.verify_contents import compare_contents
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import RECEIPT_VERSION, Checksums, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Done

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """The table: three hours of ten rows each, and a dead letter in the third."""
    shutil.copytree(Path(__file__).parent / "first_form", tmp_path, dirs_exist_ok=True)
    return DeltaBoth(str(tmp_path / "table"), ROWS)


def receipts(sink: DeltaBoth) -> list[Receipt]:
    return [c.receipt for c in sink.receipts()]


def deep(sink: DeltaBoth) -> list[tuple[str, str]]:
    """Level and sentence of what reading back finds."""
    return [
        (f.level, f.what) for f in compare_contents(receipts(sink), sink.audit(), sink.dead_letters)
    ]


def test_it_is_read_and_written_as_it_was(sink: DeltaBoth) -> None:
    """The receipts are read without a version and checksums, and put into JSON again,
    as a ledger does, they get neither.
    """
    found = receipts(sink)
    assert [from_json(to_json(r), Receipt) for r in found] == found
    assert not any(word in to_json(r) for r in found for word in ('"version"', '"checksums"'))
    assert [(r.version, r.splits[0].checksums) for r in found] == [
        (msgspec.UNSET, msgspec.UNSET)
    ] * 3


def test_it_verifies(sink: DeltaBoth, tmp_path: Path) -> None:
    """Receipts, windows, a rebuilt ledger, rows and dead letters fit; that nothing can
    be said of values is information, in one line.
    """
    ledger = open_ledger(str(tmp_path / "state.db"))
    rebuild("things", sink, ledger)
    verified = verify("things", sink, sink.dead_letters, ledger, FakeTopic(down=True), deep=True)  # type: ignore[arg-type]
    assert (verified.windows, verified.rows) == (3, 30)
    assert [(f.level, f.what) for f in verified.findings if f.about != "topic"] == [
        (
            "info",
            (
                "3 of 3 windows were committed before there were checksums: what they hold was read"
                " and counted only"
            ),
        )
    ]


def test_lost_rows_are_found_without_checksums(sink: DeltaBoth) -> None:
    """What can be counted is compared all the same."""
    DeltaTable(sink.uri).delete("_offset = 12")
    assert (
        "wrong",
        "shop.things[0] offsets 10 to 20 (exclusive): 9 rows were read back, 10 were committed",
    ) in deep(sink)


def test_a_replay_gives_it_checksums(sink: DeltaBoth) -> None:
    """Generation 1 of an old window is committed over it, in today's form; the others
    stay as they are.
    """
    old = receipts(sink)[1]
    (split,) = old.plan.splits
    stager = sink.stager(old.plan, 1, "again")(split)
    columns = pa.record_batch(
        [pa.array(range(10), pa.int64()), pa.nulls(10, pa.string())], schema=ROWS
    )
    stager.add(columns, messages(split).set_column(0, "topic", pa.repeat(split.topic, 10)))
    staging = stager.finish()
    counts = msgspec.structs.replace(
        old.splits[0], rows_staged=staging.rows, checksums=Checksums(staging.checksum)
    )
    new = msgspec.structs.replace(
        old, generation=1, attempt="again", splits=(counts,), version=RECEIPT_VERSION
    )
    assert isinstance(sink.commit(new, [Staged(split, counts, staging.committables, ())]), Done)
    assert [r.version for r in receipts(DeltaBoth(sink.uri, ROWS))] == [
        msgspec.UNSET,
        RECEIPT_VERSION,
        msgspec.UNSET,
    ]
    assert deep(sink) == [
        (
            "info",
            (
                "2 of 3 windows were committed before there were checksums: what they hold was read"
                " and counted only"
            ),
        )
    ]
    assert isinstance(receipts(sink)[1].splits[0].checksums, Checksums)
