"""The progress of a run: lines of text while it runs, from the offsets that its tasks reached.

Every five seconds each worker writes the offsets that its splits have reached to a small file,
beside the staged files. The driver adds them up. A file that is missing, late, damaged or left
over only makes a line of text wrong or missing.
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

from windrow.ingest.errors import format_count
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import ProgressFolder
from windrow.ingest.waiting import SECONDS

INTERVAL_SECONDS = 5.0
"""Seconds between two writes of a worker's file, and between two reads of the driver."""

_SHARE = 20
"""A worker spends at most 1/20 of its time on writing its file, even on slow storage."""

LINE_SECONDS, LINE_SHARE = 15.0, 0.1
"""A line is written after this many seconds, or after this share of the whole is done."""

_WAITS = logging.getLogger("windrow.waiting")
_FILE = msgspec.json.Decoder(tuple[dict[str, int], str])
"""Decodes a worker's file: the offset of each of its splits, and what the worker waits for."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run.

    Attributes:
        text: a line of text; empty at the end of a step.
        done: the part of `total` that is done.
        total: the whole, in the units of `done`; 0 if it is unknown.
        notes: lines that are always written, however often.
    """

    text: str
    done: int = 0
    total: int = 0
    notes: tuple[str, ...] = ()


def ignore(_: Progress) -> None:
    """Ignores progress."""


def lines(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Makes a function that writes progress in lines, few enough for a log.

    Args:
        say: writes one line.
    """
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
    """Reader and writer of the progress files of a job. Picklable.

    Attributes:
        job: the job's id, with which the names of its files begin.
        folder: the folder of the files; None if the sink has no place for them.
        interval_seconds: see `INTERVAL_SECONDS`.
    """

    job: str = ""
    folder: ProgressFolder | None = field(default=None, compare=False)
    interval_seconds: float = field(default_factory=lambda: INTERVAL_SECONDS)

    @contextmanager
    def reporter_of(self, split: Split) -> Iterator[Callable[[int], None]]:
        """Yields a function that a task calls with the next offset to read of its split."""
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

        Args:
            splits: the splits of the job.
            activity: the beginning of a line, such as "Reading window ...".
            tell: gets the progress.
        """
        ended, began = threading.Event(), time.monotonic()
        threading.Thread(
            target=self._watch, args=(splits, activity, tell, ended), daemon=True
        ).start()
        try:
            yield
        finally:
            ended.set()
        if time.monotonic() - began >= min(SECONDS, self.interval_seconds):
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
        while not ended.wait(self.interval_seconds):
            with suppress(Exception):  # the next turn of the loop may succeed
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
                        f"{activity}: {done:,} of {format_count(total, 'message')}"
                        f" ({100 * done // total} %), {done / took:,.0f} a second,"
                        f" {timedelta(seconds=round(took * (total / done - 1)))} left"
                    )
                new = tuple(note for note in dict.fromkeys(notes) if note not in given_notes)
                given_notes.update(new)
                if not ended.is_set():
                    tell(Progress(text, done, total, new))

    def _look(self, reached: Mapping[str, dict[str, int]]) -> list[str]:
        """Reads all files; returns what workers wait for.

        Args:
            reached: gets the offset that each split has reached, by the worker's file.
        """
        waits = []
        for folder, name in self._files():
            # a file may be removed, or half written
            with suppress(FileNotFoundError, msgspec.MsgspecError):
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
    """The writer of this process's progress file."""

    def __init__(self, progress: ReadProgress) -> None:
        assert progress.folder is not None, "a task asks for it"
        self._folder, self._interval_seconds, self._file = (
            progress.folder,
            progress.interval_seconds,
            f"{progress.job}-{uuid.uuid4().hex}",
        )
        self._offsets, self._due = dict[str, int](), time.monotonic() + progress.interval_seconds

    def reaches(self, split: str, offset: int) -> None:
        self._offsets[split] = offset
        if time.monotonic() >= self._due:
            self._writes("")

    def hears(self, record: logging.LogRecord) -> bool:
        """Writes to the file what a task waits for. Serves as a filter of the logger `_WAITS`.

        Returns:
            True if this process must log the record itself, because nothing was written. The
            wait may be for the storage of these files.
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
"""Returns the writer of this process's progress file. Only the newest job's is kept."""


def _key(split: Split) -> str:
    return f"{split.tp}/{split.start}"
