"""Tasks for the engines' tests. Spark's workers can import them."""

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
    """Returns a result that contains `word`, and has a value in every field."""
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
    """Leaves a file per call, so that calls in any process can be counted."""
    (folder / f"{split.partition}-{os.getpid()}-{len(list(folder.iterdir()))}").touch()


class Name:
    """A task that returns its process id."""

    def __call__(self, split: Split) -> Staged:
        """Returns the process id as a result; see `Engine.run`."""
        return staged(split, str(os.getpid()))


class Loaded:
    """A task that returns the modules that its process has loaded, one per line."""

    def __call__(self, split: Split) -> Staged:
        """Returns the modules as a result; see `Engine.run`."""
        return staged(split, "\n".join(sys.modules))


class Collects:
    """A task that returns the number of objects that Python's collector tracks."""

    def __call__(self, split: Split) -> Staged:
        """Returns the number as a result; see `Engine.run`."""
        return staged(split, str(len(gc.get_objects())))


class Counts:
    """A task that returns the number of its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, split: Split) -> Staged:
        """Returns the number as a result; see `Engine.run`."""
        self.calls += 1
        return staged(split, str(self.calls))


class StaysAtHome:
    """A task that can't be pickled, because it holds a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, split: Split) -> Staged:
        """Raises, because it must not run; see `Engine.run`."""
        raise AssertionError(split)


class MissesItsFile:
    """A task whose pickling raises SpecError, because its file is gone."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise SpecError("The schema file is gone", "spec", "Put it back.")

    def __call__(self, split: Split) -> Staged:
        """Raises, because it must not run; see `Engine.run`."""
        raise AssertionError(split)


class Dies:
    """A task whose worker dies at partition 1, as a lost executor, or one without memory, does."""

    def __init__(self, calls: Path, *, times: int) -> None:
        """Remembers the arguments.

        Args:
            calls: a folder that gets a file per try at partition 1.
            times: number of tries that die.
        """
        self.calls, self.times = calls, times

    def __call__(self, split: Split) -> Staged:
        """Dies at partition 1; see `Engine.run`."""
        if split.partition == 1:
            note_call(self.calls, split)
            if len(list(self.calls.iterdir())) <= self.times:
                self.die()
        return staged(split, "alive")

    def die(self) -> None:
        """Kills the process."""
        os.kill(os.getpid(), signal.SIGKILL)


class DiesInMemory(Dies):
    """The same task for the twin, whose worker is the test's process."""

    def die(self) -> None:
        """Raises the error of the twin's dead workers."""
        raise WorkerDiedError


class Refuses:
    """A task that raises DataLossError at partition 1, SchemaChangedError at partition 3, and
    counts its calls.
    """

    def __init__(self, calls_folder: Path) -> None:
        """Remembers the folder.

        Args:
            calls_folder: a folder that gets a file per call.
        """
        self.calls_folder = calls_folder

    def __call__(self, split: Split) -> Staged:
        """Raises at the partitions 1 and 3; see `Engine.run`."""
        note_call(self.calls_folder, split)
        if split.partition == 1:
            raise DataLossError("gone", "read", "Do something.", split.topic, split.partition, 7)
        if split.partition == 3:
            raise SchemaChangedError("another column", "stage", "Do something else.")
        return staged(split, "fine")


class Breaks:
    """A task with a bug, whose exception quotes a message's value. It counts its calls."""

    def __init__(self, calls_folder: Path) -> None:
        """Remembers the folder.

        Args:
            calls_folder: a folder that gets a file per call.
        """
        self.calls_folder = calls_folder

    def __call__(self, split: Split) -> Staged:
        """Raises at partition 1; see `Engine.run`."""
        note_call(self.calls_folder, split)
        value = "secret-payload" if split.partition == 1 else 1
        return staged(split, str(pa.array([value], pa.int64())))


class Raises:
    """A task that raises an exception of the given class, with a text like a message's value."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __call__(self, split: Split) -> Staged:
        """Raises the exception; see `Engine.run`."""
        raise self.kind("secret-payload")


class EndsItself(KeyboardInterrupt):
    """An interrupt such as Ctrl-C, whose text may quote a value."""


class PanicException(BaseException):
    """The exception of a panic in Rust code. Each library has its own class."""


PanicException.__module__ = "pyo3_runtime"
PANIC = PanicException


class Panics:
    """A task that panics in Rust code; the text may quote a value."""

    def __call__(self, split: Split) -> Staged:
        """Raises the panic's exception; see `Engine.run`."""
        raise PANIC("secret-payload")


class Says:
    """A task that returns `WORD` of a module in a folder, and its process id."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module

    def __call__(self, split: Split) -> Staged:
        """Returns both as a result; see `Engine.run`."""
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))
        return staged(split, f"{importlib.import_module(self.module).WORD} {os.getpid()}")


class WaitsForEver:
    """A task that reports its start, and doesn't end by itself."""

    def __init__(self, begun: Path) -> None:
        """Remembers the folder.

        Args:
            begun: a folder that gets a file per call.
        """
        self.begun = begun

    def __call__(self, split: Split) -> Staged:
        """Waits for ten minutes; see `Engine.run`."""
        (self.begun / str(split.partition)).touch()
        threading.Event().wait(600)
        return staged(split, "waited")


class Variable:
    """A task that returns a variable of the worker's environment."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, split: Split) -> Staged:
        """Returns the variable as a result; see `Engine.run`."""
        return staged(split, os.environ.get(self.name, ""))


class Where:
    """A task that returns the file of a module, by default of windrow."""

    def __init__(self, module: str = "windrow") -> None:
        self.module = module

    def __call__(self, split: Split) -> Staged:
        """Returns the path as a result; see `Engine.run`."""
        return staged(split, str(importlib.import_module(self.module).__file__))
