"""A store of dead letters: refused messages, complete, with the reason of each refusal.

It is separate from the sink, so that each sink can be combined with each store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.sink import Maintained, Maintenance, StagerFactory

REASONS = pa.schema(
    [
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("schema_id", pa.string()),
    ]
)
"""The columns that are staged together with the refused messages.

- stage: the stage that refused the message.
- reason: a short reason, to count by.
- detail: more about the reason, without payload.
- schema_id: the registry's id of the schema that the message named; null if its format names
  none.
"""


class DeadLetters(Protocol):
    """A store of dead letters, each with the attempt that refused it.

    An attempt's dead letters are committed before its window's data, so that a refused window
    can be examined. The sink's receipt says which attempt counts. Dead letters of other
    attempts are never shown as the window's. So no message is shown both as a row and as a dead
    letter, even after a crash between the two commits or a retry with a corrected schema.
    """

    def refuse_unwritable(self) -> None:
        """Checks whether the store could be created, or written, at its place.

        Raises:
            SpecError: it can't; the error says why, and what to do.
        """

    def refuse_other(self, owner: TableOwner) -> None:
        """Compares the owner of an existing store, as `prepare` does, but writes nothing.

        Raises:
            GridError, OwnerError: it is bound to another owner.
            SchemaChangedError, SpecError: something other than windrow made or changed it.
        """

    def prepare(self, owner: TableOwner) -> None:
        """Creates the store and binds it to its owner, or compares the owner if it exists.

        Idempotent, and safe under concurrent calls.

        Raises:
            GridError, OwnerError: it is bound to another owner.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """Returns the factory of stagers for dead letters.

        Their rows have the columns `REASONS`.
        """

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """Makes an attempt's dead letters durable. Idempotent.

        Raises:
            OutcomeUnknownError: the commit was sent, and it is unknown whether it arrived.
        """

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """Returns an attempt's dead letters of a window, at most `limit`.

        They have the columns of `sinks.kit.columns.table_columns.DEAD_FILE`, and the window's
        column.
        """

    def attempts(self, key_filter: Callable[[str], bool]) -> dict[str, str]:
        """Returns the newest attempt that left dead letters of each window, by the window's key.

        Only windows whose keys pass `key_filter` are returned.
        """

    def count(self, window: Window, attempt: str) -> int:
        """Returns the number of dead letters that an attempt left of a window.

        Raises:
            UnreachableError: they can't be reached.
            RefusedError: they are gone or damaged.
        """

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yields all dead letters of a window, of every attempt, in batches of bounded size.

        Raises:
            UnreachableError, RefusedError: as `count`.
        """

    def is_published(self, window: Window, attempt: str) -> bool:
        """Returns whether a note says that an attempt's dead letters were published to their topic.

        Raises:
            UnreachableError: the note can't be read.
        """

    def note_published(self, window: Window, attempt: str) -> None:
        """Notes that an attempt's dead letters were published to their topic. Idempotent.

        Raises:
            OutcomeUnknownError, UnreachableError: as `commit`.
        """

    def expire(self, window: Window, attempt: str) -> bool:
        """Removes all dead letters of a window, and notes that those of an attempt are expired.

        If another attempt has left dead letters since, they stay, and nothing is noted.
        Idempotent.

        Args:
            window: the window.
            attempt: the attempt that the window's receipt names.

        Returns:
            Whether they are expired.

        Raises:
            OutcomeUnknownError, UnreachableError: as `commit`.
        """

    def is_expired(self, window: Window, attempt: str) -> bool:
        """Returns whether a note says that an attempt's dead letters are expired.

        Raises:
            UnreachableError: the note can't be read.
        """

    def restore(self, *, dry_run: bool) -> bool:
        """Writes the records of the attempts with dead letters again, if the store has lost them.

        Three facts can't be restored: the newest attempt of each window, and the dead letters
        that were published or are expired. All of them count as not published and not expired.

        Returns:
            Whether the records were lost.
        """

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        """Joins small files, expires old versions, and removes files that nobody needs.

        It keeps the promises of `ports.sink.Sink.maintain`.
        """
