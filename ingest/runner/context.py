"""A pipeline with all its parts, and the requests and results of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, format_count
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.lookup import LookupSource, sources_of
from windrow.ingest.ports.observer import Observer
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.dead_publishing import PublishedDeadLetters
from windrow.ingest.runner.group_offsets import AlteredOffsets
from windrow.ingest.schema.user_code import FunctionReference, ModelReference, load_model

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder
    from windrow.ingest.ports.transform import Transform
    from windrow.ingest.schema.columns import Columns


class Request(msgspec.Struct, frozen=True):
    """A request to commit a window, or to replace a committed window.

    Attributes:
        id: the same for all retries of a request. It is Dagster's root run id, or an id that
            the command makes.
        replace: the window is replaced: the same offsets are read again.
        accept_fewer: a replacement may have fewer messages than the previous generation, or
            may undo edited messages of that generation.
        accept_duplicates: a window is committed even if the sink has lost its receipt, so
            that its rows may be there twice (`ownership.refuse_lost_receipt`).
        fresh_lookups: lookups ask the current versions, not the versions that the windows
            are pinned to.
        anyway: the window runs even if the pipeline is paused.
        try_again: poison pills of the window's messages are forgotten first.
        bring_back: a window is replaced even if its rows have expired.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T10:00:00Z")
        request = windrow.Request("new schema", replace=True)
        result = windrow.run_window(pipeline, window, request)
        print(result.outcome)
    """

    id: str
    replace: bool = False
    accept_fewer: bool = False
    accept_duplicates: bool = False
    fresh_lookups: bool = False
    anyway: bool = False
    try_again: bool = False
    bring_back: bool = False


class Result(msgspec.Struct, frozen=True):
    """The result of a run of a window.

    Attributes:
        committed: the receipt that the sink has.
        recovered: True if the window was committed before, and this run wrote nothing.
        group_offsets: the outcome of committing offsets to a consumer group, if the spec
            names a group and the window is the newest.
        published_dead: the dead letters that this run published to a topic; None if there
            were none, or the spec names no topic.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        result = windrow.run_window(pipeline, window, windrow.Request("backfill"))
        print(result.committed.receipt.counts.rows, "rows; committed before:", result.recovered)
    """

    committed: Committed
    recovered: bool
    group_offsets: AlteredOffsets | None = None
    published_dead: PublishedDeadLetters | None = None

    @property
    def outcome(self) -> str:
        """The outcome of the window: `committed`, `replaced`, or `committed already`."""
        receipt = self.committed.receipt
        generation, expired = receipt.generation, ", rows expired" if receipt.expired_at else ""
        word = "committed already" if self.recovered else "replaced" if generation else "committed"
        return f"{word}, generation {generation}{expired}" if generation else word

    def describe(self) -> str:
        """Returns a line for people about the committed window."""
        receipt = self.committed.receipt
        return (
            f"Window {receipt.window.key}: {self.outcome},"
            f" {format_count(receipt.counts.rows, 'row')},"
            f" {format_count(receipt.counts.dead, 'dead letter')}"
        )


@dataclass(frozen=True)
class PassedOver:
    """A window that was refused. The windows after it were run nevertheless.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        hours = windrow.windows_named(spec, "2026-01-05T09:00:00Z/2026-01-05T12:00:00Z")
        request, pass_over = windrow.Request("backfill"), windrow.pass_over_refused(pipeline)
        for result in windrow.run_windows(pipeline, hours, request, pass_over=pass_over):
            if isinstance(result, windrow.PassedOver):
                print(result.window.key, "was refused:", result.error)
    """

    window: Window
    error: RefusedError


@dataclass(frozen=True)
class DataFrameTransform:
    """A user's function from a DataFrame to a DataFrame.

    Attributes:
        function: the function.
        model: the schema of the rows that it gives; None if they have the input columns.
        later_transform: makes the transform of these rows: later steps, and the rules of the
            schema. If it refuses a row, the window is refused.
    """

    function: FunctionReference
    model: ModelReference | None
    later_transform: Callable[[], Transform]

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the columns of the rows that the function gives."""
        from windrow.ingest.schema.columns import Columns  # imported here: it loads Arrow

        return input_columns if self.model is None else Columns.of(load_model(self.model))


@dataclass(frozen=True)
class Pipeline:
    """A spec with everything that a run of it needs.

    `columns`, `decoder` and `transform` load the user's schema when they are called, which
    takes seconds. Code that only shows a pipeline must not call them.

    Attributes:
        columns: returns the columns of the table's rows.
        transform: returns the transform of decoded rows, up to `dataframe_transform`.
        broker: the cluster.
        reader: makes the reader of a plan.
        sink: the table.
        dead_letters: the store of dead letters.
        engine: runs the tasks.
        dead_topic: the topic for committed dead letters; None if the spec names none.
        dataframe_transform: the DataFrame function after `transform`; None without one.
        enumerate_splits: returns the splits of a plan that isn't frozen yet; None to keep
            the plan's splits.
        observer: gets figures of runs; None for no observer.
        before_commit: is called before each commit. If it raises, nothing is committed.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        print(len(windrow.read_receipts(pipeline)), "windows are committed")
    """

    spec: PipelineSpec
    columns: Callable[[], Columns]
    decoder: Callable[[], Decoder]
    transform: Callable[[], Transform]
    broker: Broker
    reader: Callable[[ReadPlan], Reader]
    ledger: Ledger
    sink: Sink
    dead_letters: DeadLetters
    engine: Engine
    dead_topic: DeadTopic | None = None
    dataframe_transform: DataFrameTransform | None = None
    enumerate_splits: Callable[[Pipeline, Plan], Sequence[Split]] | None = None
    observer: Observer | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    before_commit: Callable[[], None] = lambda: None

    def transforms(self) -> tuple[Transform, ...]:
        """Returns `transform`, and the transform after the DataFrame function if there is one."""
        function = self.dataframe_transform
        return (
            (self.transform(),)
            if function is None
            else (self.transform(), function.later_transform())
        )

    def lookups(self) -> Mapping[str, LookupSource]:
        """Returns the source of each lookup, by its name; the decoder of routes has some, too."""
        return sources_of((self.decoder(), *self.transforms()))

    def owner(self) -> TableOwner:
        """Returns the owner that the table is bound to, or will be.

        Asks the ledger for its id.
        """
        return TableOwner(self.spec.id, self.ledger.identity(), self.spec.window.grid)


@cache
def written_by() -> str:
    """Returns windrow's name and version, for receipts."""
    return f"windrow {version('windrow-ingest')}"
