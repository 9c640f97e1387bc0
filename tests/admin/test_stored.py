"""A Delta table that lies in `stored`, made once by `make`: every later version reads it.

Three hours of two topic-partitions, ten messages each, of which one is a dead letter. The
second hour was replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.admin.things import FakeTopic
from tests.sinks.beside import DeltaBoth
from tests.sinks.things import ROWS, staged_receipt
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import verify
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.ports.sink import Done

STORED = Path(__file__).parent / "stored"


def make(folder: Path) -> None:
    """Write the table anew, for a form of receipts that no older version has to read."""
    sink = DeltaBoth(str(folder / "table"), ROWS)
    sink.prepare()
    for number, generation in ((0, 0), (1, 0), (1, 1), (2, 0)):
        attempt = f"a{number}{generation}"
        receipt, staged = staged_receipt(sink, number, generation, attempt)
        sink.commit_dead(receipt.plan, attempt, staged)
        assert isinstance(sink.commit(receipt, staged), Done)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """The table."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    return DeltaBoth(str(tmp_path / "table"), ROWS)


def test_it_is_read(sink: DeltaBoth) -> None:
    """Each receipt with its counts; and its text, which the ledger gets, is that of its
    file, byte for byte.
    """
    receipts = [committed.receipt for committed in sink.receipts()]
    assert [(r.generation, r.counts.read, r.counts.rows, r.counts.dead) for r in receipts] == [
        (0, 20, 18, 2),
        (1, 20, 18, 2),
        (0, 20, 18, 2),
    ]
    texts = {file.read_text() for file in (STORED / "table" / "_windrow" / "receipts").iterdir()}
    assert {sink.receipt_text(r) for r in receipts} < texts


def test_it_verifies(sink: DeltaBoth, tmp_path: Path) -> None:
    """Receipts, windows, a rebuilt ledger, rows and dead letters fit, value by value."""
    ledger = open_ledger(str(tmp_path / "state.db"))
    rebuild("orders", sink, ledger)
    verified = verify("orders", sink, sink.dead_letters, ledger, FakeTopic(down=True), deep=True)  # type: ignore[arg-type]
    assert (verified.windows, verified.rows) == (3, 54)
    assert [(f.level, f.what) for f in verified.findings if f.about != "topic"] == []
