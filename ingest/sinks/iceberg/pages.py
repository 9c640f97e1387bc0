"""Which windows a table holds, for ever: pages, each an immutable file that its name's digest proves. Pure.

Iceberg forgets snapshots, and what their summaries say with them, so the summary of each snapshot of windrow's names the pages of all
windows up to then. A commit writes one page: its own window's, together with those of the pages before it that have become no larger
than what is put together so far. So there are never more pages than doublings, however many windows there are; a commit writes a few
windows' lines, and a process that has read pages never reads them again.

A rolled back table says by its older snapshot which windows it holds then: rows and receipts go, and come, together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from windrow.ingest.model.plan import Covered
from windrow.ingest.sinks.ranges import Ranges

_FORM = 1

Edges = tuple[tuple[str, int, tuple[int, ...]], ...]


class PageLine(msgspec.Struct, frozen=True, array_like=True):
    """What a page says of a window: its newest generation, the digest of its receipt, and the snapshot that brought it."""

    generation: int
    receipt: str
    snapshot: int


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file. `ranges`: at least the offsets of its windows, per topic id and partition as start, stop, start, stop ..."""

    windows: dict[str, PageLine] = {}
    notes: dict[str, int] = {}
    ranges: Edges = ()
    form: int = _FORM

    @property
    def size(self) -> int:
        """By which pages are put together."""
        return len(self.windows) + len(self.notes)

    def over(self, older: Page) -> Page:
        """Both in one; what this one says of a window or by a name, counts."""
        held = Ranges()
        for page in (older, self):
            held.add(covered_by(page.ranges))
        return Page(older.windows | self.windows, older.notes | self.notes, edges_of(held))


def encoded(page: Page) -> bytes:
    """A page as a file."""
    return msgspec.json.encode(page)


def decoded(content: bytes) -> Page | None:
    """A file as a page; None if it is none, or of a form that isn't known."""
    try:
        page = msgspec.json.decode(content, type=Page)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return page if page.form == _FORM else None


def covered_by(edges: Edges) -> Iterable[Covered]:
    """The ranges that a page's numbers stand for."""
    for topic_id, partition, numbers in edges:
        for start, stop in zip(numbers[::2], numbers[1::2], strict=True):
            yield Covered(topic_id, partition, start, stop)


def edges_of(ranges: Ranges) -> Edges:
    """The same, the other way."""
    found: dict[tuple[str, int], list[int]] = {}
    for one in ranges.every():
        found.setdefault((one.topic_id, one.partition), []).extend((one.start, one.stop))
    return tuple((*tp, tuple(numbers)) for tp, numbers in sorted(found.items()))


def page_of(windows: Mapping[str, PageLine], notes: Mapping[str, int], covered: Iterable[Covered]) -> Page:
    """What a commit adds."""
    held = Ranges()
    held.add(covered)
    return Page(dict(windows), dict(notes), edges_of(held))


@dataclass(frozen=True)
class Pages:
    """Those of one state of the table, the newest first, each with the digest that names it; "" of one that is still to be written."""

    names: Sequence[str] = ()
    pages: Sequence[Page] = field(default=())

    def window(self, key: str) -> PageLine | None:
        """What is said of a window."""
        return next((page.windows[key] for page in self.pages if key in page.windows), None)

    def windows(self) -> dict[str, PageLine]:
        """All windows, in the order of their keys."""
        found: dict[str, PageLine] = {}
        for page in reversed(self.pages):
            found |= page.windows
        return dict(sorted(found.items()))

    def note(self, name: str) -> int | None:
        """What stands by a name."""
        return next((page.notes[name] for page in self.pages if name in page.notes), None)

    def notes(self) -> dict[str, int]:
        """All notes."""
        found: dict[str, int] = {}
        for page in reversed(self.pages):
            found |= page.notes
        return found

    def without(self, windows: Collection[str], notes: Collection[str]) -> Pages:
        """Without some windows and notes: one page, which the next commit writes."""
        if not windows and not notes:
            return self
        ranges = edges_of(self._held)
        kept = {key: line for key, line in self.windows().items() if key not in windows}
        return Pages(("",), (Page(kept, {name: value for name, value in self.notes().items() if name not in notes}, ranges),))

    def meets(self, asked: Sequence[Covered]) -> bool:
        """Whether any of these offsets may be held by a window."""
        return self._held.meets(asked)

    def with_page(self, page: Page) -> tuple[Page, Sequence[str]]:
        """The page to write so that this one counts, and the names of those that stay behind it."""
        stays = 0
        for name, older in zip(self.names, self.pages, strict=True):
            if name and older.size > page.size:
                break
            page = page.over(older)
            stays += 1
        return page, self.names[stays:]

    @cached_property
    def _held(self) -> Ranges:
        held = Ranges()
        for page in self.pages:
            held.add(covered_by(page.ranges))
        return held
