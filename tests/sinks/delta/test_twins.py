"""The checker catches each broken twin, in races of the same shape that the real sink passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from tests.sinks.beside import DeltaBoth
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.delta.twins import AppendByPath, GenerationInTheId, NoApplicationId
from tests.sinks.things import ROWS, plan, produced, receipt, staged_receipt
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta import newest
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.log import entry_name
from windrow.ingest.sinks.place import Place
from windrow.ingest.testing.checker import Report, check

if TYPE_CHECKING:
    from collections.abc import Iterator

Make = Callable[[str, pa.Schema, Callable[[], object]], Any]


class RealSink(DeltaBoth):
    """The sink itself; another run gets its turn between its first look and its first write."""

    def __init__(self, uri: str, schema: pa.Schema, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(uri, schema)
        self.meanwhile = meanwhile

    def _try_commit(self, *args: Any) -> str | None:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return super()._try_commit(*args)


def two_first_runs(make: Make, uri: str) -> Report:
    """A looks; B runs from beginning to end; A writes."""
    make(uri, ROWS, lambda: None).prepare()
    other = make(uri, ROWS, lambda: None)
    b, b_files = staged_receipt(other, 0, 0, "B", dead=False)
    sink = make(uri, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)
    with suppress(CommitFailedError):
        sink.commit(a, a_files)
    return report(uri, [sink, other], [a, b])


def two_replacements_of_an_empty_window(make: Make, uri: str) -> Report:
    """Generation 0 took no row (a wrong schema). A replaces it, and so does B, which looks after A looked and ends before A writes.

    B's target is generation 1; A's, of a request that counted once more, is generation 2.
    """
    first = make(uri, ROWS, lambda: None)
    first.prepare()
    nothing = receipt(plan(first, 0), [], 0, "nothing")
    assert isinstance(first.commit(nothing, []), Done)
    other = make(uri, ROWS, lambda: None)
    b, b_files = staged_receipt(other, 0, 1, "B", dead=False)
    sink = make(uri, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 2, "A", dead=False)
    with suppress(CommitFailedError, RefusedError):
        sink.commit(a, a_files)
    for again, made, files in ((other, b, b_files), (sink, a, a_files)):  # as their retries would
        again.commit(made, files)
    return report(uri, [sink, other], [a, b])


def report(uri: str, sinks: list[DeltaBoth], tried: list[Receipt]) -> Report:
    """The same checker for all: rows against what was produced."""
    held = sinks[0].look(tried[0].window)
    receipts = [tried[0] if held is None else held.receipt]
    return check(produced([0]), delta_pieces(uri), [], receipts, content="id")


@pytest.mark.parametrize(
    ("twin", "race"),
    [(AppendByPath, two_first_runs), (NoApplicationId, two_first_runs), (GenerationInTheId, two_replacements_of_an_empty_window)],
)
def test_the_checker_catches_the_twin(tmp_path: Path, twin: Make, race: Callable[[Make, str], Report]) -> None:
    """Both runs' rows are in the table, and the checker says so."""
    found = race(twin, str(tmp_path / "orders"))
    assert len(found.duplicated) == 20, str(found)
    assert found.receipts


@pytest.fixture
def by_deltalake(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is a plain one, so deltalake writes each commit."""
    monkeypatch.setattr(newest, "is_plain", lambda *_: False)


@pytest.mark.parametrize("race", [two_first_runs, two_replacements_of_an_empty_window])
def test_the_real_sink_passes_the_same_races(tmp_path: Path, race: Callable[[Make, str], Report]) -> None:
    """One of the two runs' rows are in the table."""
    found = race(RealSink, str(tmp_path / "orders"))
    assert found.ok, str(found)


@pytest.mark.usefixtures("by_deltalake")
@pytest.mark.parametrize("race", [two_first_runs, two_replacements_of_an_empty_window])
def test_the_real_sink_passes_them_by_deltalake(tmp_path: Path, race: Callable[[Make, str], Report]) -> None:
    """The same where windrow doesn't write the log's entry itself."""
    found = race(RealSink, str(tmp_path / "orders"))
    assert found.ok, str(found)


@contextmanager
def delta_rs_retries() -> Iterator[None]:
    """The sink with delta-rs's own retry, and without its application ids."""
    from deltalake.transaction import CommitProperties

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "once", lambda apps, note: CommitProperties(custom_metadata=dict(note)))
        yield


@pytest.mark.usefixtures("by_deltalake")
def test_the_snapshot_and_the_ids_carry_the_promise(tmp_path: Path) -> None:
    """The real sink without its commit properties fails the race: it is they that hold, not luck."""
    with delta_rs_retries():
        found = two_first_runs(RealSink, str(tmp_path / "orders"))
    assert len(found.duplicated) == 20


def test_the_number_carries_the_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that takes the next free number, instead of the one behind what was looked at, fails the race too."""
    put_new = Place.put_new

    def anywhere(place: Place, path: str, content: bytes) -> None:
        for number in count(int(Path(path).stem)):
            with suppress(FileExistsError):
                put_new(place, entry_name(number), content)
                return

    monkeypatch.setattr(Place, "put_new", anywhere)
    assert len(two_first_runs(RealSink, str(tmp_path / "orders")).duplicated) == 20
