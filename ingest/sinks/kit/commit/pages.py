"""Pages: immutable files with the windows and the notes of a table.

They are for tables whose commits have room for one small fact and whose history is deleted.
Each commit names its page, and the page names the older pages. Together they list all windows
that were ever committed.

A commit writes one page: its own window, offsets and notes. It merges this page with each of
the newest pages, as long as the next page is no larger than the merged page. So the number of
pages grows with the logarithm of the number of windows. A commit writes the lines of few
windows, and a process never reads a page twice.

The name of a file is a digest of its content, so a damaged or exchanged file is noticed. A
table that is rolled back names an older page, and has the windows of that page.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from windrow.ingest.errors import DamagedError, SpecError
from windrow.ingest.model.plan import Covered, Window, covered_ranges
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.kit.commit import stored_receipts
from windrow.ingest.sinks.kit.commit.stored_receipts import NamedReceipt
from windrow.ingest.sinks.kit.commit.table_store import StoredReceipt
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.staged_files import HasSize

PAGES = "_windrow/pages"

_FORM = 2
_LOST = (
    "windrow verify SPEC --restore-receipts makes the list of windows again, from rows, receipts"
    " and the ledger's copies. Until then no window is written, because it isn't known which ones"
    " are in the table."
)

Edges = tuple[tuple[str, int, tuple[int, ...]], ...]
"""Offsets: for each topic id and partition start, stop, start, stop ..."""


class Ranges:
    """The offsets of many windows, by topic id and partition."""

    def __init__(self) -> None:
        # Ascending start, stop, start, stop ...; no two ranges touch.
        self._edges: dict[tuple[str, int], list[int]] = defaultdict(list)

    def add(self, more: Iterable[Covered]) -> None:
        """Adds offsets."""
        for span in more:
            edges = self._edges[span.topic_id, span.partition]
            low, high = bisect_left(edges, span.start), bisect_right(edges, span.stop)
            edges[low:high] = [
                *([] if low % 2 else [span.start]),
                *([] if high % 2 else [span.stop]),
            ]

    def meets(self, spans: Iterable[Covered]) -> bool:
        """Returns whether any of these offsets is among the offsets of the windows."""
        for span in spans:
            edges = self._edges.get((span.topic_id, span.partition), [])
            index = bisect_right(edges, span.start)
            if index % 2 or (index < len(edges) and edges[index] < span.stop):
                return True
        return False

    def list_spans(self) -> Iterable[Covered]:
        """Yields all ranges."""
        for (topic_id, partition), edges in self._edges.items():
            for start, stop in zip(edges[::2], edges[1::2], strict=True):
                yield Covered(topic_id, partition, start, stop)


class PageLine(NamedReceipt, frozen=True, array_like=True):
    """A window: its newest receipt, and the version of the table that the receipt's commit made."""

    version: int


