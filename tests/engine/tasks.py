"""Tasks for the engine's tests; importable in Spark's workers."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pyarrow as pa

from ingest.errors import DataLossError
from ingest.model.plan import Split
from ingest.model.receipt import SplitCounts
from ingest.model.staged import Staged


def staged(split: Split, word: str) -> Staged:
    """A result that says `word`."""
    counts = SplitCounts(split.topic, split.partition, split.start, split.stop, split.stop, 0, 0, 0, 0, 0, 0, 0, 0)
    return Staged(split, counts, (word,), ())


class Name:
    """Says which process ran it."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, str(os.getpid()))


class KillsItsWorkerOnce:
    """The first attempt at partition 1 dies with SIGKILL; what a lost executor does."""

    def __init__(self, mark: Path) -> None:
        """`mark`: a file that the first attempt leaves behind."""
        self.mark = mark

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        if split.partition == 1 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return staged(split, "alive")


class Refuses:
    """Finds that its messages are gone; counts how often it was asked."""

    def __init__(self, asked: Path) -> None:
        """`asked`: a folder that gets a file per call."""
        self.asked = asked

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        (self.asked / f"{split.partition}-{os.getpid()}-{len(list(self.asked.iterdir()))}").touch()
        if split.partition == 1:
            raise DataLossError("gone", "read", "Do something.", split.topic, split.partition, split.start)
        return staged(split, "fine")


class Breaks:
    """A bug, whose exception quotes a message's value."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        value = "secret-payload" if split.partition == 1 else 1
        return staged(split, str(pa.array([value], pa.int64())))


class Panics:
    """What a panic in Rust code is to Python: no Exception, and its text may quote anything."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        raise Panic("secret-payload")


class Panic(BaseException):
    """Like `pyo3_runtime.PanicException`."""


class WaitsForEver:
    """Says that it has begun, and doesn't end by itself."""

    def __init__(self, begun: Path) -> None:
        """`begun`: a folder that gets a file per call."""
        self.begun = begun

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        (self.begun / str(split.partition)).touch()
        threading.Event().wait(600)
        return staged(split, "waited")
