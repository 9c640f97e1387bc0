"""Files of committed ranges: they spare a process the reading of receipts, and nothing hangs on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.beside import DeltaBoth
from tests.sinks.things import PER_WINDOW, ROWS, plan, receipt, stage, staged_receipt, together, window
from windrow.ingest.errors import DamagedError, OverlapError
from windrow.ingest.model.plan import Covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta import receipts as files
from windrow.ingest.sinks.delta.names import RANGES, RANGES_APP, fingerprint, ranges_name
from windrow.ingest.sinks.delta.receipts import ReceiptFiles
from windrow.ingest.sinks.ranges import Ranges, read, written

EACH = 3
SPANS = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda two: Covered("id", 0, two[0], sum(two)))


@given(st.lists(SPANS), SPANS)
def test_ranges_hold_what_was_added(added: list[Covered], asked: Covered) -> None:
    """Whatever is added in whatever order: an offset is met exactly if it was added, and ranges are as few as there can be."""
    ranges = Ranges()
    for one in added:
        ranges.add([one])
    offsets = {offset for one in added for offset in range(one.start, one.stop)}
    assert ranges.meets([asked]) == (not offsets.isdisjoint(range(asked.start, asked.stop)))
    assert not ranges.meets([Covered("id", 1, 0, 99), Covered("other", 0, 0, 99)])
    every = sorted(ranges.every())
    assert {offset for one in every for offset in range(one.start, one.stop)} == offsets
    assert all(one.stop < after.start for one, after in pairwise(every))
    assert read(written(ranges, {7, 3})) == ((3, 7), every)


@pytest.mark.parametrize("content", [b"", b"\x00", b"not one", written(Ranges(), [1]).replace(b"\xa4form\x01", b"\xa4form\x02")])
def test_what_is_not_a_file_of_ranges(content: bytes) -> None:
    """Anything else, and a later form, stands for nothing."""
    assert read(content) is None


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaBoth:
    """Eight windows; a file of ranges after every third one."""
    monkeypatch.setattr(files, "_EACH", EACH)
    made = DeltaBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    for number in range(8):
        commit(made, number)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The windows whose receipts are parsed from here on."""
    found, parsed = list[str](), files._parsed

    def parsing(content: bytes) -> Receipt | None:
        made = parsed(content)
        found.append("" if made is None else made.window.key)
        return made

    monkeypatch.setattr(files, "_parsed", parsing)
    return found


def commit(sink: DeltaBoth, number: int, generation: int = 0) -> None:
    made, staged = staged_receipt(sink, number, generation, f"a{generation}", dead=False)
    assert isinstance(sink.commit(made, staged), Done)


def overlaps(sink: DeltaBoth, number: int) -> None:
    """Another window over the offsets of this one is refused by a process that has seen nothing yet, naming it; one behind them is not."""
    fresh = DeltaBoth(sink.uri, ROWS)
    wrong = plan(fresh, 50, (number * PER_WINDOW + 4, number * PER_WINDOW + 5))
    with pytest.raises(OverlapError, match=window(number).key):
        fresh.commit(receipt(wrong, [], 0, "w"), stage(fresh, wrong, 0, "w", dead=False))
    assert fresh.look(window(50)) is None


def newest(sink: DeltaBoth) -> Path:
    """The file of ranges that the table names."""
    said = DeltaTable(sink.uri).transaction_version(RANGES_APP)
    assert said is not None
    return Path(sink.uri) / RANGES / ranges_name(said)


def test_a_first_commit_reads_few_receipts(sink: DeltaBoth, opened: list[str]) -> None:
    """A process's first commit reads the receipts beside it, and those that came after the newest file of ranges."""
    commit(DeltaBoth(sink.uri, ROWS), 20)
    assert len(opened) <= EACH
    assert len(list((Path(sink.uri) / RANGES).iterdir())) == 2


@pytest.mark.some(2)
@pytest.mark.parametrize("number", range(8))
def test_an_overlap_with_any_window_is_refused(sink: DeltaBoth, number: int) -> None:
    """Whether a file of ranges stands for the window or its receipt is read."""
    overlaps(sink, number)


def _lose(path: Path) -> None:
    path.unlink()


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3] + b"abc")


def _plant(path: Path) -> None:
    kept = read(path.read_bytes())
    assert kept is not None
    path.write_bytes(written(Ranges(), kept[0]))


