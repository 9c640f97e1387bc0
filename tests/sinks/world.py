"""Kinds of sinks for tests: each has a `SinkWorld`. `tests.sinks.worlds` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow.ingest.crashpoints import CRASH_POINTS, CrashPoint
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.partition_fields import PartitionField
from windrow.ingest.sinks.kit.commit.table_store import Unanswered
from windrow.ingest.sinks.kit.files.staged_files import JOINING
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.commit_hooks import answer_puts, before_look, run_between
from windrow.ingest.testing.contracts.windows import ROWS, produced_messages

Break = Callable[[Any], object]
"""A function that breaks one step of an opened sink's commits."""

BY_ID = (PartitionField("bucket", "id", "id_bucket", 2),)
"""Partition fields for the rows of the suites. A window's split has rows in both buckets."""

POINTS = CRASH_POINTS[CRASH_POINTS.index("plan.before") :]
"""Crash points of an attempt: all points of a run after the boundaries are frozen."""


def sort_if_joined(path: str, rows: pa.Table) -> pa.Table:
    """Returns the rows of a file in the order of their messages if maintenance has written it.

    Such a file has the rows of one file after those of another. A window whose dead letters were
    replayed has their rows in files of their own, so its joined file is in no order of messages.
    """
    joined = path.rpartition("/")[2].startswith(f"{JOINING}-")
    order = [(DEFAULT[name], "ascending") for name in ("topic", "partition", "offset")]
    return rows.sort_by(order) if joined else rows


class SinkWorld(ABC):
    """One kind of sink, for all suites.

    A location is a text by which any process finds a table, also before it exists.
    """

    server = ""
    """Name of the fixture with the server of its locations; "" for none."""

    twins: Sequence[Break] = ()
    """Functions that break an opened sink, one step each. The chaos runs must find each."""

    strikes: Sequence[Callable[[str], None]] = ()
    """Functions that harm the server of a location. Each returns when the server is up again."""

    locks = False
    """True if a run that is stopped at a crash point may hold a lock that others wait for."""

    locks_between = False
    """True if a run that is stopped elsewhere may hold such a lock."""

    points = POINTS
    """The crash points that an attempt passes."""

    race_point: CrashPoint = "commit.before"
    """The crash point between look and write."""

    arrived: tuple[CrashPoint, ...] = ("commit.after", "report.before")
    """Crash points at which the window is committed."""

    @abstractmethod
    def new_location(self, folder: Path, server: Any) -> str:
        """Returns the location of a new table.

        Args:
            folder: a folder for the table.
            server: the value of the fixture `server`.
        """

    @abstractmethod
    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        """Returns a sink with its dead letters at a location."""

    @abstractmethod
    def pieces(self, sink: Any) -> list[pa.Table]:
        """Returns all visible rows, in pieces for the checker."""

    def sink_at(
        self, location: str, rows: pa.Schema = ROWS, metadata: Mapping[str, str] = DEFAULT
    ) -> Any:
        """Opens a sink at a location, as any process does."""
        sink = self.make_sink(location, rows, metadata)
        sink.opened_at = location
        return sink

    def reopen(self, sink: Any) -> Any:
        """Returns a sink on the same table, as in another process."""
        return self.sink_at(sink.opened_at, sink.schema, sink.metadata)

    def twin_at(self, location: str, twin: str) -> Any:
        """Returns a broken sink."""
        sink = self.sink_at(location)
        self.by_name[twin](sink)
        return sink

    @property
    def by_name(self) -> dict[str, Break]:
        """Twins by their names."""
        return {twin.__name__.replace("_", "-"): twin for twin in self.twins}

    def report(self, sink: Any, numbers: Iterable[int]) -> Report:
        """Returns the checker's report for exactly these windows."""
        receipts = [c.receipt for c in sink.receipts()]
        dead = [sink.read_dead(r.window) for r in receipts]
        return check(
            produced_messages([*numbers]),
            self.pieces(sink),
            dead,
            receipts,
            content="id",
            metadata=sink.metadata,
        )

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        """Makes the next commit arrive without an answer."""
        answer_puts(sink, (Unanswered("the line is cut"), True))
        return nullcontext()

    def let_overtake(self, sink: Any, turn: Callable[[], object]) -> None:
        """Calls `turn` once between look and put; before the look if the look takes a lock."""
        (before_look if self.locks else run_between)(sink, turn)

    @contextmanager
    def serve_location(self, folder: Path) -> Iterator[str]:
        """Yields a new location in a folder, with its own server, which may be harmed."""
        yield self.new_location(folder, None)
