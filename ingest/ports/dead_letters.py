"""What keeps refused messages: whole, with what refused them.

Apart from the sink, so that any sink can have any store of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import pyarrow as pa

from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import StagerFactory

REASONS = pa.schema(
    [
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("schema_id", pa.string()),
    ]
)
"""The rows that are staged beside refused messages: which stage refused each, a reason
to count by, a detail without payload, and the registry's id of the schema that the
message named, null if its format names none.
"""


class Publication(NamedTuple):
    """That dead letters were about to be published, since when; and whether they are."""

    begun: datetime
    done: bool


class DeadLetters(Protocol):
    """A store of dead letters, each of which says by which attempt it was refused.

    An attempt's dead letters are committed before its window's data, so that a refusal
    can be looked into. Which attempt counts, the sink's receipt says: what another one
    left is never shown as the window's. So a crash between the two commits, or a retry
    with a corrected schema, shows no message on both sides.
    """

    def refuse_unwritable(self) -> None:
        """Try whether the store could be made, or written, where it lies.

        Raises:
            SpecError: it can't; says why, and what to do.
        """

    def prepare(self, owner: TableOwner) -> None:
        """Create the store if it isn't there and bind it, or compare. Idempotent, safe to race.

        Raises:
            GridError, OwnerError: it is bound to something else.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """What executors stage dead letters with: `REASONS` beside the messages."""

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """Make an attempt's dead letters durable. Idempotent.

        Raises:
            OutcomeUnknownError: that was sent and can't be told to have arrived.
        """

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """An attempt's dead letters of a window, at most `limit`: the columns of
        `ingest.sinks.columns.DEAD_FILE`, and the window's.
        """

    def attempts(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """Of the windows whose keys are wanted, and that any attempt left dead letters
        of: the newest such attempt.
        """

    def count(self, window: Window, attempt: str) -> int:
        """How many an attempt left of a window.

        Raises:
            UnreachableError: they can't be got at.
            RefusedError: they are gone or damaged.
        """

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """All dead letters of a window, of every attempt, in batches of bounded size;
        raises as `count` does.
        """

    def publication(self, window: Window, attempt: str) -> Publication | None:
        """What is noted of the publication of an attempt's dead letters to a topic; None if nothing is.

        Raises:
            UnreachableError: that can't be told.
        """  # noqa: E501

    def begin_publication(self, window: Window, attempt: str, now: datetime) -> datetime:
        """Note that they are about to be published, if it isn't noted; when that was
        noted first, to the millisecond.

        Raises:
            OutcomeUnknownError, UnreachableError: as `commit`.
        """

    def end_publication(self, window: Window, attempt: str) -> None:
        """Note that they are published. Idempotent; raises as `begin_publication`."""

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`."""
