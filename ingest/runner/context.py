"""A pipeline with all its parts, and the small values that a run takes and returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
    """A request to commit a window, or (`replace`) to replace a committed one.

    A replacement reads the same offsets again. `id` stays the same over the retries of
    one request (Dagster's root run id, or one made by the command). `accept_fewer` lets
    a replacement go on although it sees fewer messages than the generation before, or
    that one holds messages that were edited. `accept_duplicates` commits a window whose receipt the
    sink has lost, although its rows may come twice (`ownership.refuse_lost_receipt`).
    `fresh_lookups`: look up in the sources as they are now, not in those that the windows
    are pinned to. `anyway`: although the pipeline is paused.
    """

    id: str
    replace: bool = False
    accept_fewer: bool = False
    accept_duplicates: bool = False
    fresh_lookups: bool = False
    anyway: bool = False


class Result(msgspec.Struct, frozen=True):
    """The receipt that the sink holds.

    `recovered`: True if the window was committed before, and this run wrote nothing.
    `group_offsets`: the outcome of committing offsets to a consumer group, if the spec
    names one and the window is the newest. `published_dead`: the dead letters that this run
    published to a topic, if the spec names one and there were any to publish.
    """

    committed: Committed
    recovered: bool
    group_offsets: AlteredOffsets | None = None
    published_dead: PublishedDeadLetters | None = None

    @property
    def outcome(self) -> str:
        """The outcome of the window: `committed`, `replaced`, or `committed already`."""
        generation = self.committed.receipt.generation
        word = "committed already" if self.recovered else "replaced" if generation else "committed"
        return f"{word}, generation {generation}" if generation else word

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
    """A window that was refused, while the windows behind it were run all the same."""

    window: Window
    error: RefusedError


@dataclass(frozen=True)
class DataFrameTransform:
    """A user's function from a DataFrame to a DataFrame, between decoding and the table.

    `model`: the schema of its rows; None: they have the columns of those that it is given.
    `later_transform`: what becomes of its rows, and the rules that they must keep; a row that is
    refused refuses the window.
    """

    function: FunctionReference
    model: ModelReference | None
    later_transform: Callable[[], Transform]

    def columns(self, input_columns: Columns) -> Columns:
        """The columns of its rows, for a function that is given rows with some columns."""
        from windrow.ingest.schema.columns import Columns  # loads Arrow and pandera

        return input_columns if self.model is None else Columns.of(load_model(self.model))


@dataclass(frozen=True)
class Pipeline:
    """A spec with all that a run of it needs.

    `columns` are those of the table's rows: `transform` makes them of those that
    `decoder` gives. The user's schema may be loaded only when one of the three is
    called, which takes seconds: code that looks at a pipeline and writes nothing calls
    none of them. `dead_topic`: the topic for committed dead letters, if the spec names
    one. `dataframe_transform`: the function of DataFrames behind `transform`, if
    the spec names one; then `columns` are those of what becomes of its rows. `enumerate_splits`:
    gives the splits of a plan that isn't frozen yet; None: they stay as they were cut.
    `before_commit`: called before each commit; what it raises ends the run without it.
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
        """Returns `transform`, and what is behind the function of DataFrames."""
        function = self.dataframe_transform
        return (
            (self.transform(),)
            if function is None
            else (self.transform(), function.later_transform())
        )

    def owner(self) -> TableOwner:
        """Returns the owner that the table is bound to, or will be.

        Asks the ledger for its id.
        """
        return TableOwner(self.spec.id, self.ledger.identity(), self.spec.window.grid)


@cache
def written_by() -> str:
    """Returns windrow's name and version, for receipts."""
    return f"windrow {version('windrow-ingest')}"
