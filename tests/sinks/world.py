"""How tests have a kind of sink: a `SinkWorld` each. `tests.sinks.worlds` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow.ingest.crashpoints import CRASH_POINTS, CrashPoint
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.kit.commit.table_store import Unanswered
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.commit_hooks import answered, before_look, in_between
from windrow.ingest.testing.contracts.windows import ROWS, produced

Break = Callable[[Any], object]
"""Breaks one step of an opened sink's commits."""

POINTS = CRASH_POINTS[CRASH_POINTS.index("plan.before") :]
"""Where an attempt may die: all that a run comes by once the boundaries are frozen."""


class SinkWorld(ABC):
    """One kind of sink, as all suites have it.

    A place is a text by which any process finds a table, whether it is there yet or not.
    """

    server = ""
    """The fixture whose server its places are on."""

    twins: Sequence[Break] = ()
    """Each breaks an opened sink, one step from the real one: chaos must catch it."""

    strikes: Sequence[Callable[[str], None]] = ()
    """What may happen to the server of a place; each returns when it is up again."""

    locks = False
    """A run that is stopped may hold what others wait for, and nothing takes it from it."""

    locks_between = False
    """The same, but at no named point."""

    points = POINTS
    """The crash points that an attempt comes by."""

    between: CrashPoint = "commit.before"
    """The crash point between look and write."""

    arrived: tuple[CrashPoint, ...] = ("commit.after", "report.before")
    """Who dies there has committed."""

    @abstractmethod
    def new_location(self, folder: Path, server: Any) -> str:
        """The place of a table that isn't there yet. `server`: the value of that fixture."""

    @abstractmethod
    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        """A sink at a place, with its dead letters at hand."""

    @abstractmethod
    def pieces(self, sink: Any) -> list[pa.Table]:
        """All visible rows, cut as the checker wants them."""

    def sink_at(
        self, location: str, rows: pa.Schema = ROWS, metadata: Mapping[str, str] = DEFAULT
    ) -> Any:
        """The same; another process opens it so, too."""
        sink = self.make_sink(location, rows, metadata)
        sink.opened_at = location
        return sink

    def reopen(self, sink: Any) -> Any:
        """A sink on the same table as another process has it."""
        return self.sink_at(sink.opened_at, sink.schema, sink.metadata)

    def twin_at(self, location: str, twin: str) -> Any:
        """A broken sink."""
        sink = self.sink_at(location)
        self.by_name[twin](sink)
        return sink

    @property
    def by_name(self) -> dict[str, Break]:
        """The twins by their names."""
        return {twin.__name__.replace("_", "-"): twin for twin in self.twins}

    def report(self, sink: Any, numbers: Iterable[int]) -> Report:
        """The checker's word on windows that should be there, and on nothing else."""
        receipts = [c.receipt for c in sink.receipts()]
        dead = [sink.read_dead(r.window) for r in receipts]
        return check(
            produced([*numbers]),
            self.pieces(sink),
            dead,
            receipts,
            content="id",
            metadata=sink.metadata,
        )

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        """The next commit arrives, but its answer doesn't."""
        answered(sink, (Unanswered("the line is cut"), True))
        return nullcontext()

    def let_overtake(self, sink: Any, turn: Callable[[], object]) -> None:
        """Another run has its turn once, between look and put; or before the look, where that
        one waits for a lock.
        """
        (before_look if self.locks else in_between)(sink, turn)

    @contextmanager
    def placed(self, folder: Path) -> Iterator[str]:
        """A new place in a folder, with the server that it needs, which may be struck."""
        yield self.new_location(folder, None)
