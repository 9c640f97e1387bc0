"""Tasks for the engines' tests; importable in Spark's workers."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import DataLossError, SchemaChangedError, SpecError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, Staged
from windrow.ingest.model.refusal_summary import RefusedAt
from windrow.ingest.testing.contracts.windows import split_counts
from windrow.ingest.testing.engine import WorkerDiedError


def staged(split: Split, word: str) -> Staged:
    """A result that says `word`, with something in every field."""
    moment = datetime(2026, 1, 5, 1, 2, 3, 456789, UTC)
    counts = split_counts(
        split,
        read=5,
        bytes=600,
        valid=3,
        dead=2,
        rows_staged=3,
        dead_staged=2,
        aborted=1,
        rows=3,
        filtered=1,
        deletes=2,
        truncated=1,
        skipped=4,
        reasons=(("decode: null", 2),),
        first_dead=((split.start, "decode: null"),),
        late=1,
        early=1,
        late_by=(("2026-01-05T00:00:00Z", 1),),
        min_timestamp=moment,
        max_timestamp=moment,
        diverged=True,
        checksums=Checksums("0" * 15 + "1", "f" * 16),
        schemas=(("1", "a"),),
    )
    refused = RefusedAt("schema", 2, (("$.a expected int, got float", 2),), (split.start,))
    return Staged(split, counts, (word, "ä\x00"), ("dead",), (refused,))


def note_call(folder: Path, split: Split) -> None:
    """Leave a file for a call, so that calls in any process can be counted."""
    (folder / f"{split.partition}-{os.getpid()}-{len(list(folder.iterdir()))}").touch()


class Name:
    """Says which process ran it."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, str(os.getpid()))


class Loaded:
    """Says what its process has loaded, a line a module."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, "\n".join(sys.modules))


class Collects:
    """Says how many objects Python's collector would look at here."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, str(len(gc.get_objects())))


class Counts:
    """Says how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        self.calls += 1
        return staged(split, str(self.calls))


class StaysAtHome:
    """Can't be pickled: it holds what belongs to one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        raise AssertionError(split)


class MissesItsFile:
    """Can't be pickled, and says why: the file that it would take along is gone."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise SpecError("The schema file is gone", "spec", "Put it back.")

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        raise AssertionError(split)


class Dies:
    """Its worker dies at partition 1; what a lost executor, or one out of memory, does."""

    def __init__(self, calls: Path, *, times: int) -> None:
        """`calls`: a folder that gets a file per try at partition 1.

        `times`: how many of them die.
        """
        self.calls, self.times = calls, times

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        if split.partition == 1:
            note_call(self.calls, split)
            if len(list(self.calls.iterdir())) <= self.times:
                self.die()
        return staged(split, "alive")

    def die(self) -> None:
        """As a killed process dies."""
        os.kill(os.getpid(), signal.SIGKILL)


class DiesInMemory(Dies):
    """The same for the twin, whose worker is the process of the test."""

    def die(self) -> None:
        """As the twin's workers die."""
        raise WorkerDiedError


class Refuses:
    """Finds that its messages are gone, or at partition 3 something else; counts how
    often it was asked.
    """

    def __init__(self, calls_folder: Path) -> None:
        """`calls_folder`: a folder that gets a file per call."""
        self.calls_folder = calls_folder

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        note_call(self.calls_folder, split)
        if split.partition == 1:
            raise DataLossError("gone", "read", "Do something.", split.topic, split.partition, 7)
        if split.partition == 3:
            raise SchemaChangedError("another column", "stage", "Do something else.")
        return staged(split, "fine")


class Breaks:
    """A bug, whose exception quotes a message's value; counts how often it was asked."""

    def __init__(self, calls_folder: Path) -> None:
        """`calls_folder`: a folder that gets a file per call."""
        self.calls_folder = calls_folder

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        note_call(self.calls_folder, split)
        value = "secret-payload" if split.partition == 1 else 1
        return staged(split, str(pa.array([value], pa.int64())))


class Raises:
    """Raises what it is made with, as a class: its text would be a message's."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        raise self.kind("secret-payload")


class EndsItself(KeyboardInterrupt):
    """An end that somebody asks for, as Ctrl-C is; its text may quote anything."""


class PanicException(BaseException):
    """What a panic in Rust code is to Python; each library has a class of its own."""


PanicException.__module__ = "pyo3_runtime"
PANIC = PanicException


class Panics:
    """What a panic in Rust code does: its text may quote anything."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        raise PANIC("secret-payload")


class Says:
    """Says what a module that can be imported in a folder calls `WORD`, and which process did."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))
        return staged(split, f"{importlib.import_module(self.module).WORD} {os.getpid()}")


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


class Variable:
    """Says what a worker's environment has under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, os.environ.get(self.name, ""))


class Where:
    """Says where a module's code is: windrow's own, if no other is named."""

    def __init__(self, module: str = "windrow") -> None:
        self.module = module

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, str(importlib.import_module(self.module).__file__))
