"""A table in `second_form`, whose receipts say nothing of rows and filtered messages:
the windrow before these made it.

It stays as it was.

Three hours of ten rows each. Of the third a poison and a broken rule are dead letters,
a tombstone was dropped; the second was replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from tests.admin.test_first_form import ROWS, receipts
from tests.admin.things import FakeTopic
from tests.sinks.beside import DeltaBoth
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import verify
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import Counts, Receipt

HERE = Path(__file__).parent


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """The table."""
    shutil.copytree(HERE / "second_form", tmp_path, dirs_exist_ok=True)
    return DeltaBoth(str(tmp_path / "table"), ROWS)


def test_it_is_read_and_written_as_it_was(sink: DeltaBoth) -> None:
    """Byte for byte: what is read of each receipt, replaced ones too, is put into JSON
    again as it lies in its file.
    """
    texts = [
        file.read_bytes()
        for file in (HERE / "second_form" / "table" / "_windrow" / "receipts").iterdir()
    ]
    assert [to_json(from_json(text, Receipt)).encode() for text in texts] == texts
    assert len(texts) == 4
    found = receipts(sink)
    assert [(r.version, r.generation) for r in found] == [(2, 0), (2, 1), (2, 0)]
    assert {sink.receipt_text(r).encode() for r in found} < set(texts)


@pytest.mark.parametrize("form", ["first_form", "second_form"])
def test_the_text_of_any_form_is_kept(tmp_path: Path, form: str) -> None:
    """What the ledger gets to keep of a receipt is what was committed, byte for byte,
    whatever this version would write.
    """
    shutil.copytree(HERE / form, tmp_path, dirs_exist_ok=True)
    sink = DeltaBoth(str(tmp_path / "table"), ROWS)
    texts = {file.read_bytes() for file in (tmp_path / "table" / "_windrow" / "receipts").iterdir()}
    assert {sink.receipt_text(r).encode() for r in receipts(sink)} <= texts


def test_its_counts_mean_what_they_meant(sink: DeltaBoth) -> None:
    """Each valid message is one row, and none was filtered; a sum over old counts says
    the same in today's form.
    """
    third = receipts(sink)[2]
    for counts in (third.counts, third.splits[0]):
        assert (
            counts.read,
            counts.valid,
            counts.rows,
            counts.dead,
            counts.dropped,
            counts.filtered,
        ) == (13, 10, 10, 2, 1, 0)
        assert (counts.rows_, counts.filtered_) == (msgspec.UNSET, msgspec.UNSET)
    total = Counts.total(third.splits)
    assert (total.rows_, total.filtered_, total.valid) == (10, 0, 10)


def test_it_verifies(sink: DeltaBoth, tmp_path: Path) -> None:
    """Receipts, windows, a rebuilt ledger, rows and dead letters fit, value by value."""
    ledger = open_ledger(str(tmp_path / "state.db"))
    rebuild("things", sink, ledger)
    verified = verify("things", sink, sink.dead_letters, ledger, FakeTopic(down=True), deep=True)  # type: ignore[arg-type]
    assert (verified.windows, verified.rows) == (3, 30)
    assert [(f.level, f.what) for f in verified.findings if f.about != "topic"] == []