def _later(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_lose, _damage, _plant, _later])
def test_a_file_that_is_not_what_was_named(sink: DeltaBoth, opened: list[str], harm: Callable[[Path], None]) -> None:
    """Lost, damaged, planted or empty: receipts are read instead, overlaps refused, and a commit names a good one again."""
    before = newest(sink)
    harm(before)
    overlaps(sink, 0)
    opened.clear()
    commit(DeltaBoth(sink.uri, ROWS), 20)
    assert len(opened) >= 8
    assert newest(sink) != before
    opened.clear()
    commit(DeltaBoth(sink.uri, ROWS), 21)
    assert len(opened) <= EACH
    overlaps(sink, 0)


def test_a_planted_file_is_nobodys(sink: DeltaBoth) -> None:
    """A file that no commit names is never read, whatever its name says."""
    everything = written(Ranges(), [fingerprint(path.read_bytes()) for path in (Path(sink.uri) / "_windrow" / "receipts").iterdir()])
    (Path(sink.uri) / RANGES / ranges_name(fingerprint(everything))).write_bytes(everything)
    (Path(sink.uri) / RANGES / ranges_name(2**63 - 1)).write_bytes(everything)
    for number in (0, 7):
        overlaps(sink, number)


def test_windows_of_an_older_windrow_count(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names no files of ranges commits in between: its windows are in none, and are read."""
    with monkeypatch.context() as patch:
        patch.setattr(ReceiptFiles, "keep_ranges", lambda *_: None)
        older = DeltaBoth(sink.uri, ROWS)
        for number in range(8, 14):
            commit(older, number)
    for number in (0, 8, 13):
        overlaps(sink, number)
    commit(sink, 14)
    overlaps(sink, 13)


def test_replaced_windows_count(sink: DeltaBoth) -> None:
    """A replacement's receipt is another one, which no file of ranges stands for yet; replacing again goes on."""
    commit(DeltaBoth(sink.uri, ROWS), 0, 1)
    overlaps(sink, 0)
    commit(DeltaBoth(sink.uri, ROWS), 0, 2)
    commit(sink, 8)
    overlaps(sink, 0)


def test_two_writers_name_each_others_windows(sink: DeltaBoth) -> None:
    """Two that commit in turn, and at once: what either of them keeps stands for the windows of both."""
    other = DeltaBoth(sink.uri, ROWS)
    for number in range(8, 16, 2):
        commit(sink, number)
        commit(other, number + 1)
    together([lambda n=n: commit(DeltaBoth(sink.uri, ROWS), n) for n in range(16, 24)])  # type: ignore[misc]
    for number in range(0, 24, 5):
        overlaps(sink, number)
    kept = read(newest(sink).read_bytes())
    assert kept is not None
    assert len(kept[0]) >= 24 - EACH - 1


def test_a_missing_receipt_is_noticed_all_the_same(sink: DeltaBoth) -> None:
    """Also where a file of ranges stands for it: nobody commits beside it; with it back, overlaps with it are refused by name."""
    folder = Path(sink.uri) / "_windrow" / "receipts"
    lost = next(folder.glob(f"{window(0).key.replace(':', '_')}.*"))
    content = lost.read_bytes()
    lost.unlink()
    fresh = DeltaBoth(sink.uri, ROWS)
    with pytest.raises(DamagedError, match=f"{window(0).key} is missing"):
        fresh.commit(*staged_receipt(fresh, 20, dead=False))
    lost.write_bytes(content)
    overlaps(sink, 0)
    commit(fresh, 20)


def test_a_table_that_was_set_back(sink: DeltaBoth) -> None:
    """1 A process knows eight windows. 2 The table is set back to five. 3 The offsets of the three are free again, for any window."""
    log = Path(sink.uri) / "_delta_log"
    for version in (6, 7, 8):
        (log / f"{version:020d}.json").unlink()
    other = plan(sink, 40, (5 * PER_WINDOW, 7 * PER_WINDOW))
    assert isinstance(sink.commit(receipt(other, [], 0, "w"), stage(sink, other, 0, "w", dead=False)), Done)
    commit(sink, 7)
    with pytest.raises(OverlapError, match=window(40).key):
        sink.commit(*staged_receipt(sink, 6, dead=False))
    overlaps(sink, 0)
