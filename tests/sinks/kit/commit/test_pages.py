"""Pages: they keep all committed windows of a table for ever, in few files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.errors import DamagedError, SpecError
from windrow.ingest.model.plan import Covered
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.kit.commit.pages import (
    PageFiles,
    PageLine,
    Ranges,
    name_of,
    page_of,
    path_of,
)
from windrow.ingest.sinks.kit.files.filesystem import Place


def line(number: int) -> PageLine:
    return PageLine(0, f"digest {number}", number)


def put(files: PageFiles, folder: Place, head: str, number: int) -> str:
    """Commits one window of ten offsets, and one note; returns the new page's name."""
    ranges = [Covered("t1", 0, 10 * number, 10 * number + 10)]
    page = page_of({f"w{number}": line(number)}, {f"n{number}": number}, ranges)
    return files.write(folder, files.read(folder, head), page)


def write_many(folder: Place, windows: int) -> str:
    files, head = PageFiles("orders"), ""
    for number in range(windows):
        head = put(files, folder, head, number)
    return head


def test_pages_say_all_that_was_committed(tmp_path: Path) -> None:
    """Pages hold all commits in order, in at most log2(n) + 1 files, for a process that hasn't
    read any.
    """
    folder = Place(str(tmp_path))
    pages = PageFiles("orders").read(folder, write_many(folder, 100))
    assert list(pages.windows.items()) == [(f"w{n}", line(n)) for n in range(100)]
    assert pages.notes == {f"n{n}": n for n in range(100)}
    assert len(pages.names) <= 7
    assert pages.overlapping([Covered("t1", 0, 1000, 2000), Covered("t2", 0, 0, 5)]) == set()
    assert len(pages.overlapping([Covered("t1", 0, 999, 2000)])) == 100


def test_a_newer_line_counts_and_comes_last(tmp_path: Path) -> None:
    """The newer line of a window counts, and comes last, whichever page has the older line."""
    folder, files = Place(str(tmp_path)), PageFiles("orders")
    head = write_many(folder, 20)
    newer = PageLine(1, "newer", 20)
    head = files.write(folder, files.read(folder, head), page_of({"w3": newer}, {"n3": 7}, []))
    for reader in (files, PageFiles("orders")):
        pages = reader.read(folder, head)
        assert list(pages.windows.items())[-1] == ("w3", newer)
        assert (len(pages.windows), pages.notes["n3"], pages.note("n3"), pages.note("none")) == (
            20,
            7,
            7,
            None,
        )
        (unreadable,) = pages.receipts(folder, {"w3", "none"})
        assert isinstance(unreadable, Unreadable)
        assert "window w3 is committed (generation 1)" in unreadable.message


def test_an_older_page_is_what_the_table_was(tmp_path: Path) -> None:
    """An older page gives the older state of the table, also to a process that knows newer
    pages, and commits go on from it.
    """
    folder, files = Place(str(tmp_path)), PageFiles("orders")
    old = write_many(folder, 5)
    put(files, folder, old, 5)
    pages = files.read(folder, old)
    assert len(pages.windows) == 5
    assert len(files.read(folder, put(files, folder, old, 6)).windows) == 6
    assert files.read(folder, "").windows == {}


def test_what_is_left_out_stays_out(tmp_path: Path) -> None:
    """After windows are left out, the next commit writes the rest in one page.

    Their offsets stay held. Held offsets may be more than the windows have.
    """
    folder, files = Place(str(tmp_path)), PageFiles("orders")
    remaining_page = files.read(folder, write_many(folder, 20)).without({"w7"}, {"n8"})
    head = files.write(folder, remaining_page, page_of({"w20": line(20)}, {}, []))
    pages = PageFiles("orders").read(folder, head)
    assert (len(pages.names), "w7" in pages.windows, "n8" in pages.notes) == (1, False, False)
    assert (len(pages.windows), len(pages.notes)) == (20, 19)
    assert pages.overlapping([Covered("t1", 0, 70, 80)])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "missing"), (b"", "damaged"), (b'{"windows":{}}', "damaged")],
)
def test_a_page_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """A page that can't be read raises DamagedError, because it is unknown which windows are
    committed.
    """
    folder = Place(str(tmp_path))
    head = write_many(folder, 3)
    for page in PageFiles("orders").read(folder, head).names:
        file = tmp_path / path_of(page)
        old_content = file.read_bytes()
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(DamagedError, match=reason):
            PageFiles("orders").read(folder, head)
        file.write_bytes(old_content)


def test_a_page_of_another_form_is_told(tmp_path: Path) -> None:
    """A page of another form raises SpecError, not DamagedError."""
    content = b'{"windows":{"w0":[0,"d",7,8]},"form":3}'
    folder = Place(str(tmp_path))
    folder.put(path_of(name_of(content)), content)
    with pytest.raises(SpecError, match="is of form 3, and this windrow reads form 2"):
        PageFiles("orders").read(folder, name_of(content))


SPANS = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(
    lambda two: Covered("id", 0, two[0], sum(two))
)


@given(st.lists(SPANS), SPANS)
def test_ranges_hold_what_was_added(added: list[Covered], asked_range: Covered) -> None:
    """An offset is in the ranges exactly if it was added, in any order."""
    ranges = Ranges()
    for added_range in added:
        ranges.add([added_range])
    offsets = {
        offset for added_range in added for offset in range(added_range.start, added_range.stop)
    }
    assert ranges.meets([asked_range]) == (
        not offsets.isdisjoint(range(asked_range.start, asked_range.stop))
    )
    assert not ranges.meets([Covered("id", 1, 0, 99), Covered("other", 0, 0, 99)])
    merged_ranges = sorted(ranges.list_spans())
    assert {
        offset for merged in merged_ranges for offset in range(merged.start, merged.stop)
    } == offsets
    assert all(merged.stop < next_range.start for merged, next_range in pairwise(merged_ranges))
