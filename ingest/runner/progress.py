"""The progress of a run: what is said while it goes on, and how far its tasks have read.

Every five seconds each worker writes the offsets that its splits have come to into a small
file beside the staged ones, and the driver adds them up. Nothing stands on these files: one
that is missing, late, damaged or left behind costs a line of text.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial

import msgspec

from windrow.ingest.errors import counted
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import ProgressFolder
from windrow.ingest.waiting import SECONDS

EVERY = 5.0
"""Seconds between two files of a worker, and between two looks of the driver."""

_SHARE = 20
"""A worker writes for at most one part in so many of its time, however slow the storage is."""

LINE_SECONDS, LINE_SHARE = 15.0, 0.1
"""A line is said after so many seconds, or if so much more of the whole is done."""

_WAITS = logging.getLogger("windrow.waiting")
_FILE = msgspec.json.Decoder(tuple[dict[str, int], str])
"""A worker's file: the offset that each of its splits has come to, and what it waits for."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run: a line of text, which is empty where a step ends.

    `done` of `total`, which is 0 if it is unknown. `notes`: lines that are said in any case.
    """

    text: str
    done: int = 0
    total: int = 0
    notes: tuple[str, ...] = ()


def ignore(_: Progress) -> None:
    """Ignores progress."""


def lines(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Makes a function that says progress in lines, few enough for a log."""
    line_time, line_share = time.monotonic(), 0.0

    def progress(update: Progress) -> None:
        nonlocal line_time, line_share
        now, done = time.monotonic(), update.done / update.total if update.total else 0.0
        due = update.text and (now - line_time >= LINE_SECONDS or done - line_share >= LINE_SHARE)
        for line in (*update.notes, *([update.text] if due else ())):
            say(line)
            line_time, line_share = now, done

    return progress


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadProgress:
    """How far the tasks of a job have read; picklable.

    `folder`: where workers say so; None if the sink has no place for it.
    """

    job: str = ""
    folder: ProgressFolder | None = field(default=None, compare=False)
    every: float = field(default_factory=lambda: EVERY)

    @contextmanager
    def of(self, split: Split) -> Iterator[Callable[[int], None]]:
        """Gives a task a function that takes the next offset to read of its split."""
        if self.folder is None:
            yield lambda _: None
            return
        worker, key = _this_worker(self), _key(split)
        _WAITS.addFilter(worker.hears)
        try:
            yield partial(worker.reaches, key)
            worker.reaches(key, split.stop)
        finally:
            _WAITS.removeFilter(worker.hears)

    @contextmanager
    def report_reads(
        self, splits: Sequence[Split], activity: str, tell: Callable[[Progress], None]
    ) -> Iterator[None]:
        """Tells during the block how far the tasks have read; then removes their files.

        `activity`: what is done, as the beginning of a line.
        """
        ended, began = threading.Event(), time.monotonic()
        threading.Thread(
            target=self._watch, args=(splits, activity, tell, ended), daemon=True
        ).start()
        try:
            yield
        finally:
            ended.set()
        if time.monotonic() - began >= min(SECONDS, self.every):
            with suppress(Exception):
                for folder, name in self._files():
                    folder.remove(name)

    def _watch(
        self,
        splits: Sequence[Split],
        activity: str,
        tell: Callable[[Progress], None],
        ended: threading.Event,
    ) -> None:
        total, given_notes = sum(s.stop - s.start for s in splits), set[str]()
        reached = {_key(s): dict[str, int]() for s in splits}
        began = started = time.monotonic()
        while not ended.wait(self.every):
            with suppress(Exception):  # the next look may do better
                notes, now = self._look(reached), time.monotonic()
                notes += [
                    f"{s.tp} is read again from offset {s.start} on: a worker was lost"
                    for s in splits
                    if len(reached[_key(s)]) > 1
                ]
                done = sum(
                    min(max(reached[_key(s)].values(), default=s.start), s.stop) - s.start
                    for s in splits
                )
                started = started if done else now
                text = f"{activity}, for {timedelta(seconds=round(now - began))} by now"
                if done:
                    took = now - started
                    text = (
                        f"{activity}: {done:,} of {counted(total, 'message')}"
                        f" ({100 * done // total} %), {done / took:,.0f} a second,"
                        f" {timedelta(seconds=round(took * (total / done - 1)))} left"
                    )
                new = tuple(note for note in dict.fromkeys(notes) if note not in given_notes)
                given_notes.update(new)
                if not ended.is_set():
                    tell(Progress(text, done, total, new))

    def _look(self, reached: Mapping[str, dict[str, int]]) -> list[str]:
        """Notes what splits have come to, by worker; returns what workers wait for."""
        waits = []
        for folder, name in self._files():
            with suppress(FileNotFoundError, msgspec.MsgspecError):  # it is being written
                offsets, wait = _FILE.decode(folder.get(name))
                for key in offsets.keys() & reached.keys():
                    reached[key][name] = offsets[key]
                waits += [wait] if wait else []
        return waits

    def _files(self) -> list[tuple[ProgressFolder, str]]:
        folder = self.folder
        names = () if folder is None else folder.names("")
        return [(folder, name) for name in names if folder and name.startswith(self.job)]


class _Worker:
    """This process's part of a job."""

    def __init__(self, progress: ReadProgress) -> None:
        assert progress.folder is not None, "a task asks for it"
        self._folder, self._interval_seconds, self._file = (
            progress.folder,
            progress.every,
            f"{progress.job}-{uuid.uuid4().hex}",
        )
        self._offsets, self._due = dict[str, int](), time.monotonic() + progress.every

    def reaches(self, split: str, offset: int) -> None:
        self._offsets[split] = offset
        if time.monotonic() >= self._due:
            self._writes("")

    def hears(self, record: logging.LogRecord) -> bool:
        """Writes what a task waits for; returns whether it has to be said here.

        The storage of these files may be waited for, too.
        """
        return time.monotonic() < self._due - self._interval_seconds or not self._writes(
            record.getMessage()
        )

    def _writes(self, waits: str) -> bool:
        began, written = time.monotonic(), False
        with suppress(Exception), self._folder.open_output(self._file) as out:
            out.write(msgspec.json.encode((self._offsets, waits)))
            written = True
        took = time.monotonic() - began
        self._due = began + took + max(self._interval_seconds, _SHARE * took)
        return written


_this_worker = lru_cache(maxsize=1)(_Worker)
"""Returns this process's part of a job."""


def _key(split: Split) -> str:
    return f"{split.tp}/{split.start}"