class Page(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        windows: lines of windows, in the order of their newest commits.
        notes: values of notes, by name.
        ranges: at least the offsets of these windows.
        older_pages: names of all older pages that count, the newest first.
        form: number of the file's format.
    """

    windows: Mapping[str, PageLine] = {}
    notes: Mapping[str, int] = {}
    ranges: Edges = ()
    older_pages: tuple[str, ...] = msgspec.field(name="behind", default=())
    form: int = _FORM

    @property
    def size(self) -> int:
        """The number of lines. It decides which pages are merged."""
        return len(self.windows) + len(self.notes)


def page_of(
    windows: Mapping[str, PageLine], notes: Mapping[str, int], covered: Iterable[Covered]
) -> Page:
    """Returns the page of one commit, before it is merged with older pages."""
    ranges = Ranges()
    ranges.add(covered)
    return Page(dict(windows), dict(notes), _edges(ranges))


class Pages:
    """All pages of one state of a table, the newest first.

    Args:
        names: the names of their files; "" for a page that the next commit writes.
        pages: their contents.
    """

    def __init__(self, names: Sequence[str] = (), pages: Sequence[Page] = ()) -> None:
        self.names, self.pages = names, pages

    @property
    def head(self) -> str:
        """The name of the newest page, which a commit names; "" before the first commit."""
        return self.names[0] if self.names else ""

    @cached_property
    def windows(self) -> dict[str, PageLine]:
        """All windows, in the order of their newest commits."""
        return _windows(self.pages)

    @cached_property
    def notes(self) -> dict[str, int]:
        """All notes, by their names."""
        return _notes(self.pages)

    def note(self, name: str) -> int | None:
        """Returns the value of one note, without reading all notes; None if it was never put."""
        return next((page.notes[name] for page in self.pages if name in page.notes), None)

    @cached_property
    def _ranges(self) -> Ranges:
        return _ranges_of(self.pages)

    def overlapping(self, spans: Sequence[Covered]) -> set[str]:
        """Returns the windows that may hold any of these offsets.

        It returns all windows, or none if no window has any of the offsets.
        """
        return set(self.windows) if self._ranges.meets(spans) else set()

    def receipts(
        self, folder: Place, keys: Collection[str] | None = None
    ) -> Iterator[StoredReceipt | Unreadable]:
        """Yields the receipts of some windows, or of all, in the order of keys.

        Args:
            folder: the table's folder.
            keys: keys of the windows; None for all.
        """
        lines = self.windows if keys is None else _windows(self.pages, keys)
        named = {key: (line, line.version) for key, line in lines.items()}
        return stored_receipts.read_stored_receipts(folder, named)

    def without(self, windows: Collection[str], notes: Collection[str]) -> Pages:
        """Returns the list without these windows and notes, as one page.

        The next commit writes it.
        """
        if not windows and not notes:
            return self
        kept_lines = {key: line for key, line in self.windows.items() if key not in windows}
        noted = {name: value for name, value in self.notes.items() if name not in notes}
        return Pages([""], [Page(kept_lines, noted, _edges(self._ranges))])

    def with_page(self, new: Page) -> tuple[Page, Sequence[str]]:
        """Merges a new page with smaller older pages.

        Returns:
            The merged page, and the names of the other pages.
        """
        stays = 0
        for name, older in zip(self.names, self.pages, strict=True):
            if name and older.size > new.size:
                break
            new, stays = _merge_pages([new, older]), stays + 1
        older_names = tuple(self.names[stays:])
        return msgspec.structs.replace(new, older_pages=older_names), older_names


class PageFiles:
    """Reads and writes the pages of one table, and keeps those of its newest state in memory.

    Args:
        where: the table's name for people.
        page: the type of a page.
        advice: the advice about a page that is missing or damaged.
    """

    def __init__(self, where: str, page: type[Page] = Page, advice: str = _LOST) -> None:
        self._where, self._page, self._advice, self._newest = where, page, advice, Pages()

    def read(self, folder: Place, head: str) -> Pages:
        """Returns the pages of a state of the table.

        Args:
            folder: the table's folder.
            head: the name of its newest page; "" before the first.

        Raises:
            DamagedError: a page is missing or damaged.
            SpecError: a page was written in another format.
        """
        newest_pages = self._newest
        if head != newest_pages.head:
            pages = dict(zip(newest_pages.names, newest_pages.pages, strict=True))
            newest = self._read(folder, head) if head else Page()
            names = [head, *newest.older_pages] if head else []
            older_pages = [
                pages.get(name) or self._read(folder, name) for name in newest.older_pages
            ]
            self._newest = newest_pages = Pages(names, [newest, *older_pages] if head else [])
        return newest_pages

    def write(self, folder: Place, pages: Pages, new: Page) -> str:
        """Writes the page of a commit, before the commit that names it; returns the page's name.

        All pages that it names exist then: a page that was lost or cut short is written again.
        """
        page, older_names = pages.with_page(new)
        content = msgspec.json.encode(page)
        head = name_of(content)
        folder.put(path_of(head), content)
        stay = pages.pages[len(pages.pages) - len(older_names) :]
        file_by_path = folder.stat_files(map(path_of, older_names))
        for name, older in zip(older_names, stay, strict=True):
            content, file = msgspec.json.encode(older), file_by_path[path_of(name)]
            if file is None or file.size != len(content):  # lost since this process read it
                folder.put(path_of(name), content)
        self._newest = Pages([head, *older_names], [page, *stay])
        return head

    def _read(self, folder: Place, name: str) -> Page:
        """Reads one page.

        Raises:
            DamagedError: it is missing or damaged.
            SpecError: it was written in another format.
        """
        try:
            content = folder.get(path_of(name))
        except FileNotFoundError:
            raise self._damaged_error(name, "it is missing") from None
        if name_of(content) != name:
            raise self._damaged_error(name, "it is damaged")
        form = msgspec.json.decode(content, type=_AnyForm).form
        if form != _FORM:
            raise SpecError(
                f"the page {path_of(name)} of the table {self._where} is of form {form}, and this"
                f" windrow reads form {_FORM}",
                "setup",
                "Use the windrow that wrote it, or make the table anew.",
            )
        return msgspec.json.decode(content, type=self._page)

    def _damaged_error(self, name: str, reason: str) -> DamagedError:
        page = f"the page {path_of(name)} of the table {self._where}"
        return DamagedError(
            f"{page}, which says which windows it holds, can't be read: {reason}",
            "commit",
            self._advice,
        )


def name_of(content: bytes) -> str:
    """Returns the name of a page with this content: 63 bits of its SHA-256.

    So a name can also be stored as a signed 64-bit integer.
    """
    return f"{int.from_bytes(hashlib.sha256(content).digest()[:8]) >> 1:016x}"


def path_of(name: str) -> str:
    """Returns the path of a page's file."""
    return f"{PAGES}/{name}.json"


class PagedState:
    """The part of a table's state that pages and receipt files hold (`table_store.TableState`).

    Args:
        files: the table's folder.
        page_files: the table's pages.
    """

    line: Callable[..., PageLine] = PageLine
    """Makes a window's line in a page."""

    def __init__(self, files: Place, page_files: PageFiles) -> None:
        self.folder, self._page_files = files, page_files

    @cached_property
    def pages(self) -> Pages:
        """The pages that count in this state."""
        return self.read_pages()

    def read_pages(self) -> Pages:
        """Reads the pages that count in this state."""
        raise NotImplementedError

    @property
    def is_lost(self) -> bool:
        """Whether a page is missing or damaged."""
        try:
            return self.pages is None
        except DamagedError:
            return True

    def note(self, name: str) -> int | None:
        return self.pages.note(name)

    def notes(self) -> Mapping[str, int]:
        return self.pages.notes

    def committed(self) -> Collection[str]:
        return self.pages.windows.keys()

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        return self.pages.receipts(self.folder, keys)

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        return self.pages.overlapping(ranges)

    # Maintenance (`sinks.kit.commit.maintain`) asks the following of tables whose commits name
    # staged files.

    def files_by_partition(self) -> Mapping[Any, Sequence[HasSize]]:
        """Returns the files whose rows may be in one file, by their partition of the table."""
        return {}

    def join_files(self, paths: Sequence[str], attempt: str) -> msgspec.Struct | None:
        """Writes one new file with the rows of some files of a partition; returns its description.

        It returns None if the files have no rows.

        Raises:
            RefusedError, SchemaChangedError: the rows of the files can't be told, or a file is
                gone or damaged.
            UnreachableError: a file can't be read.
            OSError: the new file can't be written.
        """
        raise NotImplementedError

    def snapshots_until(self, instant: int) -> Sequence[int]:
        """Returns the ids of unprotected snapshots up to an instant, in epoch milliseconds."""
        del instant
        return ()

    def replaced_until(self, instant: int) -> Sequence[str]:
        """Returns the files that this state lacks since an instant, in epoch milliseconds.

        Only readers of older versions need them. A sweep finds them in most kinds of tables.
        """
        del instant
        return ()

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        named = self.pages.windows[window.key]
        stored_receipts.restore(self.folder, window, named, text, dry_run=dry_run)

    def put_page(
        self, receipts: Sequence[Receipt], notes: Mapping[str, int], version: int, *more: object
    ) -> str:
        """Writes the files of a commit's receipts, then its page; returns the page's name.

        Args:
            receipts: the receipts; none if the commit has only notes.
            notes: the notes.
            version: the version of the table that the commit makes.
            more: further fields of the windows' lines.
        """
        lines, covered = dict[str, PageLine](), list[Covered]()
        for receipt in receipts:
            named = stored_receipts.write(self.folder, receipt)
            lines[receipt.window.key] = self.line(named.generation, named.digest, version, *more)
            covered += covered_ranges(receipt.plan)
        page = page_of(lines, notes, covered)
        return self._page_files.write(self.folder, self.pages, page)


class _AnyForm(msgspec.Struct):
    """The one field that every page of any form has."""

    form: int = 1


def _merge_pages(pages: Sequence[Page]) -> Page:
    """Merges pages. If several pages have a window or a note, the first page counts."""
    return Page(_windows(pages), _notes(pages), _edges(_ranges_of(pages)))


def _windows(pages: Sequence[Page], keys: Collection[str] | None = None) -> dict[str, PageLine]:
    """Merges the windows of pages, in the order of their newest commits."""
    lines: dict[str, PageLine] = {}
    for page in reversed(pages):
        for key in page.windows if keys is None else [k for k in keys if k in page.windows]:
            lines.pop(key, None)  # a newer line comes last
            lines[key] = page.windows[key]
    return lines


def _notes(pages: Sequence[Page]) -> dict[str, int]:
    return {name: value for page in reversed(pages) for name, value in page.notes.items()}


def _ranges_of(pages: Sequence[Page]) -> Ranges:
    ranges = Ranges()
    for page in pages:
        ranges.add(_covered(page.ranges))
    return ranges


def _covered(edges: Edges) -> Iterable[Covered]:
    for topic_id, partition, numbers in edges:
        for start, stop in zip(numbers[::2], numbers[1::2], strict=True):
            yield Covered(topic_id, partition, start, stop)


def _edges(ranges: Ranges) -> Edges:
    edges: dict[tuple[str, int], list[int]] = {}
    for span in ranges.list_spans():
        edges.setdefault((span.topic_id, span.partition), []).extend((span.start, span.stop))
    return tuple((*tp, tuple(numbers)) for tp, numbers in sorted(edges.items()))
