"""The log folded up: which files the table is made of now, and what the next commit is judged by. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from windrow.ingest.model.binding import Binding
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.plan import Covered, Plan, covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.files.entry import ENTRY_VERSION, BeginTable, BringWindow, ColumnText, GiveUpStaged, RowFile, decoded, fingerprint
from windrow.ingest.sinks.place import millis


class BrokenLogError(ValueError):
    """An entry doesn't go on from the one before it; the text says why."""


class WindowFiles(msgspec.Struct, frozen=True):
    """A committed window: its generation, the number of the entry that has its receipt, its files, and which offsets it holds."""

    generation: int
    entry: int
    files: tuple[RowFile, ...]
    ranges: tuple[Covered, ...]


class FilesState(msgspec.Struct, frozen=True):
    """A table as it is after the entry `number`, whose fingerprint is `last`.

    `replaced`: files of older generations, and since when they are no part of the table, in epoch milliseconds. `swept`: until when
    staged files were given up; None if none were. `window`: the key of the one that the newest entry brought, if it brought one.
    """

    number: int
    last: str
    binding: Binding
    format: str
    columns: tuple[ColumnText, ...]
    windows: Mapping[str, WindowFiles] = {}
    replaced: Mapping[str, int] = {}
    swept: int | None = None
    window: str | None = None

    def files(self) -> Iterator[RowFile]:
        """All files of the table, window by window."""
        return (file for key in sorted(self.windows) for file in self.windows[key].files)


class RangesHeld:
    """Which windows hold which offsets: found without asking each window, for committed ranges never overlap."""

    def __init__(self, windows: Mapping[str, WindowFiles]) -> None:
        self._keys: set[str] = set()
        self._by_tp: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
        for key, window in windows.items():
            self.add(key, window)

    def add(self, key: str, window: WindowFiles) -> None:
        """A committed window's; those of its later generations are the same."""
        if key not in self._keys:
            self._keys.add(key)
            for held in window.ranges:
                insort(self._by_tp.setdefault((held.topic_id, held.partition), []), (held.start, held.stop, key))

    def sharing(self, plan: Plan) -> set[str]:
        """The windows, other than its own, that hold an offset of a plan."""
        return {key for mine in covered(plan) for key in self._sharing(mine)} - {plan.window.key}

    def _sharing(self, mine: Covered) -> Iterator[str]:
        ranges = self._by_tp.get((mine.topic_id, mine.partition), [])
        first = max(bisect_left(ranges, (mine.start,)) - 1, 0)
        for start, stop, key in islice(ranges, first, None):
            if start >= mine.stop:
                return
            if stop > mine.start:
                yield key


def after(state: FilesState | None, content: bytes) -> FilesState:
    """The table after one more entry.

    Raises:
        BrokenLogError: it is no entry, one of a later form, or one that was written behind another.
    """
    try:
        line = decoded(content)
        if line.windrow > ENTRY_VERSION:
            raise BrokenLogError(f"it is of form {line.windrow}, which a later windrow writes: update this one")
        if (state.last if state is not None else "") != line.after:
            raise BrokenLogError("it was written behind another entry than the one that is there")
        return _after(state, line.entry, fingerprint(content))
    except (msgspec.DecodeError, ValueError) as error:
        raise error if isinstance(error, BrokenLogError) else BrokenLogError("it can't be read") from error


def _after(state: FilesState | None, change: BeginTable | BringWindow | GiveUpStaged, last: str) -> FilesState:
    if isinstance(change, BeginTable):
        if state is not None:
            raise BrokenLogError("it begins a table that had begun")
        return FilesState(0, last, change.binding, change.format, change.columns)
    if state is None:
        raise BrokenLogError("the entry that begins the table is missing")
    if isinstance(change, GiveUpStaged):
        replaced = {path: since for path, since in state.replaced.items() if path not in change.removed}
        until = max(change.until, state.swept or 0)
        return msgspec.structs.replace(state, number=state.number + 1, last=last, replaced=replaced, swept=until, window=None)
    return _with_window(state, change, last)


def _with_window(state: FilesState, change: BringWindow, last: str) -> FilesState:
    receipt, number = from_json(bytes(change.receipt), Receipt), state.number + 1
    key, kept = receipt.window.key, {file.path for file in change.files}
    before = state.windows.get(key)
    if receipt.generation != (0 if before is None else before.generation + 1):
        raise BrokenLogError(f"it brings generation {receipt.generation} of window {key}, and that isn't the next one")
    replaced = () if before is None else before.files
    gone = {file.path: millis(receipt.staged_at) for file in replaced if file.path not in kept}
    return msgspec.structs.replace(
        state,
        number=number,
        last=last,
        window=key,
        columns=change.columns or state.columns,
        windows={**state.windows, key: WindowFiles(receipt.generation, number, change.files, covered(receipt.plan))},
        replaced={**state.replaced, **gone} if gone else state.replaced,
    )
